package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session"
)

// engineRun is a recording of a busy program by one of the engines.
type engineRun struct {
	engine  string
	copies  bool   // a clock takes samples
	refused string // part of the only line of an engine that is not allowed; "": it is
}

// try records a program with the engine, as the command before sliver's lets it.
func (r *engineRun) try(t *testing.T, sliver string, as []string, program ...string) {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	// The end of the CPU time, not of the time, ends the recording.
	all := append(append([]string{}, as...), sliver, "record", "--no-children", "--json", "-q", "-i", "5ms", "--max-overhead", "0", "--engine", r.engine, "-o", "run.sliver", "--")
	all = append(all, program...)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+dir)
	res := runCmd(t, cmd)
	if r.refused != "" {
		if line := lineOf(res.errors, "sliver: engine "+r.engine+": "); res.status == 0 || res.out != "" || !strings.Contains(line, r.refused) || strings.TrimSpace(res.errors) != line {
			t.Errorf("--engine %s: %+v, want an error with %q", r.engine, res, r.refused)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("--engine %s leaves %v (%v)", r.engine, left, err)
		}
		return
	}
	var sum struct{ Clocked, Stops uint64 }
	if err := json.Unmarshal([]byte(res.out), &sum); err != nil || res.status != 0 {
		t.Errorf("--engine %s: %v, %+v", r.engine, err, res)
		return
	}
	t.Logf("--engine %s: %d copies, %d stops", r.engine, sum.Clocked, sum.Stops)
	if (sum.Clocked > 0) != r.copies || !r.copies && sum.Stops == 0 {
		t.Errorf("--engine %s: %d copies and %d stops, want copies: %v", r.engine, sum.Clocked, sum.Stops, r.copies)
	}
}

// burn is a program in Python that ends after 0.7 s of CPU time.
const burn = `
import time
def work():
    return sum(range(1000))
while time.process_time() < .7:
    work()
`

// TestEngineChoice records threads of C and of Python with each engine: which samples are copies of clocks, and which
// stops, is as chosen. An engine that is not allowed is refused before the program runs.
func TestEngineChoice(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace", "root", "setpriv")
	if err := session.TryClocks(true); err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	python := testprog.Tool(t, "python3")
	native := testprog.GCC(t, "burn", `
#include <time.h>
int main(void) {
	struct timespec t;
	volatile unsigned long n = 0;
	do {
		for (int i = 0; i < 1000000; i++)
			n++;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	} while (t.tv_sec == 0 && t.tv_nsec < 700000000);
	return 0;
}`)
	home := publicDir(t, map[string]string{"sliver": bin, "native": native})
	own := filepath.Join(home, "sliver")
	paranoid, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		t.Fatal(err)
	}
	level, err := strconv.Atoi(strings.TrimSpace(string(paranoid)))
	if err != nil {
		t.Fatal(err)
	}
	const noClocks, noBPF = "kernel.perf_event_paranoid of 2 or less", "missing: CAP_BPF, CAP_PERFMON"
	plain := noClocks
	if level <= 2 {
		plain = ""
	}
	for _, of := range []struct {
		name    string
		as      []string
		program []string
		runs    []engineRun
	}{
		{"C as root", nil, []string{filepath.Join(home, "native")}, []engineRun{{"auto", true, ""}, {"ptrace", false, ""}, {"perf", true, ""}, {"kernel", true, ""}}},
		{"Python as root", nil, []string{python, "-c", burn}, []engineRun{{"auto", true, ""}, {"ptrace", false, ""}, {"perf", false, ""}, {"kernel", true, ""}}},
		{"C as nobody", asUser("-bpf").Args, []string{filepath.Join(home, "native")},
			[]engineRun{{"auto", level <= 2, ""}, {"ptrace", false, ""}, {"perf", true, plain}, {"kernel", true, noBPF}}},
		{"C with CAP_PERFMON", asUser("+perfmon").Args, []string{filepath.Join(home, "native")},
			[]engineRun{{"auto", true, ""}, {"perf", true, ""}, {"kernel", true, "missing: CAP_BPF"}}},
	} {
		for i := range of.runs {
			if of.name == "Python as root" && testing.Short() {
				continue // TestPythonClock of package session has its clocks
			}
			t.Run(fmt.Sprintf("%s/%s", of.name, of.runs[i].engine), func(t *testing.T) { of.runs[i].try(t, own, of.as, of.program...) })
		}
	}
}
