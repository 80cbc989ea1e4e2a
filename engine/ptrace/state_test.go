package ptrace

//sliver:layer live unraced

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// TestTransitions follows a thread through each change that the table allows.
func TestTransitions(t *testing.T) {
	type step struct {
		c    change
		want state
	}
	seen := map[[2]int]bool{}
	for what, steps := range map[string][]step{
		"stops that take their samples":        {{took, free}, {took, free}, {shut, closed}},
		"a sample that comes late":             {{left, asked}, {arrived, free}, {left, asked}, {overdue, asked}, {arrived, free}},
		"its stopper was killed":               {{left, asked}, {released, free}, {released, free}},
		"its result comes after another stop":  {{left, asked}, {released, free}, {took, free}, {arrived, free}},
		"it ends while a stop is under way":    {{left, asked}, {ended, gone}, {ended, gone}, {shut, closed}},
		"it ends":                              {{ended, gone}, {shut, closed}},
		"its exec ends it, the result follows": {{ended, gone}, {arrived, gone}, {released, gone}},
		"it is kept, and stops later":          {{overdue, kept}, {overdue, kept}, {released, free}},
		"it is kept, and ends":                 {{overdue, kept}, {ended, gone}},
		"it is closed while it is asked":       {{left, asked}, {shut, closed}, {arrived, closed}, {released, closed}, {ended, closed}, {shut, closed}},
		"it is closed while it is kept":        {{overdue, kept}, {shut, closed}},
		"nothing changes where nothing may": {{left, asked}, {took, asked}, {left, asked}, {released, free}, {overdue, kept}, {took, kept}, {left, kept},
			{arrived, kept}, {ended, gone}, {took, gone}, {left, gone}, {overdue, gone}, {shut, closed}, {took, closed}, {left, closed}, {overdue, closed}},
	} {
		var th Thread
		for i, s := range steps {
			seen[[2]int{int(th.is), int(s.c)}] = true
			if th.to(s.c); th.is != s.want {
				t.Errorf("%s: state %d after step %d, want %d", what, th.is, i, s.want)
				break
			}
		}
	}
	for s := range states {
		for c := range changes {
			if !seen[[2]int{int(s), int(c)}] {
				t.Errorf("no thread in state %d had change %d", s, c)
			}
			if next[s][c] == never {
				continue
			}
			if s.held() && next[s][c] == free && c != arrived && c != released {
				t.Errorf("change %d frees a thread in state %d, which nothing has released", c, s)
			}
		}
	}
}

// program starts a program of package target's tests, and returns it and the number in its first line.
func program(t *testing.T, name string, args ...string) (*testprog.Proc, stack.TID) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	src := filepath.Join(testprog.Root(t), "target", "testdata", name+".c")
	if out, err := exec.Command(testprog.Tool(t, "gcc"), "-O1", "-pthread", "-o", path, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := testprog.Start(t, path, args...)
	tid, err := strconv.Atoi(p.Line(""))
	if err != nil {
		t.Fatal(err)
	}
	return p, stack.TID(tid)
}

// engineOf returns an engine for a process on the test's own goroutine, and one of its threads.
func engineOf(t *testing.T, prog *testprog.Proc, tid stack.TID) (*Engine, *Thread) {
	t.Helper()
	return engineFrom(t, prog, tid, nil)
}

func engineFrom(t *testing.T, prog *testprog.Proc, tid stack.TID, from *Tracers) (*Engine, *Thread) {
	t.Helper()
	testprog.Need(t, "ptrace")
	proc, err := target.Open(prog.PID)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	arch := rule.AMD64
	if runtime.GOARCH == "arm64" {
		arch = rule.ARM64
	}
	e, err := New(proc, unwind.NewSpace(arch, nil, nil), target.MaxStack, from)
	if err != nil {
		t.Fatal(err)
	}
	th, err := Open(proc, tid, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		th.Close()
		e.Close()
		runtime.UnlockOSThread()
		proc.Close()
	})
	return e, th
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

// untraced waits until no tracer holds the thread.
func untraced(t *testing.T, pid int, tid stack.TID) {
	t.Helper()
	until(t, "no tracer", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
		if err != nil {
			return true
		}
		st, err := target.ParseStatus(b)
		return err == nil && st.TracerPid == 0
	})
}

// inVfork waits until the thread sleeps where it cannot stop.
func inVfork(t *testing.T, th *Thread) {
	t.Helper()
	until(t, "vfork", func() bool { s, err := th.State(); return err == nil && s == stack.StateDisk })
}

// atOnce requests a stop that the engine does not wait for.
func atOnce(t *testing.T, e *Engine, th *Thread) {
	t.Helper()
	if err := e.Stop(th, &sampler.View{Deadline: sampler.AtOnce}); !errors.Is(err, sampler.ErrLater) || th.is != asked {
		t.Fatalf("%v, state %d", err, th.is)
	}
	e.Ask()
}

// arrival waits for a result.
func arrival(t *testing.T, e *Engine) (sampler.Thread, error) {
	t.Helper()
	var th sampler.Thread
	var err error
	until(t, "a result", func() bool {
		e.Reap()
		var ok bool
		th, err, ok = e.Arrived(&sampler.View{})
		return ok
	})
	return th, err
}

// TestRunningThread: a thread that runs is free after each stop, and asked until the result of a late one.
func TestRunningThread(t *testing.T) {
	prog, tid := program(t, "spin", "1")
	e, th := engineOf(t, prog, tid)
	for range 20 {
		v := &sampler.View{Deadline: int64(10 * time.Second)}
		if err := e.Stop(th, v); err != nil || th.is != free || v.Regs.PC == 0 {
			t.Fatalf("%v, state %d, registers %v", err, th.is, v.Regs)
		}
		atOnce(t, e, th)
		if got, err := arrival(t, e); got != th || err != nil || th.is != free {
			t.Fatalf("%v, %v, state %d", got, err, th.is)
		}
	}
	// A result that was not taken does not block further stops.
	atOnce(t, e, th)
	until(t, "release", func() bool { return e.Reap() == 0 })
	if err := e.Stop(th, &sampler.View{Deadline: int64(10 * time.Second)}); err != nil || th.is != free {
		t.Errorf("%v, state %d", err, th.is)
	}
	untraced(t, prog.PID, tid)
}

// TestAskedInVfork: a thread that cannot stop stays asked, whatever else is tried. It is free once it has
// stopped.
func TestAskedInVfork(t *testing.T) {
	prog, tid := program(t, "life", "vfork")
	e, th := engineOf(t, prog, tid)
	inVfork(t, th)
	atOnce(t, e, th)
	for range 3 {
		if err := e.Stop(th, &sampler.View{Deadline: int64(time.Millisecond)}); !errors.Is(err, sampler.ErrTimeout) || th.is != asked || e.Reap() != 1 {
			t.Fatalf("%v, state %d", err, th.is)
		}
	}
	prog.Say("go")
	if got, err := arrival(t, e); got != th || err != nil || th.is != free {
		t.Errorf("%v, %v, state %d", got, err, th.is)
	}
	prog.Line("back")
	untraced(t, prog.PID, tid)
}

// TestClosedInVfork: the result for a thread that was closed is dropped, and the thread runs on.
func TestClosedInVfork(t *testing.T) {
	prog, tid := program(t, "life", "vfork")
	e, th := engineOf(t, prog, tid)
	inVfork(t, th)
	atOnce(t, e, th)
	if th.Close(); th.is != closed || e.Reap() != 1 {
		t.Fatalf("state %d", th.is)
	}
	prog.Say("go")
	until(t, "release", func() bool { return e.Reap() == 0 })
	if got, err, ok := e.Arrived(&sampler.View{}); ok || len(e.coming) != 0 {
		t.Errorf("a result for a closed thread: %v, %v; %d are awaited", got, err, len(e.coming))
	}
	prog.Line("back")
	untraced(t, prog.PID, tid)
}

// TestKeptInVfork: a stop that needs the program's own code is not left to a stopper. The thread is kept
// until it stops, and free after that.
func TestKeptInVfork(t *testing.T) {
	prog, tid := program(t, "life", "vfork")
	e, th := engineOf(t, prog, tid)
	inVfork(t, th)
	stop := func(wait time.Duration) error {
		e.prepare(&sampler.View{Deadline: int64(wait)}, false)
		e.w.More = func() []stack.Span { return nil }
		return e.capture(th)
	}
	for range 2 {
		if err := stop(time.Millisecond); !errors.Is(err, sampler.ErrTimeout) || errors.Is(err, sampler.ErrLater) || th.is != kept {
			t.Fatalf("%v, state %d", err, th.is)
		}
	}
	prog.Say("go")
	until(t, "release", func() bool { return e.Reap() == 0 })
	prog.Line("back")
	if err := stop(10 * time.Second); err == nil && th.is != free || err != nil && (!errors.Is(err, sampler.ErrGone) || th.is != gone) {
		t.Errorf("%v, state %d", err, th.is) // the thread may have ended since
	}
	untraced(t, prog.PID, tid)
}

// TestKilledInVfork: a thread that is killed while a stop of it is under way is gone.
func TestKilledInVfork(t *testing.T) {
	prog, tid := program(t, "life", "vfork")
	e, th := engineOf(t, prog, tid)
	inVfork(t, th)
	atOnce(t, e, th)
	prog.Kill()
	until(t, "release", func() bool { return e.Reap() == 0 })
	// A stopper that has waited for the deadline reports no death.
	if got, err, ok := e.Arrived(&sampler.View{}); ok && (got != th || !errors.Is(err, sampler.ErrGone) || th.is != gone) {
		t.Errorf("%v, %v, state %d", got, err, th.is)
	}
	if err := e.Stop(th, &sampler.View{Deadline: int64(time.Millisecond)}); !errors.Is(err, sampler.ErrGone) || th.is != gone {
		t.Errorf("%v, state %d", err, th.is)
	}
}
