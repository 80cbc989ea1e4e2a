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

// A wait during which several threads held the lock one after the other is divided among them, whichever waiter
// observed them.
func TestHolds(t *testing.T) {
	b := exporttest.New(t)
	m := b.Wait(trace.Wait{Call: "futex", Kind: "lock", Lock: "mutex", KnownBy: "layout", Symbol: "m"})
	b.Thread(1, "main")
	one, two, three := b.Thread(2, "one"), b.Thread(3, "two"), b.Thread(4, "three")
	wait := func(th *exporttest.Thread, at int64, holder int) {
		th.Look(exporttest.Look{At: at * ms, State: stack.StateBlocked, Call: 203, Stack: "start:1 take:1 pthread_mutex_lock:1"})
		th.Event(at*ms, event.Wait, m)
		th.Event(at*ms, event.Lock, 0x8000)
		th.Event(at*ms, event.Holder, event.HolderOf(stack.TID(holder), event.KnownByWord))
	}
	sees := func(th *exporttest.Thread, at int64, holder int) {
		th.Event(at*ms, event.Holder, event.HolderOf(stack.TID(holder), event.KnownByWord))
	}
	run := func(th *exporttest.Thread, at int64) {
		th.Look(exporttest.Look{At: at * ms, State: stack.StateRunning, Stack: "start:1 work:1"})
	}
	wait(one, 10, 1)
	wait(two, 20, 1)
	wait(three, 30, 1)
	run(one, 40)
	sees(two, 42, 2)
	sees(three, 44, 2)
	sees(two, 50, 0) // between two holders
	run(two, 52)
	sees(three, 54, 3)
	sees(three, 58, 1) // again
	sees(three, 59, 4) // taken by the waiter
	run(three, 60)
	wait(one, 70, 0) // an unknown holder
	run(one, 80)
	v := view.New(b.Finish(100*ms), view.Options{})
	c := contend.Of(v)
	got := ""
	for _, h := range c.Holds(v) {
		w := &c.Waits[h.Wait]
		got += fmt.Sprintf("%d waits for %d from %d to %d; ", v.Threads[w.Thread].TID, h.TID, (h.Begin-exporttest.Start)/ms, (h.End-exporttest.Start)/ms)
		if h.At < h.Begin || h.At > h.End {
			t.Errorf("%+v", h)
		}
	}
	want := "2 waits for 1 from 10 to 40; 3 waits for 1 from 20 to 42; 3 waits for 2 from 42 to 52; " +
		"4 waits for 1 from 30 to 42; 4 waits for 2 from 42 to 54; 4 waits for 3 from 54 to 58; 4 waits for 1 from 58 to 60; "
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
