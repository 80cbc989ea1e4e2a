package exact

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/engine/breakpoint"
	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// lateTracer traces a program's functions of which it has none yet.
type lateTracer struct {
	*Tracer
	added chan string // names of modules
	done  chan error
	stop  context.CancelFunc
	got   []calls.Call
}

func traceLater(t *testing.T, pid int, engine, pattern string) *lateTracer {
	t.Helper()
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	x, err := calls.ParsePattern(pattern)
	if err != nil {
		t.Fatal(err)
	}
	names, err := Find(p, []calls.Pattern{x}, FindOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l := &lateTracer{added: make(chan string, 100), done: make(chan error, 1)}
	l.Tracer, err = Start(p, names.Functions, Options{Engine: engine, Later: names, Added: func(fns []Function) {
		for i := range fns {
			l.added <- filepath.Base(fns[i].Module)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var ctx context.Context
	ctx, l.stop = context.WithCancel(t.Context())
	go func() { l.done <- l.Run(ctx, func(cs []calls.Call) { l.got = append(l.got, cs...) }) }()
	return l
}

// end ends tracing, and returns the number of calls by function.
func (l *lateTracer) end(t *testing.T) map[string]int {
	t.Helper()
	l.stop()
	if err := <-l.done; err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for i := range l.got {
		c := &l.got[i]
		if c.How == calls.Returned && !c.Before && (c.Exit < c.Enter || c.Unsure || c.Ret == 0) {
			t.Errorf("%+v", c)
		}
		n[filepath.Base(l.Functions[c.Fn].Module)]++
	}
	return n
}

// tried skips the test where an engine is missing.
func tried(t *testing.T, engine string) {
	t.Helper()
	kernelWhy, cpuWhy := Try(os.Getpid())
	switch {
	case engine == Kernel && kernel.Refused(kernelWhy):
		testprog.Missing(t, "bpf", kernelWhy.Error())
	case engine == CPU && (errors.Is(cpuWhy, breakpoint.ErrNone) || errors.Is(cpuWhy, breakpoint.ErrRights)):
		testprog.Missing(t, "perf", cpuWhy.Error())
	}
}

func copied(t *testing.T, from, name string) string {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// Functions of libraries that the program loads while it is traced: each call is seen, and the breakpoints of a
// library that it has unloaded serve the next.
func TestLaterLibraries(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	const n = 300
	for _, engine := range []string{CPU, Kernel} {
		t.Run(engine, func(t *testing.T) {
			tried(t, engine)
			lib := testprog.Build(t, "c/laterlib", "O2")
			libs := []string{copied(t, lib, "one.so"), copied(t, lib, "two.so"), copied(t, lib, "three.so")}
			p := testprog.Start(t, testprog.Build(t, "c/latecalls", "O2"), append([]string{"300"}, libs...)...)
			p.Ready()
			l := traceLater(t, p.PID, engine, "later")
			for _, lib := range libs {
				p.Say("load")
				p.Line("loaded")
				if got := <-l.added; got != filepath.Base(lib) {
					t.Fatalf("added %q, want %s", got, lib)
				}
				p.Say("call")
				p.Line("called")
				p.Say("unload")
			}
			p.Line("truth 900")
			got := l.end(t)
			for _, lib := range libs {
				if got[filepath.Base(lib)] != n {
					t.Errorf("%v calls, want %d of each", got, n)
				}
			}
		})
	}
}

// A program that becomes another: the functions of the new one are traced, also if it is the same file elsewhere.
func TestLaterExec(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	for _, engine := range []string{CPU, Kernel} {
		t.Run(engine, func(t *testing.T) {
			tried(t, engine)
			program := testprog.Build(t, "c/latecalls", "O2")
			p := testprog.Start(t, program, "1", "="+program, "7", testprog.Build(t, "c/laterlib", "O2"))
			p.Ready()
			l := traceLater(t, p.PID, engine, "wait_for_line")
			p.Say("exec")
			if got := <-l.added; got != filepath.Base(program) {
				t.Fatalf("added %q", got)
			}
			p.Say("load")
			p.Line("loaded")
			p.Say("call")
			p.Line("called")
			p.Say("unload")
			p.Line("truth 7")
			// The call before tracing began, which the other program ended; one that may have begun before it was
			// traced; and two.
			l.end(t)
			whole := 0
			for _, c := range l.got {
				if c.How == calls.Returned && !c.Before {
					whole++
				}
			}
			if fns := l.Known(); len(fns) != 1 || len(fns[0].Ranges) != 2 || whole < 2 || whole > 3 {
				t.Errorf("%d functions, %d whole calls: %+v", len(fns), whole, l.got)
			}
		})
	}
}

// A function for which no breakpoint is left is not traced, and the reason is said.
func TestLaterRefused(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	tried(t, CPU)
	p := testprog.Start(t, testprog.Build(t, "c/latecalls", "O2"), "1", testprog.Build(t, "c/laterlib", "O2"))
	p.Ready()
	l := traceLater(t, p.PID, CPU, "/^(later|wait_for_line)$/") // two places each
	refused := make(chan []string, 1)
	l.o.Added = func(fns []Function) { // by the goroutine that uses the engine
		_, problems := l.add([]Function{{Name: "another", Module: "x.so", Code: fns[0].Code}})
		refused <- problems
	}
	p.Say("load")
	p.Line("loaded")
	if why := <-refused; len(why) != 1 || !strings.Contains(why[0], "another: set breakpoints: 6 addresses; at most 4") {
		t.Errorf("problems %q", why)
	}
	for range 2 {
		l.Tracer.added(nil, []string{"another"})
	}
	if u := l.Stats().Untraced; len(u) != 1 {
		t.Errorf("reasons %q", u)
	}
	p.Say("call")
	p.Line("called")
	p.Say("unload")
	p.Line("truth 1")
	if got := l.end(t); len(l.Functions) != 2 || len(l.Stats().Funcs) != 2 || got["laterlib.so"] != 1 {
		t.Errorf("calls %v of %d functions", got, len(l.Functions))
	}
}
