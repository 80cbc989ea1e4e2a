package record

//sliver:layer live

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
)

// spinning starts a program that computes without a pause.
func spinning(t *testing.T) int {
	t.Helper()
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "3600", "--wait-go")
	p.Ready()
	p.Go()
	return p.PID
}

// TestProcess: one call gives complete files, with the selected threads and the program's functions.
func TestProcess(t *testing.T) {
	pid := spinning(t)
	dir := t.TempDir()
	run, prof := filepath.Join(dir, "run.sliver"), filepath.Join(dir, "run.pb.gz")
	// The end is the context's: after enough samples for the function to be in them.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	res, err := Process(ctx, pid, Options{Threads: "main", Interval: 5 * time.Millisecond}, run, prof)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Files) != 2 || res.Threads != 1 || res.Stats.Total().Samples == 0 || res.Duration < time.Second || res.Reason == "" {
		t.Errorf("%+v", res)
	}
	b, err := os.Open(run)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	st, err := b.Stat()
	if err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(b, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	if rec.Process.PID != pid || len(rec.Threads) != 1 || rec.End == nil || rec.Symbols == nil {
		t.Errorf("process %+v, %d threads, end %v", rec.Process, len(rec.Threads), rec.End)
	}
	f, err := os.Open(prof)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, fn := range p.Function {
		found = found || fn.Name == "spin_29"
	}
	if !found {
		t.Errorf("no function spin_29 among %d", len(p.Function))
	}
}

// TestRefusals: an error names the option or the process, and no file is left.
func TestRefusals(t *testing.T) {
	pid := spinning(t)
	for _, c := range []struct {
		name, say string
		pid       int
		o         Options
		file      string
	}{
		{"interval", "interval 1ns", pid, Options{Interval: 1}, "x.sliver"},
		{"duration", "duration -1s", pid, Options{Duration: -time.Second}, "x.sliver"},
		{"overhead", "overhead", pid, Options{MaxOverhead: 1.5}, "x.sliver"},
		{"threads", "[", pid, Options{Threads: "/[/"}, "x.sliver"},
		{"no such thread", strconv.Itoa(pid), pid, Options{Threads: "nobody"}, "x.sliver"},
		{"format", "x.what", pid, Options{}, "x.what"},
		{"process", "4194303", 4194303, Options{}, "x.sliver"},
		{"no file", "no file", pid, Options{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			var paths []string
			if c.file != "" {
				paths = []string{filepath.Join(dir, c.file)}
			}
			res, err := Process(t.Context(), c.pid, c.o, paths...)
			if err == nil || res != nil || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%+v, %v, want an error with %q", res, err, c.say)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// TestExample: the program in examples/record, built as another program would be, names the function.
func TestExample(t *testing.T) {
	pid := spinning(t)
	bin := filepath.Join(t.TempDir(), "example")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./examples/record")
	build.Dir = testprog.Root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), bin, strconv.Itoa(pid)).Output()
	if err != nil || !strings.Contains(string(out), ": 1 thread, ") || !strings.Contains(string(out), "prog_spin") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), bin, "no").CombinedOutput(); err == nil || !strings.Contains(string(out), `"no" is not`) {
		t.Errorf("%v\n%s", err, out)
	}
}
