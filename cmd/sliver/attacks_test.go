package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// attack starts an attack program of testdata/targets/hostile, which waits for a line when it is ready.
func attack(t *testing.T, program, variant string, args ...string) *testprog.Proc {
	t.Helper()
	testprog.Need(t, "ptrace")
	return testprog.Start(t, testprog.Build(t, program, variant), args...)
}

// survive records a hostile process for a moment, and looks at it in other ways. It fails if sliver
// takes more than most bytes of memory, if it does not end, or if the process is not left as it was. It returns what
// 'record' and 'report' printed.
func survive(t *testing.T, p *testprog.Proc, most int64) (record, report string) {
	t.Helper()
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := slivercmd(t, dir, args...)
		late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		if kB := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; kB > most>>10 {
			t.Errorf("%q: %d MB of memory", args, kB>>10)
		} else {
			t.Logf("%q: %d MB", args, kB>>10)
		}
		return string(out)
	}
	record = run("record", "-p", pidOf(p), "-d", "1s", "-i", "2ms", "-o", "r.sliver")
	if fi, err := os.Stat(filepath.Join(dir, "r.sliver")); err != nil || fi.Size() > 16<<20 {
		t.Errorf("the recording: %v %v", fi, err)
	}
	run("stack", pidOf(p))
	run("threads", pidOf(p))
	run("export", "r.sliver", "-o", "r.pftrace", "-o", "r.pb.gz", "-o", "r.folded")
	free(t, p.PID)
	return record, run("report", "r.sliver", "--idle", "--rows", "200")
}

const usual = 256 << 20

// Stacks that lead their reader astray cost their own thread's samples, and the thread beside them is
// shown as it is.
func TestAttackStacks(t *testing.T) {
	testprog.Whole(t, "TestAttackPython has spoiled frames")
	p := attack(t, "hostile/stacks", "O2", "--wait-go")
	p.Ready()
	p.Go()
	record, report := survive(t, p, usual)
	record = strings.Join(strings.Fields(record), " ") // its lines are wrapped
	for _, want := range []string{"frames", "damaged unwind table"} {
		if !strings.Contains(record, want) {
			t.Errorf("'record' does not say %q: %s", want, record)
		}
	}
	for _, want := range []string{"stacks_honest", "forever", "astray", "deep"} {
		if !strings.Contains(report, want) {
			t.Errorf("'report' does not have %q: %s", want, report)
		}
	}
}

// A process with more mapped files than may be opened is recorded, with as many as may be.
func TestAttackMappings(t *testing.T) {
	testprog.Whole(t, "some 10 s of mappings")
	for _, args := range [][]string{{}, {"--remap"}} {
		t.Run(strings.Join(args, ""), func(t *testing.T) {
			p := attack(t, "hostile/mappings", "O2", append(args, "--wait-go", "--files", "30000", "--in", t.TempDir())...)
			p.Ready()
			p.Go()
			record, report := survive(t, p, 2*usual)
			if !strings.Contains(record, "mapped files with code were not opened: at most") {
				t.Errorf("'record' does not tell the bound: %s", record)
			}
			if !strings.Contains(report, "mappings_work") {
				t.Errorf("the program's own function is missing: %s", report)
			}
		})
	}
}

// Thousands of threads a second, each with a name of its own, cost bounded memory, and those that were
// not met are counted.
func TestAttackChurn(t *testing.T) {
	testprog.Whole(t, "TestAttackPython has spoiled frames")
	p := attack(t, "hostile/churn", "O2", "--wait-go")
	p.Ready()
	p.Go()
	record, _ := survive(t, p, usual)
	if !strings.Contains(record, "recorded ") {
		t.Error(record)
	}
}

// Data of Go's runtime that was spoiled costs names and goroutines.
func TestAttackGoroutines(t *testing.T) {
	testprog.Whole(t, "TestAttackPython has spoiled frames")
	for _, kind := range []string{"length", "ring", "string"} {
		t.Run(kind, func(t *testing.T) {
			p := attack(t, "hostile/goroutines", "default", kind)
			p.Line("ready")
			p.Go()
			if _, report := survive(t, p, usual); !strings.Contains(report, "main.honest") {
				t.Errorf("the function that computes is missing: %s", report)
			}
		})
	}
}

// Python frames in a ring, without code, with endless names: the other threads' are shown, and nothing
// of them controls a terminal.
func TestAttackPython(t *testing.T) {
	for _, version := range []string{"python3.11", "python3.12"} {
		t.Run(version, func(t *testing.T) {
			if version != "python3.12" {
				testprog.Whole(t, "another Python")
			}
			testprog.Need(t, "ptrace")
			p := testprog.Start(t, testprog.Tool(t, version), filepath.Join(testprog.Root(t), "testdata/targets/hostile/frames.py"))
			p.Line("ready")
			p.Go()
			record, report := survive(t, p, usual)
			if !strings.Contains(report, "honest") {
				t.Errorf("the function that computes is missing: %s", report)
			}
			if i := strings.IndexFunc(record+report, func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 }); i >= 0 {
				t.Errorf("a control character in the output: %q", fmt.Sprint(record, report)[max(i-40, 0):i+1])
			}
		})
	}
}
