package report_test

import (
	"testing"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
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
