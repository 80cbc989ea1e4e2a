package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestFidelityOtherPython: one line reports that a Python other than CPython is not supported. The
// program is not PyPy, but has the name of its file.
func TestFidelityOtherPython(t *testing.T) {
	testprog.Need(t, "ptrace")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "pypy3.11-c")
	if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	p := testprog.StartCmd(t, exec.Command(program, "3600"))
	for _, args := range [][]string{{"stack", pidOf(p)}, {"record", "-d", "1s", "-o", "x.sliver", "-p", pidOf(p)}} {
		r := result{}
		waitFor(t, func() bool { // the program is loaded
			r = sliver(t, dir, args...)
			return r.status == 0 && strings.Contains(r.errors, "PyPy")
		})
		if n := strings.Count(r.errors, "PyPy is not supported: its stacks are shown as C alone"); n != 1 {
			t.Errorf("%v: the line is there %d times: %s", args, n, r.errors)
		}
	}
}
