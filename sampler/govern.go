package sampler

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
)

// A recording costs its target the time for which stops hold its threads, and this program's own
// work. Own work counts fully if no CPU is idle, and in part if some are (caches, threads that
// have to move). Config.MaxOverhead bounds the sum. Each thread's budget (budget.go) keeps stops
// alone below the bound; the governor checks both periodically. If they exceed the bound, it
// first samples sleeping threads less often and then stretches the interval of all threads.

// Costs are cumulative accounts since an arbitrary start.
type Costs struct {
	Own    int64   // CPU time of this program in ns, with the Engines' helpers
	Target int64   // CPU time of the target in ns
	Idle   float64 // share of all CPUs' time that was idle since the previous call; below 0: unknown

	IdleTicks, Ticks uint64 // idle and whole time of all CPUs since boot, in clock ticks; 0, 0: unknown
}

// Limits of the governor.
const (
	// governEvery is the time, in ns, between two checks; governSoon applies to the first
	// soonLooks, and governFirst to the first one: it decides about naps alone.
	governEvery = 1_000_000_000
	governSoon  = 250_000_000
	governFirst = 100_000_000
	soonLooks   = 12
	// settles is the wait, in ns, after the first sample, while files are read.
	settles = 150_000_000
	// idleWeight is the weight of own work while CPUs are idle. That state begins at an idle
	// share of idleFrom and ends below idleUntil.
	idleWeight          = .2
	idleFrom, idleUntil = .4, .25
	// politeWeight is the weight of low-priority work.
	politeWeight = .25
	// mostNap limits how long sleepers nap (64 ticks); mostStretch limits the factor on the
	// chosen interval.
	mostNap     = 6
	mostStretch = 64
	// dozeStretch limits it where looks at dozing threads alone exceed the bound. Each is looked at once in dozeSpan in any
	// case, so a longer interval saves little, and takes the samples of the threads that run. stopLooks is how many
	// looks at sleepers cost as much as one at a thread that runs.
	dozeStretch, stopLooks = 8, 8
	// mostLeap bounds the factor on naps of one correction.
	mostLeap = 4
	// leapShare is the share of looks at sleepers, below which those that find one that ran permit that.
	leapShare = 1. / 16
	// lowLooks is how many checks in a row must find a cost below lowShare of the bound before
	// sampling becomes denser again.
	lowLooks = 2
	// highLooks is how many checks in a row must exceed the bound before the interval is
	// stretched.
	highLooks = 2
	lowShare  = .6
	// aim is the share of the bound that a correction targets.
	aim = .8
	// leastTarget is a share of CPU time; if the target uses less, the cost of stops is ignored.
	leastTarget = .02
)

// governor enforces the bound. Any group may run it, one at a time.
type governor struct {
	due atomic.Int64 // time of the next check
	// napLeast is the least nap level of sleeping threads.
	napLeast atomic.Int32

	mu    sync.Mutex // guards what follows
	begun bool
	leaps bool  // since the last check, sleepers hardly ever ran: naps lose nothing
	naps  int32 // level of the mean nap of sleepers since the last check
	looks int
	low   int
	high  int
	idle  bool
	was   ledger
	from  ledger // at the start

	// stretch is the factor on the interval, as bits of a float64; any goroutine may read it.
	stretch atomic.Uint64
	most    atomic.Int32 // the longest nap level so far
}

// ledger holds the sums that the governor compares.
type ledger struct {
	at            stack.Time
	costs         Costs
	spent, held   int64
	dense         int64 // part of held that the interval does not change
	asleep, awake uint64
	moved         uint64
}

// ledger returns the sums as of now; ok is false if the target does not know its costs.
func (s *Sampler) ledger(now stack.Time) (l ledger, ok bool) {
	if l.costs, ok = s.target.Costs(); !ok {
		return l, false
	}
	l.at, l.dense, l.held, l.spent = now, s.clocks.dense.Load(), s.Held(), s.spent()
	l.asleep, l.awake = s.looks()
	for _, g := range s.groups {
		l.moved += g.tally.moved.Load()
	}
	return l, true
}

// looks returns how many looks were at threads that slept, and at others.
func (s *Sampler) looks() (asleep, awake uint64) {
	for _, g := range s.groups {
		asleep += g.tally.asleep.Load()
		awake += g.tally.awakes.Load()
	}
	return asleep, awake
}

// factor returns the current factor on the chosen interval.
func (v *governor) factor() float64 {
	if b := v.stretch.Load(); b != 0 {
		return math.Float64frombits(b)
	}
	return 1
}

// govern runs a check if one is due. Groups call it between two rounds. Without a bound of its own, it measures
// the cost for Config.Limit, unless s shares its OS thread: another Sampler then measures the cost of all.
func (s *Sampler) govern(now stack.Time) {
	v := &s.gov
	bounds := s.cfg.MaxOverhead > 0 && !s.cfg.OverheadOfCPU
	if !bounds && (s.cfg.Limit == nil || s.cfg.Hosts != nil) || !v.isDue(s, now) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.begun {
		if from := s.run.first.Load() + settles; int64(now) < from {
			v.due.Store(from)
			return
		}
		v.was, v.begun = s.ledger(now)
		v.from = v.was
		v.due.Store(int64(now) + governFirst)
		return
	}
	if !bounds { // Cost needs the start alone
		v.due.Store(math.MaxInt64)
		return
	}
	l, ok := s.ledger(now)
	if !ok {
		return
	}
	cost, sleepers := v.cost(&l, s.cpus)
	v.napped(l.asleep-v.was.asleep, float64(l.at-v.was.at)/float64(s.ctl.ivl.Load())/v.factor()*float64(s.Threads()))
	v.was = l
	v.looked(now)
	v.steer(s, cost/s.cfg.MaxOverhead, sleepers)
	if v.looks == 1 {
		v.high = min(v.high, 0)
	}
}

// isDue reports whether a check is due, and takes it for the caller.
func (v *governor) isDue(s *Sampler, now stack.Time) bool {
	due := v.due.Load()
	return int64(now) >= due && s.run.first.Load() != 0 && v.due.CompareAndSwap(due, int64(now)+governSoon)
}

// looked counts a check; after the first ones, they are farther apart. v.mu is held.
func (v *governor) looked(now stack.Time) {
	if v.looks++; v.looks >= soonLooks {
		v.due.Store(int64(now) + governEvery)
	}
}

// cost returns the cost since the last check, as a share of the target's possible work, and the
// share of looks that were at sleeping threads.
func (v *governor) cost(l *ledger, cpus int) (cost, sleepers float64) {
	since := float64(l.at - v.was.at)
	v.idles(l.costs.Idle)
	weight := 1.
	if v.idle {
		weight = idleWeight
	}
	// The rest of this program has a low priority, and fewer samples do not reduce its other
	// work, such as reading files.
	spent := l.spent - v.was.spent
	own := float64(spent) + politeWeight*float64(max(min(l.costs.Own-v.was.costs.Own-spent, spent), 0))
	cost = weight * own / since / float64(cpus)
	if ran := float64(l.costs.Target - v.was.costs.Target); ran > leastTarget*since {
		cost += float64(l.held-v.was.held-(l.dense-v.was.dense)) / ran
	}
	asleep, awake := float64(l.asleep-v.was.asleep), float64(l.awake-v.was.awake)
	v.leaps = float64(l.moved-v.was.moved) < leapShare*asleep
	return cost, asleep / max(asleep+awake, 1)
}

// napped notes that there were looks at sleepers, of all threads' ticks.
func (v *governor) napped(looks uint64, ticks float64) {
	v.naps = int32(min(max(math.Log2(ticks/float64(max(looks, 1))), 0), napMost))
}

// idles notes the share of all CPUs' time that was idle; below 0, unknown, counts as none.
func (v *governor) idles(share float64) {
	if share >= idleFrom {
		v.idle = true
	} else if share < idleUntil {
		v.idle = false
	}
}

// idleShare returns the idle share of all CPUs' time; -1: unknown.
func idleShare(idle, all uint64) float64 {
	if all == 0 {
		return -1
	}
	return float64(idle) / float64(all)
}

// steer adjusts the naps and the interval. load is the cost as a part of the bound.
func (v *governor) steer(s *Sampler, load, sleepers float64) {
	factor, nap := v.factor(), v.napLeast.Load()
	switch {
	case load > 1:
		v.low = 0
		v.high++
		over := min(load/aim, 2)
		if sleepers > .25 && nap < mostNap {
			was := nap
			nap = v.longer(nap, load/aim)
			// The interval grows as late as after corrections by one level: the start costs more than what follows.
			v.high = min(v.high, 0) + 1 - int(nap-was)
			break
		}
		if v.high < highLooks { // transient other work, or the last correction has not settled yet
			return
		}
		v.high = 0
		most := float64(mostStretch)
		if s.doze.applies() && load*awakeShare(sleepers) <= 1 {
			most = max(factor, dozeStretch)
		}
		factor = min(factor*over, most, float64(MaxInterval)/float64(s.ctl.ivl.Load()))
	case load < lowShare:
		v.high = 0
		if v.low++; v.low < lowLooks {
			return
		}
		v.low = 0
		if factor > 1 {
			if factor *= max(load/aim, .5); factor < 1.1 {
				factor = 1
			}
		} else if nap > 0 {
			nap--
		}
	default:
		v.low, v.high = 0, 0
	}
	v.napLeast.Store(nap)
	v.most.Store(max(v.most.Load(), nap))
	if was := v.factor(); factor != was {
		v.stretch.Store(math.Float64bits(factor))
	}
}

// awakeShare is the share of the cost that is due to threads that run, if that share of the looks is at sleepers.
func awakeShare(sleepers float64) float64 {
	awake := (1 - sleepers) * stopLooks
	return awake / max(awake+sleepers, 1e-9)
}

// longer returns the next nap level of sleepers that cost over times too much. They nap up to napMost on their own,
// and levels up to that of their mean nap change nothing. Naps that lose samples are rather too short.
func (v *governor) longer(nap int32, over float64) int32 {
	more := math.Log2(min(over, mostLeap))
	if v.leaps {
		nap, more = max(nap, napMost), math.Ceil(more)
	} else {
		nap, more = max(nap, v.naps), max(math.Floor(more), 1)
	}
	return min(nap+int32(more), mostNap)
}

// leastCost is for how long, in ns, a cost must have been measured: the CPU time is read some ms after sampling has ended.
const leastCost = 100_000_000

// Cost is the cost of a recording so far.
type Cost struct {
	Bound    float64 // Config.MaxOverhead
	Limit    float64 // of Config.Limit, as a share of one CPU; 0: none
	Limited  bool    // it has stretched the interval
	Busy     float64 // of Config.Limit: its Bounds.Busy if that has stretched the interval at least once; 0: it has not
	Own      float64 // CPU time of this program, as a share of all CPUs' time
	Stops    float64 // time for which stops held threads, as a share of the target's CPU time; 0 if that is negligible
	Factor   float64 // current factor on the chosen interval
	Naps     int     // the most ticks for which sleeping threads were not sampled because of the bound
	CPUs     int
	Measured bool // Own and Stops are known
}

// Cost returns the cost so far. Any goroutine may call it.
func (s *Sampler) Cost(now stack.Time) Cost {
	v := &s.gov
	c := Cost{Bound: s.cfg.MaxOverhead, Factor: s.factor(), Naps: 1 << v.most.Load(), CPUs: s.cpus}
	if s.cfg.Limit != nil {
		l := s.cfg.Limit
		if n := l.v.most.Load(); n > 0 {
			c.Naps = max(c.Naps, 1<<(napMost+min(n, moreNaps)))
		}
		if c.Limit, c.Limited = l.b.Share, l.factor() > v.factor(); l.full.Load() >= highLooks {
			c.Busy = l.b.Busy
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.begun || now < v.from.at+leastCost {
		return c
	}
	x, ok := s.target.Costs()
	if !ok {
		return c
	}
	since := float64(now - v.from.at)
	c.Measured = true
	c.Own = float64(x.Own-v.from.costs.Own) / since / float64(s.cpus)
	if ran := float64(x.Target - v.from.costs.Target); ran > leastTarget*since {
		c.Stops = float64(s.Held()-v.from.held) / ran
	}
	return c
}
