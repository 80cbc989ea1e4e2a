package view_test

import (
	"regexp"
	"testing"

	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

func all(s view.States) int64 {
	return s.Running + s.Runnable + s.Blocked + s.Disk + s.Fault + s.Stopped
}

// near fails unless got is within tol ms of want ms.
func near(t *testing.T, what string, got, want, tol int64) {
	t.Helper()
	if d := got - want*ms; d > tol*ms || -d > tol*ms {
		t.Errorf("%s: %d ms, want %d", what, got/ms, want)
	}
}

// sleeper returns a thread that uses 3 ms of CPU in each 10 ms and waits 1 ms for a CPU. It
// is found blocked three times as often as in uninterruptible sleep, and running far too
// often.
func sleeper(t *testing.T) *trace.Recording {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range int64(1000) {
		l := exporttest.Look{At: i * 10 * ms, CPU: i * 3 * ms, Delay: i * ms, Times: uint64(i), State: stack.StateRunning, Stack: "main:1 burn:1"}
		switch i % 8 {
		case 1, 3, 5:
			l.State, l.Call, l.Stack = stack.StateBlocked, 36, "main:1 nap:1"
		case 7:
			l.State, l.Call, l.Stack = stack.StateDisk, 1, "main:1 read:1"
		}
		th.Look(l)
	}
	return b.Finish(9990 * ms)
}

func TestStatesAreTheSchedulers(t *testing.T) {
	rec := sleeper(t)
	v := view.New(rec, view.Options{})
	s := v.States(&v.Threads[0])
	if s.Observed != 9990*ms || s.Running != 2997*ms || s.Runnable != 999*ms || all(s) != s.Observed {
		t.Errorf("%+v", s)
	}
	near(t, "blocked", s.Blocked, 4496, 30)
	near(t, "disk", s.Disk, 1498, 30)
	if s.Switches != 999 {
		t.Errorf("%d switches", s.Switches)
	}

	v = view.New(rec, view.Options{From: exporttest.Start + 1000*ms, To: exporttest.Start + 3005*ms})
	s = v.States(&v.Threads[0])
	if s.Observed != 2005*ms || all(s) != s.Observed {
		t.Errorf("in a range: %+v", s)
	}
	near(t, "running in a range", s.Running, 602, 3)
	near(t, "runnable in a range", s.Runnable, 200, 1)

	v = view.New(rec, view.Options{Side: view.OnCPU})
	if s = v.States(&v.Threads[0]); s.Observed != 2997*ms || s.Running != 2997*ms || all(s) != s.Observed {
		t.Errorf("on CPU: %+v", s)
	}
	v = view.New(rec, view.Options{Side: view.OffCPU})
	if s = v.States(&v.Threads[0]); s.Observed != 6993*ms || s.Running != 0 || all(s) != s.Observed {
		t.Errorf("off CPU: %+v", s)
	}
	v = view.New(rec, view.Options{Focus: regexp.MustCompile("^burn$")})
	if s = v.States(&v.Threads[0]); s.Running != 2997*ms || all(s) != s.Observed {
		t.Errorf("in focus: %+v", s)
	}
	v = view.New(rec, view.Options{Focus: regexp.MustCompile("^nap$")})
	if s = v.States(&v.Threads[0]); s.Running != 0 || s.Blocked == 0 || s.Disk != 0 || all(s) != s.Observed {
		t.Errorf("nap in focus: %+v", s)
	}
}

// Time with lost events, and after a thread's end, is not observed.
func TestStatesOfLosses(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range int64(100) {
		if i == 50 {
			th.Lose(490 * ms)
			th.Sync()
		}
		th.Look(exporttest.Look{At: i * 10 * ms, CPU: i * 10 * ms, Times: uint64(i), State: stack.StateRunning, Stack: "main:1 burn:1"})
	}
	th.End(1000*ms, stack.WhyGone)
	v := view.New(b.Finish(5000*ms), view.Options{})
	s := v.States(&v.Threads[0])
	if all(s) != s.Observed || s.Observed > 1000*ms || s.Observed < 400*ms {
		t.Errorf("%+v", s)
	}
}

// CPU time of a thread from before its first sample is in its sums, and no call has it.
func TestStatesBefore(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	th.Before(15 * ms)
	for i := range int64(11) {
		th.Look(exporttest.Look{At: i * 10 * ms, CPU: 15*ms + i*10*ms, Times: uint64(i), State: stack.StateRunning, Stack: "main:1 burn:1"})
	}
	rec := b.Finish(100 * ms)
	for _, c := range []struct {
		options      view.Options
		running, not int64
	}{
		{view.Options{}, 115 * ms, 15 * ms},
		{view.Options{Side: view.OnCPU}, 115 * ms, 15 * ms},
		{view.Options{Side: view.OffCPU}, 0, 0},
		{view.Options{From: exporttest.Start + 50*ms}, 50 * ms, 0},
		{view.Options{Focus: regexp.MustCompile("^burn$")}, 100 * ms, 0},
	} {
		v := view.New(rec, c.options)
		s := v.States(&v.Threads[0])
		if s.Running != c.running || all(s) != s.Observed {
			t.Errorf("%+v: %+v, want %d ns running", c.options, s, c.running)
		}
		if c.options.Side == view.OffCPU {
			continue
		}
		if cpu := tally.Of(v, &v.Threads[0], tally.NewTree()).Total().CPU; cpu != c.running {
			t.Errorf("%+v: %d ns in all stacks, want %d", c.options, cpu, c.running)
		}
		if not := v.Weights(&v.Threads[0]).Unseen(); c.options.Focus == nil && not != c.not {
			t.Errorf("%+v: %d ns not sampled, want %d", c.options, not, c.not)
		}
	}
}

// Recordings without the scheduler's account use only the samples.
func TestStatesWithoutAccount(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range int64(101) {
		l := exporttest.Look{At: i * 10 * ms, CPU: -1, State: stack.StateRunning, Stack: "main:1 burn:1"}
		if i >= 50 {
			l.State, l.Call, l.Stack = stack.StateBlocked, 36, "main:1 nap:1"
		}
		th.Look(l)
	}
	v := view.New(b.Finish(1000*ms), view.Options{})
	if s := v.States(&v.Threads[0]); s.Running != 500*ms || s.Blocked != 500*ms {
		t.Errorf("%+v", s)
	}
}

// A thread that one sample found running, and whose account shows no CPU time since then, waited for a CPU.
func TestStatesOfOneSample(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	th.Before(1 * ms)
	th.Look(exporttest.Look{At: 10 * ms, CPU: 1 * ms, State: stack.StateRunning, Stack: "main:1 burn:1"})
	th.End(190*ms, stack.WhyGone)
	v := view.New(b.Finish(200*ms), view.Options{})
	if s := v.States(&v.Threads[0]); s.Running != 1*ms || s.Runnable != 180*ms || all(s) != s.Observed {
		t.Errorf("%+v", s)
	}
}

// A thread without a switch ended no wait: it still waits for a CPU, and the kernel counts that at the end of the
// wait. With switches, samples may have missed short waits.
func TestStatesNeverWaited(t *testing.T) {
	for _, times := range []uint64{0, 2} {
		b := exporttest.New(t)
		th := b.Thread(1234, "main")
		for i := range int64(11) {
			th.Look(exporttest.Look{At: i * 10 * ms, CPU: i * 7 * ms, Delay: i * ms, Times: times * uint64(i), State: stack.StateRunning, Stack: "main:1 burn:1"})
		}
		v := view.New(b.Finish(100*ms), view.Options{})
		blocked := int64(0)
		if times > 0 {
			blocked = 20 * ms
		}
		if s := v.States(&v.Threads[0]); s.Running != 70*ms || s.Runnable != 30*ms-blocked || s.Blocked != blocked || all(s) != s.Observed {
			t.Errorf("%d switches: %+v", times*10, s)
		}
	}
}

// The states of any thread add up, also in ranges that cut its samples.
func TestStatesAddUp(t *testing.T) {
	rec := exporttest.Contended(t, 20_000, 3)
	for _, o := range []view.Options{{}, {From: exporttest.Start + 333*ms}, {To: exporttest.Start + 1234*ms}, {Side: view.OffCPU}, {Focus: regexp.MustCompile("^f1")}} {
		v := view.New(rec, o)
		for i := range v.Threads {
			s := v.States(&v.Threads[i])
			if all(s) != s.Observed || s.Observed <= 0 || s.Locks > s.Blocked || s.Locks <= 0 {
				t.Errorf("%+v: %+v", o, s)
			}
		}
	}
}
