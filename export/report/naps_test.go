package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// TestNaps: waits between copies of a clock, which no sample found, count for the function that waits, in the report and
// in sums of stacks, and how long the longest of them was is not claimed.
func TestNaps(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	at, cpu := int64(0), int64(0)
	for range 20 { // each 40 ms, of which it runs for 8
		th.Look(exporttest.Look{At: at, CPU: cpu, State: stack.StateBlocked, Way: stack.WayRead, Call: 1, Stack: "main load:2"})
		for i := range int64(4) {
			th.Look(exporttest.Look{At: at + (1+10*i)*ms, CPU: cpu, State: stack.StateRunning, Way: stack.WayClock, Stack: "main work:3"})
		}
		at, cpu = at+40*ms, cpu+8*ms
	}
	th.Look(exporttest.Look{At: at, CPU: cpu, State: stack.StateBlocked, Way: stack.WayRead, Call: 1, Stack: "main load:2"})
	rec := b.Finish(at)
	v := view.New(rec, view.Options{})
	x := tally.Of(v, &v.Threads[0], tally.NewTree()).Total()
	if off := x.Off - 640*ms; off > 5*ms || off < -5*ms {
		t.Errorf("off the CPUs for %d ms of %d, want 640 of 800", x.Off/ms, x.Wall/ms)
	}
	r := report.Of(rec, view.Options{}, 0)
	if len(r.Functions) != 1 || r.Functions[0].Name != "load" || r.Functions[0].Total < 635*ms || r.Functions[0].Waits < 40 {
		t.Fatalf("%+v", r.Functions)
	}
	// A sample found waits from the fourth copy, at 31 ms, to the first, at 41.
	for _, longest := range []int64{r.Functions[0].Longest, r.Calls[0].Longest, r.Longest[0].Duration} {
		if longest > 10*ms {
			t.Errorf("a wait of %d ms", longest/ms)
		}
	}
}

// TestNapsOfLock: the table of locks does not claim the length of such waits, either.
func TestNapsOfLock(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	at, cpu := int64(0), int64(0)
	for range 20 { // each 80 ms, of which it runs for 12
		th.Look(exporttest.Look{At: at, CPU: cpu, State: stack.StateBlocked, Way: stack.WayRead, Call: 202, Stack: "main load:2"})
		th.Event(at, event.Lock, 0x1000)
		for i := range int64(4) {
			th.Look(exporttest.Look{At: at + (1+20*i)*ms, CPU: cpu + i*ms, State: stack.StateRunning, Way: stack.WayClock, Stack: "main work:3"})
		}
		at, cpu = at+80*ms, cpu+12*ms
	}
	r := report.Of(b.Finish(at), view.Options{}, 0)
	if len(r.Locks) != 1 || len(r.Functions) != 1 || r.Locks[0].Waits < 30 || r.Locks[0].Longest != r.Functions[0].Longest {
		t.Errorf("%+v and %+v", r.Locks, r.Functions)
	}
}

// TestLongestSeen: of two waits that lasted equally long for all that is known, the one that more samples found comes first, and the
// other one, of a stretch with few samples, does not seem to be certain.
func TestLongestSeen(t *testing.T) {
	t.Run("found as it began", func(t *testing.T) { testLongestSeen(t, 22, 140) })
	t.Run("began before it was found", func(t *testing.T) { testLongestSeen(t, 14, 14) })
}

// testLongestSeen is TestLongestSeen; the thread has used ran ms of CPU time when its second wait is found, and all ms at the end.
func testLongestSeen(t *testing.T, ran, all int64) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	look := func(at, cpu int64, l exporttest.Look) {
		l.At, l.CPU = at*ms, cpu*ms
		th.Look(l)
	}
	run := exporttest.Look{State: stack.StateRunning, Way: stack.WayStop, Stack: "main work:3"}
	nap := exporttest.Look{State: stack.StateBlocked, Way: stack.WayRead, Call: 1, Stack: "main nap:2"}
	look(0, 0, run)
	look(10, 10, nap)
	for at := int64(20); at <= 90; at += 10 {
		look(at, 10, exporttest.Look{State: stack.StateBlocked, Way: stack.WayUnrun, Call: 1})
	}
	look(100, 12, run)
	look(110, ran, nap)
	look(230, all, run)
	r := report.Of(b.Finish(230*ms), view.Options{}, 0)
	if len(r.Longest) != 2 || r.Longest[0].Begin >= r.Longest[1].Begin {
		t.Fatalf("%+v", r.Longest)
	}
	if r.Longest[0].Samples != 9 || r.Longest[1].Samples != 1 {
		t.Errorf("%+v", r.Longest)
	}
	var out bytes.Buffer
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), ", seen once, blocked"); n != 1 {
		t.Errorf("%d of 2 waits are said to be seen once:\n%s", n, out.String())
	}
}
