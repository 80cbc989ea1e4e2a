package sampler

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// In a process with many threads, most hardly ever run: they wait for work, or wake now and then
// for some microseconds. Looking at each of them at each tick costs more than everything else. So
// a thread that has slept at its last looks, except for a small share of the time, naps: it is
// looked at each 2nd, 4th or 8th tick. If its counters have not changed by the next look, it has
// slept at the ticks between, and these get samples with the same stack. If they have, the number
// of switches and the CPU time show the rest, and the ticks count as rested. A Rate event
// in the recording gives the new interval.
//
// A thread that hardly ran before the recording, and not between the reading of its facts and its first look or
// between its first two looks, naps at once. Otherwise thousands of them would be looked at tick by tick when they are
// taken up.
//
// Only groups with more than fewSleep threads do this, and those of more than fewSleep processes with a common
// Limit. The overhead bound may require more (govern.go).
const (
	// napAfter is how many calm looks in a row make a thread nap, or nap longer.
	napAfter = 8
	// napMost is how often the number of ticks between two looks may be doubled; a Limit may require more.
	napMost = 3
	// calmShare and wakeShare are divisors of the time. A thread that runs less than the first
	// share is calm; one that runs more than the second stops napping.
	calmShare = 256
	wakeShare = 32
	// oldFor is how long, in ns, a thread must have lived for its counters to show that it hardly runs, and for how long it
	// slept each time.
	oldFor = 1_000_000_000
)

// few reports whether no thread of the group naps.
func (g *group) few() bool { return len(g.threads) <= fewSleep && !g.s.cfg.Limit.many() }

// nap is a thread's state for napping.
type nap struct {
	level int        // the thread is looked at each 1<<level-th tick
	calm  int        // calm looks in a row at this level
	cpu   int64      // CPU time at the last look
	at    stack.Time // time of the last look; 0: never
	// judged: a look has decided whether its life so far lets it nap.
	judged bool
}

// naps reports whether this tick of a sleeping thread is left out. Different threads are looked
// at in different ticks.
func (g *group) naps(th *thread) bool {
	level := g.napLevel(th)
	return level > 0 && g.napFor(th, level) > 0 && th.pend.skip(g.tick.due)
}

// napLevel returns the n for which th is looked at each 1<<n-th tick.
func (g *group) napLevel(th *thread) int {
	level := max(th.sleep.nap.level, int(g.s.gov.napLeast.Load()))
	if th.sleep.doze.on && g.s.doze.taking.Load() {
		level = max(level, g.dozeLevel())
	}
	if level == 0 || g.few() || g.dozing.whole || th.seen.stale || !th.seen.blocked || th.gaps.held > 0 || th.life.dropped.Load() {
		return 0
	}
	return level
}

// napFor returns how many ticks from now on a thread with that level is not looked at. The threads of a large group
// take turns, at long naps in each second, fourth or eighth tick only. Those of a host's small groups are looked at in
// the same ticks. So the group or host sleeps through the others.
func (g *group) napFor(th *thread, level int) int64 {
	k := g.tick.first + g.tick.k
	if len(g.threads) > fewSleep {
		k = g.tick.k + int64(th.info.TID)<<max(level-napMost, 0)
	}
	return -k & (1<<level - 1)
}

// planNaps finds the next tick at which a thread of the group is looked at, or the clock of dozing ones is read. With
// hundreds of processes of one thread each, most groups have nothing to do at most ticks, and their hosts leave them out
// until then.
func (g *group) planNaps() {
	g.pass.napTo = 0
	if g.dozing.on {
		g.pass.napTo = g.dozeTo()
		return
	}
	large := len(g.threads) > fewSleep
	if len(g.threads) == 0 || g.extra.eves > 0 || g.extra.again != 0 || large == (g.hosted != nil) || !large && g.alone() {
		return
	}
	first := int64(1) << mostNap
	for _, th := range g.threads {
		level := g.napLevel(th)
		if level == 0 || th.pend.is != settled && th.pend.is != napping {
			return
		}
		first = min(first, g.napFor(th, level))
	}
	g.pass.napTo = g.tick.k + first
}

// passNaps opens the ticks of planNaps that have passed.
func (g *group) passNaps(now stack.Time) {
	if g.dozing.on {
		g.passDozed(now)
	}
	for g.tick.k < g.pass.napTo && g.tick.due <= now {
		for _, th := range g.threads {
			th.pend.skip(g.tick.due)
		}
		g.tick.k++
		g.tick.due = g.tick.dueOf(g.tick.k)
	}
}

// allNap reports whether no thread is looked at before the time that it returns.
func (g *group) allNap(now stack.Time) (until stack.Time, ok bool) {
	g.passNaps(now)
	if g.tick.k >= g.pass.napTo || g.s.ctl.execs.Load() != g.image.execs || g.s.target.Space().Runtimes() != g.image.runtimes {
		g.pass.napTo = 0
		return 0, false
	}
	return g.tick.dueOf(g.pass.napTo), true
}

// awake resolves the ticks that were left out. same: the thread is known to have slept until now.
func (g *group) awake(th *thread, same bool) {
	if th.pend.is != napping {
		return
	}
	th.pend.to(resolved)
	skips := th.pend.skips
	th.pend.skips = 0
	if !same {
		th.acc.rested.Add(uint64(skips))
		return
	}
	g.unrunMany(th, th.pend.last, skips)
}

// hardlyRan reports whether a thread hardly ran in a life of age ns.
func hardlyRan(c *Counters, age int64) bool {
	return age >= oldFor && c.CPU <= age/calmShare
}

// seldomWoke reports whether a thread seldom woke in a life of age ns.
func seldomWoke(c *Counters, age int64) bool { return int64(c.Switches) <= 2*age/oldFor }

// calmly records at a look how much the thread has run since the last one. same: it has not.
func (g *group) calmly(th *thread, c *Counters, at stack.Time, same bool) {
	n := &th.sleep.nap
	ran, since := c.CPU-n.cpu, int64(at-n.at)
	first := n.at == 0
	n.cpu, n.at = c.CPU, at
	if since <= 0 || g.few() {
		return
	}
	same = same || first && c.CPU == th.info.CPU
	was, most := n.level, g.s.cfg.Limit.napMost()
	age := int64(at - th.info.Born)
	old := !n.judged && same && hardlyRan(c, age)
	n.judged = old || !first
	switch {
	case old:
		n.level, n.calm = napMost, 0
		th.sleep.doze.soon = seldomWoke(c, age)
	case first:
	case n.level > most:
		n.level, n.calm = most, 0
	case ran < since/calmShare:
		if n.calm++; n.calm >= napAfter && n.level < most {
			n.level++
			n.calm = 0
		}
	case ran > since/wakeShare:
		n.level, n.calm = 0, 0
	default:
		n.level, n.calm = max(n.level-1, 0), 0
	}
	if n.level != was {
		th.sink.Event(at, event.Rate, uint64(g.tick.every<<n.level))
	}
}
