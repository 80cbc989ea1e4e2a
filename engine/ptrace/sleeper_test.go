package ptrace

import (
	"runtime"
	"testing"
	"time"

	"github.com/sliverprof/sliver/sampler"
)

// TestTracersReused: an Engine of a Sleeper's OS thread uses the Tracer of the one before, with its stopper, and
// accounts for its own stops alone. A Tracer that still has a thread is not used again.
func TestTracersReused(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	x := NewTracers()
	s, err := x.Sleeper()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stops := func(e *Engine, th *Thread) {
		t.Helper()
		for range 20 {
			v := &sampler.View{Deadline: int64(10 * time.Second)}
			if err := e.Stop(th, v); err != nil || v.Regs.PC == 0 {
				t.Fatalf("%v, registers %v", err, v.Regs)
			}
		}
	}
	first, tid := program(t, "spin", "1")
	e, th := engineFrom(t, first, tid, x)
	stops(e, th)
	atOnce(t, e, th) // its result is not taken
	until(t, "release", func() bool { return e.Reap() == 0 })
	tr := e.Tracer
	e.Close()
	used := e.CPU()
	if used <= 0 {
		t.Errorf("stops have used %d ns of CPU time", used)
	}
	second, tid2 := program(t, "spin", "1")
	e2, th2 := engineFrom(t, second, tid2, x)
	if e2.Tracer != tr || e2.CPU() != 0 {
		t.Errorf("another Tracer, or not its own CPU time: %d", e2.CPU())
	}
	if _, _, ok := e2.Arrived(&sampler.View{}); ok {
		t.Error("a result of the Engine before arrived")
	}
	stops(e2, th2)
	if e.CPU() != used || e2.CPU() <= 0 {
		t.Errorf("CPU time of the first: %d, then %d; of the second: %d", used, e.CPU(), e2.CPU())
	}
	untraced(t, first.PID, tid)

	// A thread that cannot stop is left to its Tracer.
	third, tid3 := program(t, "life", "vfork")
	e3, th3 := engineFrom(t, third, tid3, x)
	inVfork(t, th3)
	atOnce(t, e3, th3)
	if x.keep(e3.Tracer, e3.w) {
		t.Error("a Tracer with a thread that has not stopped is kept")
	}
	s.Close()
	if x.keep(e2.Tracer, e2.w) {
		t.Error("a Tracer is kept for an OS thread without a Sleeper")
	}
}
