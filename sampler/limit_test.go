package sampler

import (
	"math"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// costly is a target of a program that uses own ns of CPU time.
type costly struct {
	fakeTarget
	own int64
}

func (c *costly) Costs() (Costs, bool) { return Costs{Own: c.own, Idle: -1}, true }

// TestLimit: two Samplers that use CPU time at each tick get longer intervals until both together are below the
// limit, and short ones again when one of them has ended.
func TestLimit(t *testing.T) {
	const second = int64(time.Second)
	l := NewLimit(Bounds{Share: .1, From: 1})
	var all []*Sampler
	var targets []*costly
	for range 2 {
		c := &costly{}
		s, err := New(c, Config{Interval: 10 * time.Millisecond, Limit: l, Start: func(stack.ThreadInfo) Sink { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		s.run.first.Store(1)
		l.join(s)
		all, targets = append(all, s), append(targets, c)
	}
	now, own := second, int64(0)
	step := func(live []*Sampler, each float64) (load float64) { // each: CPU time of one without a limit, as a share
		used := int64(0)
		for _, s := range live {
			n := int64(each / s.factor() * float64(second))
			s.groups[0].breath.all.Add(n)
			used += n
		}
		own += used + used/10
		for _, c := range targets {
			c.own = own
		}
		now += second
		for _, s := range live {
			l.check(s, stack.Time(now))
		}
		return float64(used) * 1.1 / float64(second) / .1
	}
	load := 0.
	for range 30 {
		load = step(all, .2)
	}
	if load > 1 || load < .3 || all[0].factor() != all[1].factor() || all[0].factor() < 3 {
		t.Errorf("load %.2f of the limit, intervals stretched by %.2f and %.2f", load, all[0].factor(), all[1].factor())
	}
	if c := all[0].Cost(0); c.Limit != .1 || c.Factor != all[0].factor() {
		t.Errorf("%+v", c)
	}
	l.leave(all[1])
	for range 60 {
		load = step(all[:1], .02)
	}
	if all[0].factor() != 1 || load > 1 {
		t.Errorf("afterwards load %.2f, the interval is stretched by %.2f", load, all[0].factor())
	}
	// What sampling does not cause counts at most a quarter of what samples do.
	if got := l.load(second, used{spent: second / 20}, second); got < .62 || got > .63 {
		t.Errorf("load %.2f", got)
	}
	// While no CPU is idle, stops count too, and the bound is a share of what the targets use.
	l.b.Busy = .02
	u := used{spent: second / 100, held: second / 100, ran: 2 * second}
	for _, c := range []struct {
		idle, load float64
	}{{.5, .1}, {-1, .5}, {.3, .5}, {.5, .1}, {.3, .1}, {0, .5}} {
		if l.v.idles(c.idle); math.Abs(l.load(second/100, u, second)-c.load) > 1e-9 {
			t.Errorf("idle %.1f: load %.2f, want %.2f", c.idle, l.load(second/100, u, second), c.load)
		}
	}
	if u.ran = 0; l.load(0, u, second) != 2 || l.full.Load() != 1 {
		t.Errorf("sleeping targets: load %.2f, over the bound %d times", l.load(0, u, second), l.full.Load())
	}
	l.b.Busy = 0
	l.b.From = 2
	for range 20 {
		load = step(all[:1], .4)
	}
	if all[0].factor() != 1 {
		t.Errorf("a Sampler alone, load %.2f, the interval is stretched by %.2f", load, all[0].factor())
	}
	var none *Limit
	none.join(all[0])
	none.check(all[0], stack.Time(now))
	none.leave(all[0])
	if none.factor() != 1 {
		t.Error("without a limit, the interval is stretched")
	}
}

// TestLimitNaps: threads that hardly run nap longer before the intervals grow, and as long as before once the cost is
// low.
func TestLimitNaps(t *testing.T) {
	const second = int64(time.Second)
	l := NewLimit(Bounds{Share: .1, From: 1})
	c := &costly{}
	s, err := New(c, Config{Limit: l, Start: func(stack.ThreadInfo) Sink { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	s.run.first.Store(1)
	l.join(s)
	now := second
	step := func(share float64) {
		now += second
		n := int64(share * float64(second))
		c.own += n
		s.groups[0].breath.all.Add(n)
		s.groups[0].tally.asleep.Add(90)
		s.groups[0].tally.awakes.Add(10)
		l.check(s, stack.Time(now))
	}
	for range 10 {
		if step(.15); l.napMost() == napMost+moreNaps {
			break
		}
	}
	if l.napMost() != napMost+moreNaps || l.factor() != 1 {
		t.Fatalf("naps of up to %d, the interval is stretched by %.2f", l.napMost(), l.factor())
	}
	if c := s.Cost(0); c.Naps != 1<<(napMost+moreNaps) {
		t.Errorf("%+v", c)
	}
	for range 10 {
		step(.15)
	}
	if l.factor() == 1 {
		t.Error("the interval is not stretched")
	}
	for range 60 {
		step(.01)
	}
	if l.napMost() != napMost || l.factor() != 1 {
		t.Errorf("afterwards naps of up to %d, the interval is stretched by %.2f", l.napMost(), l.factor())
	}
	// A thread whose nap has become too long is looked at more often.
	g := s.groups[0]
	l.size.Store(fewSleep + 1)
	th := newThread(stack.ThreadInfo{TID: 1}, nil, &memorySink{})
	th.sleep.nap = nap{level: napMost + 1, at: 1}
	if g.calmly(th, &Counters{}, stack.Time(second), true); th.sleep.nap.level != napMost {
		t.Errorf("level %d", th.sleep.nap.level)
	}
}
