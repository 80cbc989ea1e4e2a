package exact

//sliver:layer live

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/engine/breakpoint"
	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// trace traces functions of a program; it skips the test where the engine is missing.
func trace(t *testing.T, pid int, engine string, patterns ...string) *Tracer {
	t.Helper()
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	var ps []calls.Pattern
	for _, s := range patterns {
		x, err := calls.ParsePattern(s)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, x)
	}
	names, err := Find(p, ps, FindOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range names.Functions {
		if f.Why != "" {
			t.Fatalf("%s: %s", f.Name, f.Why)
		}
	}
	tr, err := Start(p, names.Functions, Options{Engine: engine})
	switch {
	case errors.Is(err, breakpoint.ErrNone), errors.Is(err, breakpoint.ErrRights):
		testprog.Missing(t, "perf", err.Error())
	case kernel.Refused(err):
		testprog.Missing(t, "bpf", err.Error())
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// run lets a program make its calls while they are traced, and returns these.
func run(t *testing.T, tr *Tracer, p *testprog.Proc) (got []calls.Call) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tr.Run(ctx, func(cs []calls.Call) { got = append(got, cs...) }) }()
	p.Go()
	p.Done()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return got
}

// TestEngines compares both engines with programs that count their own calls and end them in every way: C++
// whose exceptions pass through a traced function, Rust whose panics do, Go whose stacks are copied during a call, and C
// behind a filter of system calls.
func TestEngines(t *testing.T) {
	testprog.Need(t, "gcc", "g++", "go", "ptrace")
	for _, c := range []struct {
		program, variant, args, pattern string
		tail                            bool
		cpu                             bool // few enough places, and exact there
	}{
		{"c/traced", "O2", "longjmp 2000", "jumping", false, true},
		{"c/traced", "O0", "deep 150", "deep", false, true},
		{"c/traced", "nopie", "recursion 2000", "recursing", false, true},
		{"c/traced", "O2", "tail 2000", "tailing", true, true},
		{"c/traced", "O2", "signal 1000", "interrupted", false, true},
		{"c/traced", "O2", "storm 1000", "probed", false, true},
		{"c/traced", "O2", "threads 2000", "probed", false, true},
		{"c/traced", "O2", "switch 2000", "choosing", false, false},
		{"c/traced", "O2", "fork 2000", "probed", false, true},
		{"c/traced", "O2", "seccomp 2000", "probed", false, true},
		{"cpp/throwing", "O2", "20000", "order::total", false, false},
		{"rust/traced", "release", "2000", "shop::total", false, true},
		{"rust/traced", "legacy", "2000", "traced::shop::total", false, true},
		{"go/traced", "default", "1000", "main.probed", false, true},
	} {
		for _, engine := range []string{CPU, Kernel} {
			if engine == CPU && !c.cpu {
				continue
			}
			t.Run(strings.Join([]string{c.variant, c.pattern, c.args, engine}, " "), func(t *testing.T) {
				p := testprog.Start(t, testprog.Build(t, c.program, c.variant), strings.Fields(c.args)...)
				p.Ready()
				tr := trace(t, p.PID, engine, c.pattern)
				got := run(t, tr, p)
				if strings.HasPrefix(c.args, "seccomp") && !filtered(t, p.PID) {
					t.Error("the program has no filter")
				}
				var all, returned, left int
				if _, err := fmt.Sscanf(p.Line("truth "), "truth %d %d %d", &all, &returned, &left); err != nil {
					t.Fatal(err)
				}
				n := map[calls.How]int{}
				for _, x := range got {
					if x.Before || x.Exit < x.Enter || x.Unsure || x.Ret == 0 {
						t.Fatalf("%+v", x)
					}
					n[x.How]++
				}
				ended := n[calls.Returned]
				if c.tail {
					ended = n[calls.Jumped]
				}
				// Where nothing came after a call that was left, it is open.
				if st := tr.Stats(); len(got) != all || ended != returned || n[calls.Left]+n[calls.Open] != left || st.Lost > 0 || st.Dropped > 0 || tr.Engine != engine {
					t.Errorf("%d calls (%v), the program made %d, %d returned, %d left; %d lost, engine %s", len(got), n, all, returned, left, st.Lost, tr.Engine)
				}
				if strings.HasPrefix(c.args, "storm") {
					t.Log(p.Line("at entry "))
				}
				// The program is as well as before.
				p.Go()
				p.LineAfter(1, "done")
				p.CloseInput()
				if s := p.Wait(); !s.Success() {
					t.Errorf("the program ended with %v", s)
				}
			})
		}
	}
}

// filtered reports whether a program has a filter of system calls.
func filtered(t *testing.T, pid int) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(status), "\nSeccomp:\t2\n")
}

// TestEndsBetweenCalls ends tracing while the program goes on to call: no call is said to have left without a return,
// and only the last one is open.
func TestEndsBetweenCalls(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	for _, engine := range []string{CPU, Kernel} {
		for range 5 { // the places are removed one after another, in 1 to 20 ms
			p := testprog.Start(t, testprog.Build(t, "c/traced", "O2"), "hot", "1")
			p.Ready()
			tr := trace(t, p.PID, engine, "probed")
			ctx, cancel := context.WithCancel(context.Background())
			n := map[calls.How]int{}
			err := tr.Run(ctx, func(cs []calls.Call) {
				for i := range cs {
					if !cs[i].Before {
						n[cs[i].How]++
					}
				}
				if n[calls.Returned] > 100 {
					cancel()
				}
			})
			cancel()
			if err != nil || n[calls.Left] > 0 || n[calls.Open] > 1 {
				t.Errorf("%s: %v, %v", engine, n, err)
			}
			p.CloseInput()
			p.Wait()
		}
	}
}

// TestKernelEngineLeavesNothing kills a process that has probes in another one: its code becomes what
// the file has, and it goes on.
func TestKernelEngineLeavesNothing(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	if pid := os.Getenv("SLIVER_PROBE_IN"); pid != "" {
		var n int
		fmt.Sscan(pid, &n)
		trace(t, n, Kernel, "probed", "choosing")
		fmt.Println("probes are in")
		testprog.UntilKilled()
	}
	path := testprog.Build(t, "c/traced", "nopie")
	p := testprog.Start(t, path, "switch", "1000")
	p.Ready()
	_ = trace(t, p.PID, Kernel, "probed").Close() // skips the test without rights
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestKernelEngineLeavesNothing$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("SLIVER_PROBE_IN=%d", p.PID))
	killed := testprog.StartCmd(t, cmd)
	killed.Line("probes are in")
	if sameText(t, p.PID, path) {
		t.Fatal("the probes are not in the code")
	}
	if err := syscall.Kill(killed.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-killed.Exited()
	for n := 0; !sameText(t, p.PID, path); n++ { // the kernel takes them out some moments later
		if n == 1_000_000 {
			t.Fatal("the code still is not the file's")
		}
	}
	p.Go()
	p.Done()
}

// sameText compares the code in memory with the file's, which is not position independent.
func sameText(t *testing.T, pid int, path string) bool {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	want, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	got := make([]byte, len(want))
	if _, err := mem.ReadAt(got, int64(text.Addr)); err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(got, want)
}

func TestFind(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	path := testprog.Build(t, "c/traced", "O2")
	p := testprog.Start(t, path, "return", "1")
	p.Ready()
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	pattern, err := calls.ParsePattern("traced.c:*ing")
	if err != nil {
		t.Fatal(err)
	}
	names, err := Find(proc, []calls.Pattern{pattern}, FindOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range names.Functions {
		got = append(got, f.Name)
		if f.Why != "" || filepath.Base(f.File) != "traced.c" || f.Line == 0 || len(f.Ranges) == 0 || f.Addr != f.Ranges[0][0] || f.Base() != filepath.Base(path) || f.Go {
			t.Errorf("%+v", f)
		}
	}
	if want := "jumping recursing tailing choosing"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}
