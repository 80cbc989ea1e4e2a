package sampler

import (
	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// Most threads of a process with many of them hardly ever run: they wait for work, or wake
// now and then for some microseconds. To look at each of them at each tick costs more than
// all else. So a thread that has slept at its last looks, but for a small share of the
// time, naps: it is looked at each 2nd, 4th or 8th tick. Where its counters have not changed
// by the next look, it has slept at the ticks between and these have their samples, as
// the same stack. Where they have, the number of switches and the CPU time say what is
// missing, and the ticks count as rested. A Rate event in the recording gives the new
// interval.
//
// Only groups with more than fewSleep threads do this, unless the bound of overhead asks
// for more (govern.go).
const (
	// napAfter is how many calm looks in a row make a thread nap, or nap longer.
	napAfter = 8
	// napMost is the most that the number of ticks between two looks may be doubled.
	napMost = 3
	// calmShare and wakeShare are parts of the time, as divisors: a thread that runs less than the
	// one is calm, one that runs more than the other naps no longer.
	calmShare = 256
	wakeShare = 32
)

// nap is a thread's part in it.
type nap struct {
	level int        // it is looked at each 1<<level-th tick
	calm  int        // calm looks in a row at this level
	skips int        // ticks since the last look
	last  stack.Time // the last of these
	cpu   int64      // as of the last look
	at    stack.Time // when that was; 0: never
}

// naps reports whether this tick of a thread that slept is left out. Different threads
// have their looks at different ticks.
func (g *group) naps(th *thread) bool {
	n := &th.nap
	level := n.level
	if least := int(g.s.napLeast.Load()); level < least {
		level = least
	}
	if level == 0 || len(g.threads) <= fewSleep || g.dozing.whole || th.blind || th.stale || !th.blocked || len(th.coming) > 0 || th.unsure || th.held > 0 || th.dropped.Load() ||
		(g.tick.k+int64(th.info.TID))&(1<<level-1) == 0 {
		return false
	}
	n.skips++
	n.last = g.tick.due
	return true
}

// awake ends the ticks that were left out, now that the thread is known to have slept
// until now (same) or not.
func (g *group) awake(th *thread, same bool) {
	n := &th.nap
	if n.skips == 0 {
		return
	}
	skips := n.skips
	n.skips = 0
	if !same {
		th.acc.rested.Add(uint64(skips))
		return
	}
	g.unrunMany(th, n.last, skips)
}

// calmly notes at a look how much the thread has run since the last one.
func (g *group) calmly(th *thread, c *Counters, at stack.Time) {
	n := &th.nap
	ran, since := c.CPU-n.cpu, int64(at-n.at)
	first := n.at == 0
	n.cpu, n.at = c.CPU, at
	if first || since <= 0 || len(g.threads) <= fewSleep {
		return
	}
	was := n.level
	switch {
	case ran < since/calmShare:
		if n.calm++; n.calm >= napAfter && n.level < napMost {
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
