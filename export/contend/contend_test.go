package contend_test

import (
	"fmt"
	"testing"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

const ms = exporttest.Ms

// A lock changes hands while threads wait. Each wait names the lock's last observed
// holder, whichever waiter observed it. Locks of the same name stay separate.
func TestHandOver(t *testing.T) {
	b := exporttest.New(t)
	m := b.Wait(trace.Wait{Call: "futex", Kind: "lock", Lock: "mutex", KnownBy: "layout", Symbol: "m"})
	main := b.Thread(1, "main")
	one, two := b.Thread(2, "one"), b.Thread(3, "two")
	wait := func(th *exporttest.Thread, at int64, lock uint64, holder int) {
		th.Look(exporttest.Look{At: at, State: stack.StateBlocked, Call: 203, Stack: "start:1 take:1 pthread_mutex_lock:1"})
		th.Event(at, event.Wait, m)
		th.Event(at, event.Lock, lock)
		th.Event(at, event.Holder, event.HolderOf(stack.TID(holder), event.KnownByWord))
	}
	run := func(th *exporttest.Thread, at int64) {
		th.Look(exporttest.Look{At: at, State: stack.StateRunning, Stack: "start:1 work:1"})
	}
	run(main, 0)
	run(main, 90*ms)
	wait(one, 10*ms, 0x8000, 1)
	wait(two, 20*ms, 0x8000, 1)
	run(one, 40*ms)
	two.Event(45*ms, event.Holder, event.HolderOf(2, event.KnownByWord))
	run(two, 60*ms)
	wait(one, 70*ms, 0x9000, 1) // a second lock named m
	one.Look(exporttest.Look{At: 90 * ms, State: stack.StateBlocked, Call: 203, Way: stack.WayUnrun})
	c := contend.Of(view.New(b.Finish(100*ms), view.Options{}))
	got := ""
	for _, w := range c.Waits {
		got += fmt.Sprintf("%d waits %d..%d for %s, ended by %d, cut %v; ", w.Thread, (w.Begin-exporttest.Start)/ms, (w.End-exporttest.Start)/ms, c.Locks[w.Lock].Name, w.Holder, w.Cut)
	}
	want := "1 waits 10..40 for mutex m at 0x8000, ended by 1, cut false; 1 waits 70..90 for mutex m at 0x9000, ended by 1, cut true; " +
		"2 waits 20..60 for mutex m at 0x8000, ended by 2, cut false; "
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got = ""
	c.Locks[0].History(c, func(h *contend.Held) {
		got += fmt.Sprintf("%d: %d wait, %d holds; ", (h.Begin-exporttest.Start)/ms, h.Waiting, h.TID)
	})
	if want := "10: 1 wait, 1 holds; 20: 2 wait, 1 holds; 40: 1 wait, 1 holds; 45: 1 wait, 2 holds; 60: 0 wait, 0 holds; "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A condition variable has no holder, and none is inferred.
func TestNobodyIsMadeUp(t *testing.T) {
	b := exporttest.New(t)
	cond := b.Wait(trace.Wait{Call: "futex", Kind: "lock", Lock: "condition variable", KnownBy: "function", NoHolder: "a condition variable has no holder"})
	one, two := b.Thread(1, "one"), b.Thread(2, "two")
	one.Look(exporttest.Look{At: 0, State: stack.StateBlocked, Call: 203, Stack: "take:1 pthread_cond_wait:1"})
	one.Event(0, event.Wait, cond)
	one.Event(0, event.Lock, 0x8000)
	one.Look(exporttest.Look{At: 50 * ms, State: stack.StateRunning, Stack: "rest:1"})
	two.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "take:2"})
	two.Look(exporttest.Look{At: 50 * ms, State: stack.StateRunning, Stack: "rest:1"})
	c := contend.Of(view.New(b.Finish(60*ms), view.Options{}))
	if w := c.Waits[0]; len(c.Waits) != 1 || w.Holder != 0 || w.Why != "a condition variable has no holder" || c.Locks[0].Excludes {
		t.Errorf("%+v of %+v", w, c.Locks)
	}
}

func FuzzOf(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		v := view.New(exporttest.Raw(t, data), view.Options{})
		c := contend.Of(v)
		sums := make([]int64, len(c.Waits))
		for _, h := range c.Holds(v) {
			if sums[h.Wait] += int64(h.End - h.Begin); h.End < h.Begin {
				t.Fatalf("%+v", h)
			}
		}
		for i := range c.Waits {
			if w := &c.Waits[i]; w.Holder != 0 && sums[i] != int64(w.End-w.Begin) {
				t.Fatalf("parts of %d ns: %+v", sums[i], w)
			}
		}
		for i := range c.Locks {
			waiting := 0
			c.Locks[i].History(c, func(h *contend.Held) { waiting = h.Waiting })
			if waiting != 0 {
				t.Fatalf("%d still wait at the end", waiting)
			}
		}
	})
}
