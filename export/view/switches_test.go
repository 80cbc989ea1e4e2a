package view_test

import (
	"testing"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// TestExactStates: where context switches cover the time, states have their times and not those of the samples.
func TestExactStates(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	th := b.Thread(1235, "worker")
	for at := int64(0); at <= 100*ms; at += 10 * ms { // the samples never meet a wait
		th.Look(exporttest.Look{At: at, CPU: at, State: stack.StateRunning, Stack: "main:1"})
	}
	for at := int64(2 * ms); at < 100*ms; at += 10 * ms {
		b.Off(1235, at, at+3*ms, at+4*ms, trace.Waker{}, 0)
	}
	b.Off(1235, 200*ms, 201*ms, 202*ms, trace.Waker{}, 0)
	v := view.New(b.Finish(100*ms), view.Options{})
	got := v.States(&v.Threads[0])
	want := view.States{Observed: 100 * ms, Running: 2*ms + 58*ms, Runnable: 10 * ms, Blocked: 30 * ms}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestWakerHolds: the thread that the kernel saw wake a waiter held the lock, if the lock stores no owner.
func TestWakerHolds(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	th := b.Thread(1235, "waiter")
	b.Thread(1236, "holder").Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1"})
	th.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1"})
	th.Look(exporttest.Look{At: 20 * ms, State: stack.StateBlocked, Call: 203, Stack: "main:1 lock:2"})
	th.Event(20*ms, event.Wait, b.Wait(trace.Wait{Call: "futex", Kind: "lock", Lock: "mutex"}))
	th.Event(20*ms, event.Lock, 0x1000)
	th.Look(exporttest.Look{At: 40 * ms, State: stack.StateRunning, Stack: "main:1"})
	b.Off(1235, 5*ms, 6*ms, 7*ms, trace.Waker{}, 0)
	b.Off(1235, 15*ms, 35*ms, 36*ms, trace.Waker{TID: 1236, PID: 1234}, 0)
	b.Off(1235, 200*ms, 201*ms, 202*ms, trace.Waker{}, 0)
	v := view.New(b.Finish(50*ms), view.Options{})
	c := contend.Of(v)
	if len(c.Waits) != 1 {
		t.Fatalf("%d waits", len(c.Waits))
	}
	if w := &c.Waits[0]; w.Begin != exporttest.Start+15*ms || w.End != exporttest.Start+35*ms || w.Edge != 0 || w.Holder != 1236 || w.By != event.KnownByWaker {
		t.Errorf("%+v", w)
	}
}
