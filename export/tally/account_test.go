package tally_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// byFunc returns the CPU time by leaf function, in ns.
func byFunc(v *view.View) map[string]int64 {
	c := tally.ByCalls(v, false, func(x *tally.Values) int64 { return x.CPU })
	out := map[string]int64{}
	for n, ns := range c.Self {
		if _, l := c.Node(int32(n)); ns != 0 {
			name, word := c.Word(l)
			if !word {
				name = v.FuncName(int(l))
			}
			out[name] += ns
		}
	}
	return out
}

// A thread works in two functions and sleeps. Its CPU time is split between the two like its samples,
// the sleep gets none, and the sum is the scheduler's.
func TestCPUOfSleeper(t *testing.T) {
	const ticks = 4000
	r := rand.New(rand.NewPCG(1, 2))
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	cpu, total := int64(0), int64(0)
	for i := range int64(ticks) {
		look := exporttest.Look{At: i * 10 * ms, CPU: cpu, Stack: "main:1 nap:1", State: stack.StateBlocked, Call: 36, Way: stack.WayRead, Times: uint64(i)}
		switch x := r.IntN(10); {
		case x == 0:
			look.Stack, look.State, look.Way = "main:1 write:1", stack.StateRunning, stack.WayStop
		case x < 4:
			look.Stack, look.State, look.Way = "main:1 burn:1", stack.StateRunning, stack.WayStop
		}
		th.Look(look)
		total = cpu
		cpu += 3*ms + r.Int64N(2*ms) // whatever state the tick observes
	}
	got := byFunc(view.New(b.Finish(ticks*10*ms), view.Options{}))
	if got["nap"] != 0 || len(got) != 2 {
		t.Errorf("CPU time %v", got)
	}
	if sum := got["burn"] + got["write"]; sum != total {
		t.Errorf("%d ns in all, the scheduler counted %d", sum, total)
	}
	// 1,600 samples on a CPU: a share has a standard deviation of 1.1 points.
	if share := float64(got["burn"]) / float64(total); math.Abs(share-.75) > .05 {
		t.Errorf("burn has %.3f of the CPU time, truth 0.75", share)
	}
}

// CPU time without a running sample is shown as not sampled, and not added to another stack.
func TestNotSampled(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range int64(2000) { // 1 ms of CPU time in each tick of 10 ms, in bursts between the ticks
		th.Look(exporttest.Look{At: i * 10 * ms, CPU: i * ms, State: stack.StateBlocked, Call: 36, Way: stack.WayRead, Times: uint64(i), Stack: "main:1 nap:1"})
	}
	got := byFunc(view.New(b.Finish(20_000*ms), view.Options{}))
	if want := map[string]int64{"(not sampled)": 1999 * ms}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("CPU time %v, want %v", got, want)
	}
}

// CPU time without a running sample is not missing if the interval was too long for one to be expected: it has the shares of
// the samples before.
func TestNotSampledWhileStretched(t *testing.T) {
	for _, c := range []struct {
		every int64 // ms between samples from 640 ms on
		want  map[string]int64
	}{
		{10, map[string]int64{"burn": 630 * ms, "(not sampled)": 400 * ms}},
		{320, map[string]int64{"burn": 1030 * ms}},
	} {
		b := exporttest.New(t)
		th := b.Thread(1234, "main")
		at := int64(0)
		for ; at < 640; at += 10 { // a whole window
			th.Look(exporttest.Look{At: at * ms, CPU: at * ms, State: stack.StateRunning, Way: stack.WayStop, Stack: fmt.Sprint("main:1 burn:", 1+at%20)})
		}
		th.Event(640*ms, event.Rate, uint64(c.every*ms))
		for n := int64(1); n <= 400; n++ {
			at = 640 + 10*n
			if at%c.every == 0 || n == 400 {
				th.Look(exporttest.Look{At: at * ms, CPU: (630 + n) * ms, State: stack.StateBlocked, Call: 36, Way: stack.WayRead, Times: uint64(n), Stack: "main:1 nap:1"})
			}
		}
		got := byFunc(view.New(b.Finish(5_000*ms), view.Options{}))
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("a sample each %d ms: CPU time %v, want %v", c.every, got, c.want)
		}
	}
}

// The CPU time of a range is what the thread used in it, even if one long stack crosses its edges.
func TestCPUOfRange(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range int64(100) {
		th.Look(exporttest.Look{At: i * 10 * ms, CPU: i * 5 * ms, State: stack.StateRunning, Stack: "main:1 burn:1", Times: uint64(i)})
	}
	rec := b.Finish(1000 * ms)
	for _, c := range []struct{ from, to, want int64 }{{100, 900, 400}, {120, 140, 10}, {333, 351, 9}, {1, 990, 490}} {
		v := view.New(rec, view.Options{From: exporttest.Start + stack.Time(c.from*ms), To: exporttest.Start + stack.Time(c.to*ms)})
		if got := byFunc(v)["burn"]; math.Abs(float64(got-c.want*ms)) > float64(6*ms) { // one tick
			t.Errorf("%d to %d ms: %d ns, want %d ms", c.from, c.to, got, c.want)
		}
	}
}

// TestCPUOfStretchedInterval: samples of a stretch with a short interval, as at the beginning of a recording on a busy machine,
// have their own CPU time, and not that of the fewer ones after it.
func TestCPUOfStretchedInterval(t *testing.T) {
	for _, c := range []struct{ dense, sparse int64 }{{100, 10}, {40, 20}, {70, 70}, {10, 100}} {
		b := exporttest.New(t)
		th := b.Thread(1234, "main")
		at, n := int64(0), uint64(0)
		look := func(every int64, frames string) {
			at, n = at+every, n+1
			th.Look(exporttest.Look{At: at * ms, CPU: at * ms, State: stack.StateRunning, Stack: frames, Times: n})
		}
		for range c.dense {
			look(5, "main:1 start:1")
		}
		for range c.sparse {
			look(80, "main:1 work:1")
		}
		of := byFunc(view.New(b.Finish(at*ms), view.Options{}))
		got, want := float64(of["start"])/float64(at*ms), float64(5*c.dense)/float64(at)
		if math.Abs(got-want) > .1 { // a window may have samples of both
			t.Errorf("%d samples each 5 ms, then %d each 80 ms: %.0f%% of the CPU time is of the first ones, want %.0f%%", c.dense, c.sparse, 100*got, 100*want)
		}
	}
}

// TestCPUOfStrata: what a clock cannot copy, such as deep stacks of Python, is sampled by stops, and those are rarer where the
// overhead bound or other programs allow fewer of them. Each way of sampling has its own CPU time.
func TestCPUOfStrata(t *testing.T) {
	for _, waiting := range []int{0, 2, 5} { // of each 6 stops, this many find the thread waiting for a CPU
		b := exporttest.New(t)
		th := b.Thread(1234, "main")
		at, n, flat := int64(0), uint64(0), int64(0)
		look := func(every int64, l exporttest.Look) {
			at, n = at+every*ms, n+1
			l.At, l.CPU, l.Times = at, at, n
			th.Look(l)
		}
		for range 8 {
			for range 40 {
				look(5, exporttest.Look{State: stack.StateRunning, Way: stack.WayClock, Stack: "main:1 flat:1"})
				flat += 5 * ms
			}
			for i := range 6 {
				l := exporttest.Look{State: stack.StateRunning, Way: stack.WayStop, Stack: "main:1 deep:1"}
				if i < waiting {
					l.State = stack.StateRunnable
				}
				look(30, l)
			}
		}
		of := byFunc(view.New(b.Finish(at), view.Options{}))
		got, want := float64(of["flat"])/float64(at), float64(flat)/float64(at)
		if math.Abs(got-want) > .02 {
			t.Errorf("%d of 6 stops find it waiting: what the clock copied has %.0f%% of the CPU time, want %.0f%%", waiting, 100*got, 100*want)
		}
	}
}

// TestCPUOfFewStops: the CPU time between stops that found the thread waiting for a CPU is not that of the two that found it running.
func TestCPUOfFewStops(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	at, n := int64(0), uint64(0)
	look := func(every int64, s stack.State, w stack.Way, frames string) {
		at, n = at+every*ms, n+1
		th.Look(exporttest.Look{At: at, CPU: at, Times: n, State: s, Way: w, Stack: frames})
	}
	for i := range 400 {
		name := "main:1 often:1"
		if i%4 == 0 {
			name = "main:1 rare:1"
		}
		if look(10, stack.StateRunning, stack.WayClock, name); i%20 != 0 {
			continue
		}
		if look(50, stack.StateRunnable, stack.WayStop, name); i%200 == 0 {
			look(10, stack.StateRunning, stack.WayStop, "main:1 rare:1")
		}
	}
	of := byFunc(view.New(b.Finish(at), view.Options{}))
	if share := float64(of["rare"]) / float64(at); math.Abs(share-.25) > .02 {
		t.Errorf("what has a quarter of the samples has %.2f of the CPU time", share)
	}
}
