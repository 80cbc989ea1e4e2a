package session

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// jitted returns unlinked object files, with one function for each name.
func jitted(t *testing.T, names ...string) (files []string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		file := filepath.Join(dir, name+".o")
		cmd := exec.Command(testprog.Tool(t, "gcc"), "-x", "c", "-c", "-O2", "-g", "-fno-omit-frame-pointer", "-fcf-protection=none",
			"-DNAME="+name, "-o", file, filepath.Join(testprog.Root(t), "testdata/targets/c/jitted.h"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		files = append(files, file)
	}
	return files
}

// Code that a program describes to debuggers with GDB's JIT interface must have the
// names and lines of the files in the program's memory, for the right time if one
// replaced another.
func TestGDBJIT(t *testing.T) {
	testprog.Need(t, "ptrace", "gcc")
	names := []string{"phase_first", "phase_second", "phase_third"}
	prog := testprog.Start(t, testprog.Build(t, "c/gdbjit", "O2"), jitted(t, names...)...)
	prog.Ready()
	var phases []phase
	rec := recordWhole(t, prog.PID, Options{Interval: 2 * time.Millisecond, Groups: 2}, func(s *Session) {
		phases = runPhases(t, prog, names, s.jit, s.counts)
		prog.Go()
		if st := prog.Wait(); !st.Success() {
			t.Errorf("ended with %v", st)
		}
	})
	checkPhases(t, rec, phases, 0)
	var all stack.Time
	for _, x := range phases {
		all += x.to - x.seen
	}
	had := map[string]stack.Time{}
	for _, c := range callsOf(rec, "jitted_") {
		had[c.name] += c.to - c.from
	}
	for _, name := range []string{"jitted_middle", "jitted_inner"} { // the first has a symbol, the second only DWARF
		if had[name] < all {
			t.Errorf("only %v of %v of %s", time.Duration(had[name]), time.Duration(all), name)
		}
	}
	files := map[string]bool{}
	for _, l := range rec.Symbols.Locs {
		for _, f := range l {
			if n := rec.Symbols.Funcs[f.Func].Name; strings.HasPrefix(n, "jitted_") {
				files[fmt.Sprintf("%s:%d", filepath.Base(f.File), min(f.Line, 1))] = true
			}
		}
	}
	if len(files) != 1 || !files["jitted.h:1"] {
		t.Errorf("lines are in %v", files)
	}
}
