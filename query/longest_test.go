package query

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// TestLongest: waits that no sample found, whose time in all is known alone, are not the longest, and rows say how many
// samples found a wait.
func TestLongest(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	lock := b.Wait(trace.Wait{Call: "futex", Args: "mutex cache_lock", Kind: "lock", Lock: "mutex", KnownBy: "layout", Symbol: "cache_lock"})
	th := b.Thread(1234, "main")
	at, cpu := int64(0), int64(0)
	for range 20 { // each 80 ms, of which it runs for 12; copies of its work are in between
		th.Look(exporttest.Look{At: at, CPU: cpu, State: stack.StateBlocked, Way: stack.WayRead, Call: 202, Stack: "main load:2"})
		th.Event(at, event.Wait, lock)
		th.Event(at, event.Lock, 0x1000)
		for i := range int64(4) {
			th.Look(exporttest.Look{At: at + (1+20*i)*ms, CPU: cpu + i*ms, State: stack.StateRunning, Way: stack.WayClock, Stack: "main work:3"})
		}
		at, cpu = at+80*ms, cpu+12*ms
	}
	rec := b.Finish(at)
	for _, c := range []struct{ question, want string }{
		{"select count(*) >= 10, min(dur) > 20000000 from waits where samples = 0", "1,1\n"},
		{"select count(*), max(dur) < 20000000 from waits where samples = 1", "20,1\n"},
		{"select count(*) from waits where samples is null or samples > 1", "0\n"},
		{"select h.longest = (select max(dur) from waits where samples = 1) from hot_waits h", "1\n"},
		{"select sum(samples) from locks", "20\n"},
		{"select h.longest = (select max(dur) from locks where samples = 1) from hot_locks h", "1\n"},
	} {
		got := must(t, rec, view.Options{}, "csv", c.question)
		if _, row, _ := strings.Cut(got, "\n"); row != c.want {
			t.Errorf("%s: %s", c.question, got)
		}
	}
}

// TestDescribedAgain: a wait whose description changes while it lasts is one wait, with the newest description, as in
// reports and on timelines.
func TestDescribedAgain(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	first := b.Wait(trace.Wait{Call: "futex", Kind: "lock", Lock: "mutex", KnownBy: "likely"})
	second := b.Wait(trace.Wait{Call: "futex", Kind: "lock", Lock: "mutex", KnownBy: "layout", Symbol: "cache_lock"})
	th := b.Thread(1234, "main")
	th.Look(exporttest.Look{State: stack.StateRunning, Stack: "main load:2"})
	th.Look(exporttest.Look{At: 10 * ms, State: stack.StateBlocked, Call: 202, Stack: "main load:2"})
	for _, x := range []struct {
		at   int64
		wait uint64
	}{{10 * ms, first}, {30 * ms, second}} {
		th.Event(x.at, event.Wait, x.wait)
		th.Event(x.at, event.Lock, 0x1000)
		th.Event(x.at, event.Holder, event.HolderOf(7, event.KnownByWord))
	}
	th.Look(exporttest.Look{At: 60 * ms, State: stack.StateRunning, Stack: "main load:3"})
	rec := b.Finish(70 * ms)
	for _, c := range []struct{ question, want string }{
		{"select count(*), min(ts)/1000000, max(dur)/1000000, min(symbol) from waits", "1,10,50,cache_lock\n"},
		{"select count(*), min(ts)/1000000, max(dur)/1000000, min(symbol), min(holder) from locks", "1,10,50,cache_lock,7\n"},
	} {
		got := must(t, rec, view.Options{}, "csv", c.question)
		if _, row, _ := strings.Cut(got, "\n"); row != c.want {
			t.Errorf("%s: %s", c.question, got)
		}
	}
}
