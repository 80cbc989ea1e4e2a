package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// lateCalls starts sliver with a command that calls a function of a library 50 times.
func lateCalls(t *testing.T, dir string, preload bool, args ...string) *testprog.Proc {
	t.Helper()
	testprog.Need(t, "gcc", "ptrace")
	lib := testprog.Build(t, "c/laterlib", "O2")
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, append(args, "--", testprog.Build(t, "c/latecalls", "O2"), "50", lib)...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	if preload { // sliver is static, so it loads nothing itself
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+lib)
	}
	return testprog.StartCmd(t, cmd)
}

// awaitError waits for a text on standard error.
func awaitError(t *testing.T, p *testprog.Proc, text string) {
	t.Helper()
	waitFor(t, func() bool { return strings.Contains(strings.Join(p.Errors(), "\n"), text) })
}

// Of a command, the functions of its libraries are traced from their first call on.
func TestTraceCommand(t *testing.T) {
	for _, preload := range []bool{true, false} {
		p := lateCalls(t, t.TempDir(), preload, "trace", "-f", "later")
		awaitError(t, p, "tracing ")
		if strings.Contains(strings.Join(p.Errors(), "\n"), "run to the program's entry") {
			testprog.Missing(t, "perf", strings.Join(p.Errors(), "\n"))
		}
		p.Say("load")
		p.Line("loaded")
		if preload {
			awaitError(t, p, "tracing 1 function of process")
		} else {
			awaitError(t, p, "no function of latecalls matches later so far")
			awaitError(t, p, "tracing 1 function more, of ")
		}
		p.Say("call")
		p.Line("called")
		p.Say("unload")
		if st := p.Wait(); !st.Success() {
			t.Fatalf("%v: %v", st, p.Errors())
		}
		out := strings.Join(p.Output(), "\n")
		if _, table, _ := strings.Cut(out, "  function\n"); len(strings.Fields(table)) == 0 || strings.Fields(table)[0] != "50" || strings.Contains(table, "loaded later") == preload {
			t.Errorf("preload %v: %s", preload, out)
		}
	}
}

// The calls are in the recording, too, and an exit status is the command's.
func TestRecordTraceCommand(t *testing.T) {
	dir := t.TempDir()
	p := lateCalls(t, dir, true, "record", "--trace", "later", "-o", "x.sliver")
	p.Say("load")
	p.Line("loaded")
	p.Say("call")
	p.Line("called")
	p.Say("unload")
	p.Line("truth 50")
	if st := p.Wait(); !st.Success() {
		t.Fatalf("%v: %v", st, p.Errors())
	}
	if r := sliver(t, dir, "sql", "x.sliver", "--format", "csv", "select count(*) from calls where function = 'later'"); !strings.HasSuffix(strings.TrimSpace(r.out), "\n50") {
		t.Errorf("%+v; %v", r, p.Errors())
	}
	r := sliver(t, dir, "record", "--trace", "no_such_function", "-o", "y.sliver", "--", "sh", "-c", "exit 3")
	if r.status != 3 || !strings.Contains(r.errors, "no function of sh matches no_such_function so far") || !strings.Contains(r.errors, "no call was traced") {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(filepath.Join(dir, "y.sliver")); err != nil {
		t.Error(err)
	}
}
