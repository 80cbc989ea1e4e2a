package view_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// timesOf describes the times of the calls of a recording, in µs, by their beginning.
func timesOf(v *view.View) (out []string) {
	var all []view.Call
	v.Calls(func(c *view.Call) bool {
		all = append(all, *c)
		return true
	})
	slices.SortFunc(all, func(a, b view.Call) int { return int(a.Enter - b.Enter) })
	timer := v.CallTimer()
	for i := range all {
		x, ok := timer.Of(&all[i])
		if !ok {
			out = append(out, "unknown")
			continue
		}
		out = append(out, fmt.Sprintf("%d+%d+%d %v %s", x.CPU/1000, x.Delay/1000, x.Off/1000, x.Exact, v.Woken(x.Woken)))
	}
	return out
}

// TestCallTimes: with the context switches the time of each call is divided as they say, and the longest wait has
// its waker.
func TestCallTimes(t *testing.T) {
	const ms, us = exporttest.Ms, exporttest.Ms / 1000
	b := exporttest.New(t)
	th := b.Thread(1235, "worker")
	other := b.Thread(1236, "helper")
	for at := int64(0); at <= 100*ms; at += 10 * ms {
		th.Look(exporttest.Look{At: at, CPU: at, State: stack.StateRunning, Stack: "main:1"})
		other.Look(exporttest.Look{At: at, CPU: at, State: stack.StateRunning, Stack: "main:1"})
	}
	b.Off(1235, 1*ms, 1*ms+100*us, 1*ms+100*us, trace.Waker{}, 0) // the switches are known from here on
	b.Off(1235, 10*ms, 12*ms, 13*ms, trace.Waker{TID: 1236, PID: 1234}, 0)
	b.Off(1235, 20*ms, 25*ms, 26*ms, trace.Waker{TID: 77, PID: 70}, 0)
	b.Off(1235, 40*ms, 41*ms, 41*ms, trace.Waker{}, 0)
	b.Off(1235, 70*ms, 71*ms, 74*ms, trace.Waker{TID: 1236, PID: 1234}, 0)
	b.Off(1235, 200*ms, 201*ms, 202*ms, trace.Waker{}, 0)
	for _, c := range [][2]int64{{5 * ms, 9 * ms}, {9500 * us, 14 * ms}, {11 * ms, 22 * ms}, {14*ms + 100*us, 14*ms + 101*us}, {14500 * us, 39 * ms}} {
		b.Exact(1235, "handle", "main:1", c[0], c[1], calls.Returned)
	}
	b.Exact(1235, "handle", "main:1", 50*ms, 51*ms, calls.Returned).Task = 7
	b.Exact(99, "handle", "main:1", 60*ms, 61*ms, calls.Returned) // not sampled
	b.Exact(1235, "handle", "main:1", 69*ms, 75*ms, calls.Returned)
	got := timesOf(view.New(b.Finish(100*ms), view.Options{}))
	want := []string{
		"4000+0+0 true ",
		"1500+1000+2000 true helper (1236) (measured)",
		"7000+1000+3000 true ", // the longest wait goes on after the call
		"1+0+0 true ",
		"18500+1000+5000 true process 70, thread  (77) (measured)",
		"unknown", "unknown",
		"2000+3000+1000 true helper (1236) (measured)", // it waited longer for a CPU
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n%q, want\n%q", got, want)
	}
}

// TestCallTimesSampled: if no switches are known, the samples show the times of calls that are longer than two of their
// intervals, and a call outside of them has none.
func TestCallTimesSampled(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	th := b.Thread(1235, "worker")
	for at := int64(0); at <= 100*ms; at += 10 * ms {
		l := exporttest.Look{At: at, CPU: min(at, 50*ms), Times: 1, State: stack.StateRunning, Stack: "main:1"}
		if at > 50*ms {
			l.State, l.Times, l.Call = stack.StateBlocked, 2, 1
		}
		th.Look(l)
	}
	b.Exact(1235, "handle", "main:1", 10*ms, 30*ms, calls.Returned)
	b.Exact(1235, "handle", "main:1", 40*ms, 90*ms, calls.Returned)
	b.Exact(1235, "handle", "main:1", 92*ms, 97*ms, calls.Returned)
	b.Exact(1235, "handle", "main:1", 300*ms, 320*ms, calls.Returned)
	v := view.New(b.Finish(100*ms), view.Options{})
	got := timesOf(v)
	if len(got) != 4 || got[2] != "unknown" || got[3] != "unknown" {
		t.Fatalf("%q", got)
	}
	for i, want := range []struct{ span, from, to int64 }{{20_000, 19_000, 20_000}, {50_000, 9_000, 21_000}} { // in µs: of each, on a CPU
		var cpu, delay, off int64
		if _, err := fmt.Sscanf(got[i], "%d+%d+%d false", &cpu, &delay, &off); err != nil || cpu+delay+off < want.span-1 || cpu+delay+off > want.span || cpu < want.from || cpu > want.to {
			t.Errorf("%q: %v", got[i], err)
		}
	}
}

// TestCallTimesStretched: where the overhead bound stretches the interval, a call must be longer than two stretched ones. A
// call of 24 ms that used a CPU for 3 ms and waited for one for the rest seemed to wait for 21 ms with samples 72 ms apart.
func TestCallTimesStretched(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	th := b.Thread(1235, "worker")
	th.Event(0, event.Rate, uint64(10*ms))
	for at := int64(0); at <= 400*ms; {
		th.Look(exporttest.Look{At: at, CPU: at / 4, Times: 1, State: stack.StateRunning, Stack: "main:1"})
		step := int64(10 * ms)
		if at >= 100*ms {
			th.Event(at, event.Rate, uint64(50*ms))
			step = 50 * ms
		}
		at += step
	}
	for _, c := range [][2]int64{{10 * ms, 34 * ms}, {150 * ms, 174 * ms}, {180 * ms, 300 * ms}} {
		b.Exact(1235, "handle", "main:1", c[0], c[1], calls.Returned)
	}
	got := timesOf(view.New(b.Finish(400*ms), view.Options{}))
	if len(got) != 3 || got[0] == "unknown" || got[1] != "unknown" || got[2] == "unknown" {
		t.Errorf("%q", got)
	}
}
