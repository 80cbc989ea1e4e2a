package sampler

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
)

// What a recording costs its target is the time for which stops hold its threads, and what
// this program's own work takes from it: all of that where no CPU is idle, and a part where
// some are (its caches, and the moments in which a thread has to move). Config.MaxOverhead
// bounds the sum. Each thread's purse (budget.go) keeps stops alone below it; the governor
// looks at both from time to time. Where they are too much, threads that sleep are looked at
// more rarely first, then the interval of all is stretched.

// CostTarget is an optional interface of a Target.
type CostTarget interface {
	Costs() Costs
}

// Costs are accounts since some time before.
type Costs struct {
	Own    int64   // ns of CPU time of this program, stoppers included
	Target int64   // ns of CPU time of the target
	Idle   float64 // share of all CPUs' time in which nothing ran, since the call before; below 0: not known
}

// Limits of the governor.
const (
	// governEvery is how far apart, in ns, its looks are, governSoon at the beginning.
	governEvery = 1_000_000_000
	governSoon  = 250_000_000
	soonLooks   = 12
	// settles is for how long, in ns, after the first sample it waits: files are read then.
	settles = 300_000_000
	// idleWeight is what own work counts where CPUs are idle: from a share of idleFrom on, and until
	// it falls below idleUntil.
	idleWeight          = .2
	idleFrom, idleUntil = .4, .25
	// politeWeight is what work of low priority counts.
	politeWeight = .25
	// mostNap is the most that it makes sleepers nap (64 ticks), mostStretch how much longer
	// than chosen it makes the interval.
	mostNap     = 6
	mostStretch = 64
	// lowLooks is how often in a row the cost has to be below lowShare of the bound before
	// looks come closer again.
	lowLooks = 2
	// highLooks is how often in a row it has to be above the bound before the interval is stretched.
	highLooks = 2
	lowShare  = .6
	// aim is the share of the bound that a correction aims at.
	aim = .8
	// leastTarget is the CPU time of the target, as a share of the time, below which stops hold nothing up.
	leastTarget = .02
)

// governor holds the bound. Which group is at work in it changes.
type governor struct {
	target CostTarget   // nil: there is nothing to know
	due    atomic.Int64 // when it looks next

	mu    sync.Mutex // guards what follows
	begun bool
	looks int
	low   int
	high  int
	idle  bool
	was   ledger
	from  ledger // as of the beginning

	// For any goroutine: how much the interval is stretched, as bits of a float64.
	stretch atomic.Uint64
	most    atomic.Int32 // the most that sleepers had to nap
}

// ledger is what the governor adds up.
type ledger struct {
	at            stack.Time
	costs         Costs
	spent, held   int64
	asleep, awake uint64
}

func (s *Sampler) ledger(now stack.Time) (l ledger) {
	l.at, l.costs, l.held = now, s.gov.target.Costs(), s.Held()
	for _, g := range s.groups {
		l.spent += g.spentAll.Load()
		l.asleep += g.asleep.Load()
		l.awake += g.awakes.Load()
	}
	return l
}

// factor is how much longer than chosen the interval is.
func (v *governor) factor() float64 {
	if b := v.stretch.Load(); b != 0 {
		return math.Float64frombits(b)
	}
	return 1
}

// govern is called by groups between two rounds.
func (s *Sampler) govern(now stack.Time) {
	v := &s.gov
	due := v.due.Load()
	if v.target == nil || s.cfg.MaxOverhead <= 0 || s.cfg.OverheadOfCPU || int64(now) < due || s.first.Load() == 0 || !v.due.CompareAndSwap(due, int64(now)+governSoon) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.begun {
		if int64(now) < s.first.Load()+settles {
			return
		}
		v.begun = true
		v.was = s.ledger(now)
		v.from = v.was
		return
	}
	l := s.ledger(now)
	cost, sleepers := v.cost(&l, s.cpus)
	v.was = l
	if v.looks++; v.looks >= soonLooks {
		v.due.Store(int64(now) + governEvery)
	}
	v.steer(s, cost, sleepers)
}

// cost is what the time since the last look cost the target, as a share of what it could do,
// and which part of the looks at threads was at sleeping ones.
func (v *governor) cost(l *ledger, cpus int) (cost, sleepers float64) {
	since := float64(l.at - v.was.at)
	if l.costs.Idle >= idleFrom {
		v.idle = true
	} else if l.costs.Idle < idleUntil {
		v.idle = false
	}
	weight := 1.
	if v.idle {
		weight = idleWeight
	}
	// The rest of this program has a low priority, and what is not made for samples, such as reading
	// files, does not get less by fewer samples.
	spent := l.spent - v.was.spent
	own := float64(spent) + politeWeight*float64(max(min(l.costs.Own-v.was.costs.Own-spent, spent), 0))
	cost = weight * own / since / float64(cpus)
	if ran := float64(l.costs.Target - v.was.costs.Target); ran > leastTarget*since {
		cost += float64(l.held-v.was.held) / ran
	}
	asleep, awake := float64(l.asleep-v.was.asleep), float64(l.awake-v.was.awake)
	return cost, asleep / max(asleep+awake, 1)
}

// steer moves the two levers.
func (v *governor) steer(s *Sampler, cost, sleepers float64) {
	limit := s.cfg.MaxOverhead
	factor, nap := v.factor(), s.napLeast.Load()
	switch {
	case cost > limit:
		v.low = 0
		v.high++
		over := min(cost/(aim*limit), 2)
		if sleepers > .25 && nap < mostNap {
			v.high = 0
			nap = min(nap+int32(math.Ceil(math.Log2(over))), mostNap)
			break
		}
		if v.high < highLooks { // other work that comes and goes, or the last correction
			return
		}
		v.high = 0
		factor = min(factor*over, mostStretch, float64(MaxInterval)/float64(s.ivl.Load()))
	case cost < lowShare*limit:
		v.high = 0
		if v.low++; v.low < lowLooks {
			return
		}
		v.low = 0
		if factor > 1 {
			if factor *= max(cost/(aim*limit), .5); factor < 1.1 {
				factor = 1
			}
		} else if nap > 0 {
			nap--
		}
	default:
		v.low, v.high = 0, 0
	}
	s.napLeast.Store(nap)
	v.most.Store(max(v.most.Load(), nap))
	if was := v.factor(); factor != was {
		v.stretch.Store(math.Float64bits(factor))
	}
}

// Cost is what a recording has cost so far.
type Cost struct {
	Bound    float64 // Config.MaxOverhead
	Own      float64 // CPU time of this program, as a share of all CPUs' time
	Stops    float64 // time for which stops held threads, as a share of the target's CPU time; 0 where that is next to nothing
	Factor   float64 // how much longer than chosen the interval is now
	Naps     int     // the most ticks that sleeping threads had to be left alone for the bound
	CPUs     int
	Measured bool // Own and Stops are known
}

// Cost may be called by any goroutine.
func (s *Sampler) Cost(now stack.Time) Cost {
	v := &s.gov
	c := Cost{Bound: s.cfg.MaxOverhead, Factor: v.factor(), Naps: 1 << v.most.Load(), CPUs: s.cpus}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.begun || now <= v.from.at {
		return c
	}
	x := v.target.Costs()
	since := float64(now - v.from.at)
	c.Measured = true
	c.Own = float64(x.Own-v.from.costs.Own) / since / float64(s.cpus)
	if ran := float64(x.Target - v.from.costs.Target); ran > leastTarget*since {
		c.Stops = float64(s.Held()-v.from.held) / ran
	}
	return c
}
