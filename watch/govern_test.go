package watch

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// The interval grows as far as the budget requires, and no further; with less load it
// returns to the configured one.
func TestGovernor(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		fixed, each float64 // share of a CPU: fixed, and for samples at the base interval
		low, high   time.Duration
	}{
		{0, .01, 20 * ms, 20 * ms},
		{.005, .021, 20 * ms, 20 * ms},
		{0, .06, 40 * ms, 50 * ms},
		{.005, .16, 120 * ms, 170 * ms},
		{.02, .9, 200 * ms, 200 * ms},
		{.05, 0, 200 * ms, 200 * ms}, // nothing helps, but the interval is limited
	} {
		g := &governor{base: 20 * ms, now: 20 * ms, budget: .03}
		cost := func() float64 { return c.fixed + c.each*float64(g.base)/float64(g.interval()) }
		changes := 0
		for range 30 {
			if _, changed := g.next(cost(), 200*ms); changed {
				changes++
			}
		}
		if d := g.interval(); d < c.low || d > c.high || changes > 8 {
			t.Errorf("%+v: %v after %d changes", c, d, changes)
		} else if d < 200*ms && cost() > .03*1.01 {
			t.Errorf("%+v: %v costs %.3f of a CPU", c, d, cost())
		}
		for range 60 {
			g.next(.0001, 200*ms)
		}
		if d := g.interval(); d != 20*ms {
			t.Errorf("%+v: %v when there is nothing to do", c, d)
		}
	}
	// It grows quickly, and noise around the budget does not change it.
	g := &governor{base: 20 * ms, now: 20 * ms, budget: .012}
	r := rand.New(rand.NewPCG(3, 4))
	changes := 0
	for i := range 100 {
		cost := (.001 + .3*float64(g.base)/float64(g.interval())) * (.85 + .3*r.Float64())
		if _, changed := g.next(cost, time.Second); changed {
			changes++
		}
		if d := g.interval(); i == 3 && d < 400*ms {
			t.Errorf("%v after four looks", d)
		}
	}
	if d := g.interval(); d < 450*ms || d > 800*ms || changes > 8 {
		t.Errorf("%v after %d changes", d, changes)
	}
	// A short quiet period does not decrease the interval.
	for range lowLooks - 1 {
		if _, changed := g.next(.001, time.Second); changed {
			t.Error("it came back for a moment's rest")
		}
	}
	g.next(.01, time.Second)
	if _, changed := g.next(.001, time.Second); changed {
		t.Error("it came back for two moments' rest")
	}
	// A dump does not change the interval, unless dumps are continuous.
	g = &governor{base: 20 * ms, now: 20 * ms, budget: .03}
	passed := 0
	for g.interval() == 20*ms && passed < 100 {
		g.disturbed()
		g.next(.06, 200*ms)
		passed++
	}
	if passed != mostPassed+1 {
		t.Errorf("it looked after %d times", passed)
	}
}

// The default limit is higher while CPUs are idle; the governor returns to the lower one
// when they are in use.
func TestGovernorRest(t *testing.T) {
	const ms = time.Millisecond
	cost := func(g *governor) float64 { return .02 * float64(g.base) / float64(g.interval()) }
	g := &governor{base: 20 * ms, now: 20 * ms, budget: .012, rest: .03}
	looks := func(idle float64, n int) time.Duration {
		for range n {
			g.room(idle)
			g.next(cost(g), time.Second)
		}
		return g.interval()
	}
	for i, c := range []struct {
		idle  float64
		looks int
		near  bool // nearly the configured interval
		bound float64
	}{
		{.8, 10, true, .03}, {.3, 5, true, .03}, {.1, 2, false, .012}, {.3, 5, false, .012}, {.5, 20, true, .03},
	} {
		if d := looks(c.idle, c.looks); (d < g.base*5/4) != c.near || g.bound() != c.bound || cost(g) > c.bound {
			t.Errorf("%d: %v, %v of %v, with %v idle", i, d, cost(g), g.bound(), c.idle)
		}
	}
	g = &governor{base: 20 * ms, now: 20 * ms, budget: .012} // --max-cpu 1.2%
	if d := looks(.9, 10); d == g.base || g.bound() != .012 {
		t.Errorf("%v, at most %v", d, g.bound())
	}
}

// The cost of a start, however high, does not count as sampling cost; the cost of later
// samples does.
func TestGovernorSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &governor{base: 20 * time.Millisecond, now: 20 * time.Millisecond, budget: .012}
		g.began()
		begin := time.Now()
		for time.Since(begin) < settling {
			<-time.After(g.every()) // fake time of the bubble
			if _, changed := g.next(.9, time.Second); changed {
				t.Fatalf("%v after %v", g.interval(), time.Since(begin))
			}
		}
		<-time.After(g.every()) // fake time of the bubble
		if _, changed := g.next(.9, time.Second); !changed {
			t.Errorf("%v after %v of work", g.interval(), time.Since(begin))
		}
		// A steady flow of new targets does not prevent looks.
		g = &governor{base: 20 * time.Millisecond, now: 20 * time.Millisecond, budget: .012}
		for range mostPassed + 1 {
			g.began()
			<-time.After(g.every()) // fake time of the bubble
			g.next(.9, time.Second)
		}
		if g.interval() == g.base {
			t.Error("it never looked")
		}
	})
}

// The interval does not exceed what the rules need.
func TestFurthest(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		rules []string
		want  time.Duration
		blunt int // rules that cannot work at this interval
	}{
		{nil, time.Second, 0},
		{[]string{"stall 5s"}, 500 * ms, 0},
		{[]string{"stall 5s", "stall 3s"}, 300 * ms, 0},
		{[]string{"stall 100ms"}, 200 * ms, 1}, // always at least ten times
		{[]string{"stall 600ms", "slow f>50ms", "slow g>2s"}, 200 * ms, 2},
		{[]string{"stall 1h"}, time.Second, 0},
		{[]string{"deadlock 100ms", "blocked 100ms"}, 200 * ms, 0}, // one sample is enough
		{[]string{"cpu 30%,every=400ms"}, 400 * ms, 0},
		{[]string{"cpu 30%,every=100ms"}, 200 * ms, 1},
		{[]string{"cpu 30%,every=100ms,of=process"}, time.Second, 0},
	} {
		rules := rules(t, c.rules...)
		d := furthest(20*ms, rules)
		if d != c.want {
			t.Errorf("%v: %v, want %v", c.rules, d, c.want)
		}
		if got := blunt(d, rules); len(got) != c.blunt {
			t.Errorf("%v: %q, want %d", c.rules, got, c.blunt)
		}
	}
}
