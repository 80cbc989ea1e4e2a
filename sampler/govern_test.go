package sampler

import (
	"math"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// TestGovern: sleeping threads are sampled less often before the interval is stretched, the cost
// falls below the bound, and both are undone when the cost ends.
func TestGovern(t *testing.T) {
	for _, c := range []struct {
		name                  string
		asleep, awake, always float64 // cost of looks at each tick, and of work independent of ticks
		stretched             bool
	}{
		{"many sleepers", .3, .002, .001, false},
		{"runners", 0, .08, .001, true},
		{"both", .2, .05, .001, true},
		{"cheap", .001, .002, .001, false},
	} {
		s, err := New(&fakeTarget{}, Config{Interval: 10 * time.Millisecond, MaxOverhead: .01, Start: func(stack.ThreadInfo) Sink { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		cost := func() (all, sleepers float64) {
			asleep := c.asleep / math.Exp2(float64(s.gov.napLeast.Load())) / s.gov.factor()
			awake := c.awake / s.gov.factor()
			return asleep + awake + c.always, asleep / max(asleep+awake, 1e-9)
		}
		early := 1.
		for range 60 {
			all, sleepers := cost()
			s.gov.steer(s, all/.01, sleepers)
			if s.gov.napLeast.Load() == 0 && sleepers > .25 {
				early = max(early, s.gov.factor())
			}
		}
		if all, _ := cost(); all > .01 {
			t.Errorf("%s: costs %.4f; sleepers nap %d, the interval is stretched by %.2f", c.name, all, s.gov.napLeast.Load(), s.gov.factor())
		}
		if early > 1 || (s.gov.factor() > 1) != c.stretched {
			t.Errorf("%s: the interval is stretched by %.2f, by %.2f before sleepers napped", c.name, s.gov.factor(), early)
		}
		for range 200 {
			s.gov.steer(s, .01, 0)
		}
		if s.gov.factor() != 1 || s.gov.napLeast.Load() != 0 {
			t.Errorf("%s: afterwards sleepers nap %d, and the interval is stretched by %.2f", c.name, s.gov.napLeast.Load(), s.gov.factor())
		}
	}
}

// TestGovernDozes: where the looks at thousands of dozing threads alone cost too much, the interval of the others grows
// little, as that saves nothing. Threads that wake often do not doze, and are looked at less often the longer it is.
func TestGovernDozes(t *testing.T) {
	for _, c := range []struct {
		awake    int32
		sleepers float64
		want     float64
	}{{3, .99, dozeStretch}, {maxAwake + 1, .99, mostStretch}, {3, .5, mostStretch}} {
		s, err := New(&fakeTarget{}, Config{Interval: 10 * time.Millisecond, MaxOverhead: .01, Start: func(stack.ThreadInfo) Sink { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		s.doze.size.Store(c.awake)
		for range 100 {
			s.gov.steer(s, 4, c.sleepers)
		}
		if got := s.gov.factor(); got != c.want || s.gov.napLeast.Load() != mostNap {
			t.Errorf("%+v: the interval is stretched by %v, sleepers nap %d", c, got, s.gov.napLeast.Load())
		}
	}
}

// TestGovernCost: own work counts fully if no CPU is idle, and one fifth if some are. Work that
// is not for samples counts at most as much as work that is, and has a lower weight. Stops count
// as a share of the target's time, without those that no longer interval saves.
func TestGovernCost(t *testing.T) {
	const second = 1_000_000_000
	for _, c := range []struct {
		idle             float64
		own, spent, held int64
		dense, ran       int64
		want, wantAsleep float64
	}{
		{0, second / 10, second / 10, 0, 0, second, .05, .75},
		{.5, second / 10, second / 10, 0, 0, second, .01, .75},
		{-1, second / 10, second / 10, second / 100, 0, second, .06, .75},
		{-1, second / 10, second / 10, second / 50, second / 100, second, .06, .75},
		{0, second, second / 100, 0, 0, second, .00625, .75},
		{0, 0, 0, second / 10, 0, second / 100, 0, .75}, // it hardly runs
	} {
		v := &governor{}
		l := ledger{at: second, costs: Costs{Own: c.own, Target: c.ran, Idle: c.idle}, spent: c.spent, held: c.held, dense: c.dense, asleep: 30, awake: 10}
		if cost, asleep := v.cost(&l, 2); math.Abs(cost-c.want) > 1e-9 || asleep != c.wantAsleep {
			t.Errorf("%+v: %v, %v", c, cost, asleep)
		}
	}
}

// The bound holds after few corrections: naps lose nothing of threads that sleep, and levels up to those of other
// sleepers' own naps are left out. Corrections of a Limit come one by one.
func TestGovernLeaps(t *testing.T) {
	for _, c := range []struct {
		leaps bool
		load  float64
		want  []int32
	}{
		{true, 1.1, []int32{napMost + 1, napMost + 2, mostNap, mostNap}},
		{true, 6, []int32{napMost + 2, mostNap}},
		{true, 100, []int32{napMost + 2, mostNap, mostNap}},
		{false, 100, []int32{napMost + 2, mostNap}},
		{false, 2.5, []int32{napMost + 1, napMost + 2, mostNap}},
		{false, 1.1, []int32{napMost + 1, napMost + 2, mostNap}},
	} {
		s := &Sampler{}
		s.gov.leaps = c.leaps
		s.gov.napped(1000, 8000) // at each eighth tick
		for i, want := range c.want {
			if s.gov.steer(s, c.load, .9); s.gov.napLeast.Load() != want {
				t.Errorf("load %v: level %d after %d corrections, want %d", c.load, s.gov.napLeast.Load(), i+1, want)
			}
		}
		// The interval grows about as late as after corrections by one level.
		checks := len(c.want)
		for ; s.gov.factor() == 1 && checks < 20; checks++ {
			s.gov.steer(s, 100, .9)
		}
		if checks < mostNap+highLooks-2 || checks > mostNap+highLooks {
			t.Errorf("load %v: the interval grows after %d checks", c.load, checks)
		}
	}
}

// The mean nap follows from the looks, up to what sleepers take on their own.
func TestGovernNapped(t *testing.T) {
	for looks, want := range map[uint64]int32{0: napMost, 10: napMost, 100: napMost, 200: 2, 399: 1, 401: 0, 800: 0, 2000: 0} {
		v := &governor{}
		if v.napped(looks, 800); v.naps != want {
			t.Errorf("%d looks in 800 ticks: level %d, want %d", looks, v.naps, want)
		}
	}
}

// Naps grow at once only while sleepers hardly ever run.
func TestGovernMoved(t *testing.T) {
	for moved, want := range map[uint64]bool{0: true, 5: true, 7: false, 90: false} {
		v := &governor{}
		if v.cost(&ledger{at: 1_000_000_000, asleep: 100, moved: moved}, 2); v.leaps != want {
			t.Errorf("%d of 100 looks: %v", moved, v.leaps)
		}
	}
}

// governed is a target whose sampling costs a whole CPU.
type governed struct {
	fakeTarget
	at stack.Time
}

func (x *governed) Costs() (Costs, bool) { return Costs{Own: int64(x.at), Idle: -1}, true }

// The first check comes early, and lengthens naps alone; the interval needs two later ones.
func TestGovernFirst(t *testing.T) {
	for _, awake := range []uint64{0, 1000} {
		x := &governed{}
		s, err := New(x, Config{Interval: 10 * time.Millisecond, MaxOverhead: .01, Start: func(stack.ThreadInfo) Sink { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		s.cpus = 1
		s.run.first.Store(int64(ms))
		began, napped, grew := stack.Time(0), stack.Time(0), stack.Time(0)
		for ; x.at < 2000*ms && grew == 0; x.at += 5 * ms {
			g := s.groups[0]
			g.tally.asleep.Add(1)
			g.tally.moved.Add(1)
			g.tally.awakes.Add(awake)
			g.breath.all.Store(int64(x.at))
			s.govern(x.at)
			if began == 0 && s.gov.begun {
				began = x.at
			}
			if napped == 0 && s.gov.napLeast.Load() > 0 {
				napped = x.at
			}
			if s.factor() > 1 {
				grew = x.at
			}
		}
		if began < settles || began > settles+10*ms {
			t.Errorf("%d looks at running threads: it begins at %d", awake, began)
		}
		first := began + governFirst
		if awake == 0 && napped != first || awake > 0 && (napped > 0 || grew != first+2*governSoon) {
			t.Errorf("%d looks at running threads: began at %d, naps at %d, a longer interval at %d", awake, began, napped, grew)
		}
	}
}
