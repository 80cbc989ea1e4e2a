package view_test

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

// The two sides of a thread's time add up to the whole, and every slice has a length.
func TestSidesAddUp(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	run, wait := stack.StateRunning, stack.StateBlocked
	th.Look(exporttest.Look{At: 0, State: run, Stack: "main:1 work:1"})
	th.Look(exporttest.Look{At: 10 * ms, CPU: 10 * ms, State: wait, Call: 1, Stack: "main:2 read:1"})
	th.Look(exporttest.Look{At: 20 * ms, CPU: 10 * ms, State: wait, Call: 1, Way: stack.WayUnrun})
	th.Look(exporttest.Look{At: 30 * ms, CPU: 10 * ms, State: run, Stack: "main:2 work:3"})
	th.Look(exporttest.Look{At: 40 * ms, CPU: 20 * ms, State: stack.StateRunnable, Stack: "main:2 work:3"})
	th.Look(exporttest.Look{At: 55 * ms, CPU: 20 * ms, Delay: 15 * ms, State: run, Stack: "main:2 work:4"})
	th.Look(exporttest.Look{At: 60 * ms, CPU: 25 * ms, Delay: 15 * ms, State: run, Stack: "main:2 work:4"})
	rec := b.Finish(60 * ms)
	for side, want := range map[view.Side]string{
		view.OffCPU: "10+main 10+read 30-read 30-main 40+main 40+work 55-work 55-main",
		view.OnCPU:  "0+main 0+work 10-work 10-main 30+main 30+work 40-work 40-main 55+main 55+work 60-work 60-main",
	} {
		if got := onlySlices(replay(t, rec, view.Options{Side: side}, false)); got != want {
			t.Errorf("%v:\n%s, want\n%s", side, got, want)
		}
	}
	sum := func(side view.Side) tally.Values {
		v := view.New(rec, view.Options{Side: side})
		return tally.Of(v, &v.Threads[0], tally.NewTree()).Total()
	}
	on, off, all := sum(view.OnCPU), sum(view.OffCPU), sum(view.BothSides)
	if on.Wall != 25*ms || off.Wall != 35*ms || off.Off != 35*ms || on.Off != 0 || on.CPU != 25*ms || off.CPU != 0 || on.Samples+off.Samples != all.Samples || all.Wall != 60*ms {
		t.Errorf("on %+v, off %+v, all %+v", on, off, all)
	}
}

// With HoldsGIL, the time in which a thread held the lock is shown, whatever its state is.
func TestHoldsGIL(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	run, wait := stack.StateRunning, stack.StateBlocked
	th.Look(exporttest.Look{At: 0, State: run, GIL: true, Stack: "main:1 work:1"})
	th.Look(exporttest.Look{At: 10 * ms, CPU: 10 * ms, State: run, Stack: "main:1 hash:1"})
	th.Look(exporttest.Look{At: 20 * ms, CPU: 20 * ms, State: wait, Call: 1, GIL: true, Stack: "main:2 read:1"})
	th.Look(exporttest.Look{At: 30 * ms, CPU: 20 * ms, State: wait, Call: 1, GIL: true, Way: stack.WayUnrun})
	th.Look(exporttest.Look{At: 40 * ms, CPU: 20 * ms, State: wait, Call: 1, Stack: "main:2 read:1"})
	th.Look(exporttest.Look{At: 60 * ms, CPU: 20 * ms, State: run, GIL: true, Stack: "main:2 work:4"})
	rec := b.Finish(70 * ms)
	o := view.Options{Side: view.HoldsGIL}
	if got, want := onlySlices(replay(t, rec, o, false)), "0+main 0+work 10-work 10-main 20+main 20+read 40-read 40-main"; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	v := view.New(rec, o)
	if x := v.States(&v.Threads[0]); x.Observed != 30*ms || x.Running != 10*ms || x.Blocked != 20*ms {
		t.Errorf("states %+v", x)
	}
	if x := tally.Of(v, &v.Threads[0], tally.NewTree()).Total(); x.Wall != 30*ms || x.Samples != 4 {
		t.Errorf("values %+v", x)
	}
}

// onlySlices removes events other than slices from a log.
func onlySlices(log string) string {
	var out []string
	for _, w := range strings.Fields(log) {
		if strings.ContainsAny(w, "+-") {
			out = append(out, w)
		}
	}
	return strings.Join(out, " ")
}
