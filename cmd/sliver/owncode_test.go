package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session"
)

// TestOwnCodeShares records, as a user without rights, a thread that knows how much CPU time it spends in its own code, in calls
// and in page faults. With kernel.perf_event_paranoid of 2, copies are of its own code alone, and stops give the rest.
// The limits are 4.5 standard deviations of the number of samples and of stops, and 6 points for stops that take effect later than
// asked for: a verdict is wrong by chance in less than 1 of 100,000 runs.
func TestOwnCodeShares(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks")
	testprog.Need(t, "gcc", "ptrace", "root", "setpriv")
	if err := session.TryClocks(false); err != nil {
		testprog.Missing(t, "perf", err.Error())
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	home := publicDir(t, map[string]string{"sliver": bin, "owncode": testprog.Build(t, "c/owncode", "O2")})
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, turn := range [][4]string{{"4000", "0", "0", "0"}, {"4000", "3000", "3000", "0"}, {"3000", "1000", "0", "2000"}} {
		t.Run(strings.Join(turn[:], " "), func(t *testing.T) {
			file := filepath.Join(home, "run.sliver")
			var sum struct {
				PID            int
				Clocked, Stops uint64
			}
			truth := ownCodeRun(t, filepath.Join(home, "owncode"), turn[:], func(pid int) {
				cmd := asUser("-bpf", filepath.Join(home, "sliver"), "record", "-q", "--json", "-p", strconv.Itoa(pid), "-d", "3s", "-i", "2ms", "--max-overhead", "0", "-o", file)
				cmd.Dir, cmd.Env = home, append(os.Environ(), "XDG_CACHE_HOME="+home)
				res := runCmd(t, cmd)
				if err := json.Unmarshal([]byte(res.out), &sum); err != nil || res.status != 0 {
					t.Fatalf("%v: %+v", err, res)
				}
			})
			if sum.Clocked == 0 {
				testprog.Missing(t, "perf", "no clock for users without rights")
			}
			got := ownCodeShares(t, bin, file)
			n := float64(sum.Clocked + sum.Stops)
			t.Logf("%.3f of the CPU time is that of its own code, calls and faults, by its own account %.3f; %d copies, %d stops", got, truth, sum.Clocked, sum.Stops)
			if n < 200 {
				t.Fatalf("%.0f samples in 3 s at 2 ms", n)
			}
			for i, what := range []string{"its own code", "calls", "page faults"} {
				p := truth[i]
				if limit := .06 + 4.5*math.Sqrt(p*(1-p)*(1/n+(1-truth[0])/float64(sum.Stops+1))); math.Abs(got[i]-p) > limit {
					t.Errorf("%s: %.3f of the CPU time, by its own account %.3f", what, got[i], p)
				}
			}
		})
	}
}

// ownCodeRun calls f while owncode works, which runs without rights, and returns the shares of its CPU time.
func ownCodeRun(t *testing.T, program string, turn []string, f func(pid int)) (shares [3]float64) {
	t.Helper()
	cmd := asUser("-bpf", append([]string{program}, turn...)...)
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	lines := bufio.NewReader(out)
	line := func(format string, to ...any) {
		s, err := lines.ReadString('\n')
		if _, err2 := fmt.Sscanf(s, format, to...); err != nil || err2 != nil {
			t.Fatalf("owncode says %q: %v, %v", s, err, err2)
		}
	}
	say := func() {
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	var pid int
	line("ready %d", &pid)
	say()
	f(pid)
	say()
	line("shares %g %g %g", &shares[0], &shares[1], &shares[2])
	say()
	ended = true
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	sum := shares[0] + shares[1] + shares[2]
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// ownCodeShares returns the shares of the functions of owncode in the CPU time of a recording.
func ownCodeShares(t *testing.T, bin, file string) (shares [3]float64) {
	t.Helper()
	folded := filepath.Join(t.TempDir(), "run.cpu.folded")
	if res := runCmd(t, exec.Command(bin, "export", file, "-o", folded)); res.status != 0 {
		t.Fatalf("%+v", res)
	}
	text, err := os.ReadFile(folded)
	if err != nil {
		t.Fatal(err)
	}
	all := 0.
	for line := range strings.Lines(string(text)) {
		stack := line[:strings.LastIndexByte(line, ' ')+1]
		n, err := strconv.ParseFloat(strings.TrimSpace(line[len(stack):]), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all += n
		switch {
		case strings.Contains(stack, ";compute"):
			shares[0] += n
		case strings.Contains(stack, ";reading"), strings.Contains(stack, "madvise"):
			shares[1] += n
		case strings.Contains(stack, ";touch"):
			shares[2] += n
		}
	}
	for i := range shares {
		shares[i] /= all
	}
	return shares
}
