package watch

import (
	"testing"
	"time"
)

// Samples get as far apart as it takes to stay below the budget, and no further;
// when there is less to do they come back to what was asked for.
func TestGovernor(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		fixed, each float64 // share of a CPU: always, and at the base interval for samples
		low, high   time.Duration
	}{
		{0, .01, 20 * ms, 20 * ms},
		{.005, .021, 20 * ms, 20 * ms},
		{0, .06, 40 * ms, 50 * ms},
		{.005, .16, 120 * ms, 170 * ms},
		{.02, .9, 200 * ms, 200 * ms},
		{.05, 0, 200 * ms, 200 * ms}, // nothing helps: it is bounded
	} {
		g := &governor{base: 20 * ms, now: 20 * ms, budget: .03}
		cost := func() float64 { return c.fixed + c.each*float64(g.base)/float64(g.interval()) }
		changes := 0
		for range 30 {
			if _, changed := g.next(cost()); changed {
				changes++
			}
		}
		if d := g.interval(); d < c.low || d > c.high || changes > 8 {
			t.Errorf("%+v: %v after %d changes", c, d, changes)
		} else if d < 200*ms && cost() > .03*1.01 {
			t.Errorf("%+v: %v costs %.3f of a CPU", c, d, cost())
		}
		for range 30 {
			g.next(.0001)
		}
		if d := g.interval(); d != 20*ms {
			t.Errorf("%+v: %v when there is nothing to do", c, d)
		}
	}
	// A dump is no reason, unless there is one all the time.
	g := &governor{base: 20 * ms, now: 20 * ms, budget: .03}
	passed := 0
	for g.interval() == 20*ms && passed < 100 {
		g.disturbed()
		g.next(.06)
		passed++
	}
	if passed != mostPassed+1 {
		t.Errorf("it looked after %d times", passed)
	}
}
