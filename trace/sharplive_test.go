package trace_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// callsUntil returns what became known of the traced calls of a recording between two moments.
func callsUntil(rec *trace.Recording, from, to stack.Time) (b trace.CallBatch) {
	b.Until = to
	for c, err := range rec.Calls() {
		switch {
		case err != nil || c.Enter > to || c.Exit <= from:
		case c.Exit <= to:
			b.Ended = append(b.Ended, c)
		case c.Enter > from:
			c.Exit, c.How = 0, 0 // not known
			b.Open = append(b.Open, c)
		}
	}
	return b
}

// grow gives a LiveSharp the events of a thread, and its calls in batches at the times of until.
func grow(rec *trace.Recording, until []stack.Time) (out []event.Event) {
	names := trace.NewNames(rec)
	l := trace.NewLiveSharp(trace.NewLiveCode(&trace.Traced{}), func(e event.Event) { out = append(out, e) },
		func(w event.Word, at stack.Time) (int32, bool) {
			f := names.Resolve(w, at).Frames
			return int32(f[len(f)-1].Func) + 1, true
		})
	l.Code(trace.NewLiveCode(rec.Traced))
	var events []event.Event
	for e := range rec.Fitted(rec.Threads[0].Seq) {
		events = append(events, e)
	}
	from := stack.Time(-1 << 62)
	for _, to := range until {
		b := callsUntil(rec, from, to)
		for i := range b.Ended {
			l.Ended(&b.Ended[i])
		}
		for i := range b.Open {
			l.Open(&b.Open[i])
		}
		n := 0
		for n < len(events) && events[n].Time+trace.SharpSkew <= to {
			l.Apply(events[n])
			n++
		}
		events, from = events[n:], to
	}
	l.Close()
	return out
}

// TestLiveSharp: calls that become known in batches, as they begin and as they end, make the same timeline as those of a
// finished recording.
func TestLiveSharp(t *testing.T) {
	for seed := range uint64(300) {
		rec, p := randomProgram(t, seed, map[string]bool{"f0": true, "f1": true})
		var want []event.Event
		trace.SharpEvents(rec, 0, func(e event.Event) { want = append(want, e) })
		rnd := rand.New(rand.NewPCG(seed, 2))
		var until []stack.Time
		for at := int64(0); at < p.at[len(p.at)-1]; at += 1 + rnd.Int64N(20*ms) {
			until = append(until, exporttest.Start+stack.Time(at))
		}
		got := grow(rec, append(until, 1<<62))
		if !slices.Equal(got, want) {
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("seed %d: event %d of %d is %v, want %v of %d", seed, i, len(got), got[min(i, len(got)-1)], want[min(i, len(want)-1)], len(want))
				}
			}
		}
	}
}

// TestLiveSharpEnds: a call that an exception ended, of which nothing shows the end until later, is over when a sample
// does not show it; calls that come too late, or twice, make no slices.
func TestLiveSharpEnds(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1, "main")
	for i, s := range []string{"main", "main handle", "main", "main", "main handle", "main"} {
		th.Look(exporttest.Look{At: int64(i) * 10 * ms, State: stack.StateRunning, Stack: s})
	}
	b.Exact(1, "handle", "main", 5*ms, 35*ms, calls.Left)
	b.Exact(1, "handle", "main", 36*ms, 45*ms, calls.Returned)
	rec := b.Finish(60 * ms)
	var want []event.Event
	trace.SharpEvents(rec, 0, func(e event.Event) { want = append(want, e) })
	for _, every := range []int64{ms, 7 * ms, 33 * ms} {
		var until []stack.Time
		for at := int64(0); at < 60*ms; at += every {
			until = append(until, exporttest.Start+stack.Time(at))
		}
		if got := grow(rec, append(until, 1<<62)); !slices.Equal(got, want) {
			t.Errorf("batches of %d ns: %v, want %v", every, got, want)
		}
	}
	// Calls that come when their time is drawn, and those that came before, change nothing.
	var plain, late []event.Event
	for _, out := range []*[]event.Event{&plain, &late} {
		l := trace.NewLiveSharp(trace.NewLiveCode(rec.Traced), func(e event.Event) { *out = append(*out, e) }, func(event.Word, stack.Time) (int32, bool) { return -1, false })
		for e := range rec.Fitted(rec.Threads[0].Seq) {
			l.Apply(e)
		}
		for c := range rec.Calls() {
			if out == &late {
				l.Open(&c)
				l.Ended(&c)
				l.Ended(&c)
			}
		}
		l.Close()
	}
	if len(plain) == 0 || !slices.Equal(late, plain) {
		t.Errorf("late calls make %v of %v", late, plain)
	}
}

// TestLiveSharpLate: a call that a sample does not show, whose time is later than its stack's, goes on until it ends, as in
// the finished recording. A recorder without a CPU is late by more than sharpSkew.
func TestLiveSharpLate(t *testing.T) {
	for _, late := range []int64{50_000, 134_000, 1_500_000} {
		b := exporttest.New(t)
		th := b.Thread(1, "main")
		th.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main"})
		th.Look(exporttest.Look{At: 10*ms + late, State: stack.StateBlocked, Call: 35, Stack: "main sleep"})
		for _, at := range []int64{20, 30} {
			th.Look(exporttest.Look{At: at * ms, State: stack.StateRunning, Stack: "main handle"})
		}
		th.Look(exporttest.Look{At: 45 * ms, State: stack.StateRunning, Stack: "main"})
		b.Exact(1, "handle", "main", 10*ms, 40*ms, calls.Returned)
		rec := b.Finish(60 * ms)
		var want []event.Event
		trace.SharpEvents(rec, 0, func(e event.Event) { want = append(want, e) })
		if got := grow(rec, []stack.Time{exporttest.Start + 13*ms, exporttest.Start + 35*ms, 1 << 62}); !slices.Equal(got, want) {
			t.Errorf("%d ns late: %v, want %v", late, got, want)
		}
	}
}

// TestLiveSharpGuess: a thread that lost its CPU after its call began, before it ran any of it, is shown where a clock
// met it last. That does not end the call.
func TestLiveSharpGuess(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1, "main")
	for i, x := range []exporttest.Look{{State: stack.StateRunning, Way: stack.WayClock, Stack: "main"},
		{State: stack.StateRunnable, Way: stack.WayClock, Stack: "main"}, {State: stack.StateBlocked, Stack: "main handle"},
		{State: stack.StateRunnable, Way: stack.WayClock, Stack: "main"}, {State: stack.StateBlocked, Stack: "main"}} {
		x.At = int64(i) * 10 * ms
		th.Look(x)
	}
	b.Exact(1, "handle", "main", 5*ms, 35*ms, calls.Returned)
	rec := b.Finish(60 * ms)
	var want []event.Event
	trace.SharpEvents(rec, 0, func(e event.Event) { want = append(want, e) })
	for _, every := range []int64{ms, 7 * ms, 33 * ms} {
		var until []stack.Time
		for at := int64(0); at < 60*ms; at += every {
			until = append(until, exporttest.Start+stack.Time(at))
		}
		if got := grow(rec, append(until, 1<<62)); !slices.Equal(got, want) {
			t.Errorf("batches of %d ns: %v, want %v", every, got, want)
		}
	}
}
