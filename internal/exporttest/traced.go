package exporttest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	exact "github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// TracedCalls are the calls of Traced, in the order of Calls. Times are in ns after Start.
func TracedCalls() []Call {
	return []Call{
		{0, "handle", 2, 11 * Ms, 39 * Ms},
		{0, "libshort", 3, 12 * Ms, 12*Ms + 600_000}, // between two samples
		{0, "libparse", 3, 25 * Ms, 34 * Ms},
		{0, "libshort", 2, 44 * Ms, 44*Ms + 6000},
		{0, "handle", 2, 52 * Ms, 53*Ms + 500_000}, // a sampled function's, without a sample
		{0, "handle", 2, 53*Ms + 500_000, 54 * Ms}, // the next one at the same moment
		{1, "libget", 2, 8 * Ms, 61 * Ms},          // a wait
	}
}

// Traced returns a recording of two threads with the samples of the functions main, serve, start and work, and of the
// functions of TracedCalls. With calls, it has TracedCalls as well.
func Traced(tb testing.TB, calls bool) *trace.Recording {
	b := New(tb)
	m := b.Thread(1234, "server")
	for i := range int64(11) {
		s := "main:1 serve:2"
		switch i {
		case 2, 3:
			s = "main:1 serve:2 handle:3"
			if i == 3 {
				s += " libparse:4"
			}
		}
		m.Look(Look{At: i * 10 * Ms, CPU: i * 10 * Ms, State: stack.StateRunning, Stack: s})
	}
	w := b.Thread(1235, "worker")
	wait := b.Wait(trace.Wait{Call: "futex", Args: "mutex m", Kind: "lock", Lock: "mutex", KnownBy: "layout", Symbol: "m", Module: "/opt/app/server"})
	w.Look(Look{At: 0, State: stack.StateRunning, Stack: "start:1 work:2"})
	for i := int64(1); i < 7; i++ {
		w.Look(Look{At: i * 10 * Ms, CPU: 8 * Ms, State: stack.StateBlocked, Call: 203, Stack: "start:1 work:2 libget:3"})
		if i == 1 {
			w.Event(i*10*Ms, event.Wait, wait)
		}
	}
	for i := int64(7); i < 11; i++ {
		w.Look(Look{At: i * 10 * Ms, CPU: (i - 1) * 10 * Ms, State: stack.StateRunning, Stack: "start:1 work:2"})
	}
	for _, c := range TracedCalls() {
		if calls {
			caller := map[int]string{2: "serve:2", 3: "handle:3"}[c.Depth]
			if c.Thread == 1 {
				caller = "work:2"
			}
			b.Exact(1234+c.Thread, c.Name, caller, c.Begin, c.End, exact.Returned)
		}
	}
	return b.Finish(100 * Ms)
}

// OnceTraced compares the calls that a reader of an export sees of Traced with and without its calls: the former has each
// traced call once, with its times, and the same sums of all other functions and waits; no time is there twice.
func OnceTraced(tb testing.TB, with, without []Call) {
	tb.Helper()
	want := TracedCalls()
	traced := map[string]bool{}
	for i := range want {
		want[i].Begin, want[i].End = int64(Start)+want[i].Begin, int64(Start)+want[i].End
		traced[want[i].Name] = true
	}
	type key struct {
		thread int
		name   string
	}
	sums := func(cs []Call) (map[key]int64, []Call) {
		sum, exact := map[key]int64{}, []Call{}
		for _, c := range cs {
			if traced[c.Name] {
				exact = append(exact, c)
			} else {
				sum[key{c.Thread, c.Name}] += c.End - c.Begin
			}
		}
		slices.SortStableFunc(exact, func(a, b Call) int { return cmp.Or(a.Thread-b.Thread, cmp.Compare(a.Begin, b.Begin)) })
		return sum, exact
	}
	sum, got := sums(with)
	plain, sampled := sums(without)
	if len(sampled) != 3 {
		tb.Errorf("without calls: %v", sampled)
	}
	if !maps.Equal(sum, plain) || len(sum) < 4 {
		tb.Errorf("sums with calls %v, without %v", sum, plain)
	}
	lines := func(cs []Call) string {
		var b strings.Builder
		for _, c := range cs {
			fmt.Fprintln(&b, c)
		}
		return b.String()
	}
	if g, w := lines(got), lines(want); g != w {
		tb.Errorf("calls\n%swant\n%s", g, w)
	}
}
