package sampler

import (
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// check reports a state that does not fit the open ticks.
func (p *pending) check() string {
	switch {
	case (p.is == awaited) != (len(p.ticks) > 0):
		return "a thread is awaited if and only if it has ticks whose sample was requested"
	case (p.is == napping) != (p.skips > 0):
		return "a thread naps if and only if ticks were left out"
	}
	return ""
}

// TestPendingTransitions tries each change in each state. A change that is not allowed keeps the state.
func TestPendingTransitions(t *testing.T) {
	type key struct {
		from pend
		c    tickChange
	}
	want := map[key]pend{
		{settled, napped}: napping, {settled, byClock}: blind, {settled, doubted}: unsure, {settled, requested}: awaited, {settled, resolved}: settled,
		{napping, napped}: napping, {napping, resolved}: settled,
		{blind, byClock}: blind, {blind, resolved}: settled,
		{unsure, resolved}:   settled,
		{awaited, requested}: awaited, {awaited, resolved}: settled,
	}
	for from := range pends {
		for c := range tickChanges {
			p := pending{is: from}
			to, ok := want[key{from, c}]
			if !ok {
				to = from
			}
			if got := p.to(c); got != ok || p.is != to {
				t.Errorf("state %d, change %d: allowed %v, state %d; want %v, %d", from, c, got, p.is, ok, to)
			}
		}
	}
}

// TestPendingTicks: ticks are opened only where the state allows it, and settled once.
func TestPendingTicks(t *testing.T) {
	var p pending
	if !p.expect(1) || !p.expect(2) || p.skip(3) || p.to(byClock) || p.to(doubted) || p.check() != "" {
		t.Errorf("awaited: %+v", p)
	}
	if got := p.take(); !slices.Equal(got, []stack.Time{1, 2}) || p.is != settled || len(p.take()) != 0 || p.check() != "" {
		t.Errorf("taken: %v, %+v", got, p)
	}
	if !p.skip(4) || !p.skip(5) || p.skips != 2 || p.last != 5 || p.expect(6) || p.check() != "" {
		t.Errorf("napping: %+v", p)
	}
}

// TestDoubtsAreCounted: of several ticks whose stops all ended in doubt, one gets another look. The others are
// missing, and counted.
func TestDoubtsAreCounted(t *testing.T) {
	m := &memorySink{}
	g := &group{s: &Sampler{}, engine: &fakeEngine{now: 500 * ms}}
	g.tick.every = int64(100 * ms)
	th := newThread(stack.ThreadInfo{TID: 1}, &fakeThread{}, m)
	for _, at := range []stack.Time{100 * ms, 200 * ms, 300 * ms} {
		th.pend.expect(at)
	}
	g.cameNot(th, ErrUnsure)
	if late := th.acc.late.Load(); th.pend.is != unsure || late != 2 || g.extra.again == 0 {
		t.Errorf("state %d, %d ticks counted", th.pend.is, late)
	}
	g.sure(th)
	if late := th.acc.late.Load(); th.pend.is != settled || late != 3 || m.gaps[stack.WhyLate] != 3*int64(100*ms) {
		t.Errorf("state %d, %d ticks counted, gaps %v", th.pend.is, late, m.gaps)
	}
}
