package sampler

import "github.com/sliverprof/sliver/stack"

// Where samples are far apart, the counters of a thread that sleeps often and for moments
// only say that it has slept for long since its last sample, so that it may be on its way
// out of a call that a stop would have start anew (mayLeave). Whether it is on a CPU could
// tell, but that is dear to find out, and on a busy machine it mostly waits for one. So
// such threads have their counters read once more a moment before the tick: one that ran
// since then has left the call that it was in, and no later one has lasted for long. So do
// the counters of a tick that was left out for that: else a thread that computes, and seldom
// has a CPU at the very moment of a tick, would have no sample for as long as it does.

const (
	// eveFor, in ns, is how long before a tick that is: shorter than a call that may start anew,
	// long enough for a thread that waits for a CPU to have had one.
	eveFor = 12_000_000
	// waryFor is for how many samples it is done after one that needed it.
	waryFor = 32
)

// eve reads the counters of those threads where the time has come, and says until when
// the group may sleep before its next tick.
func (g *group) eve(now stack.Time) (until stack.Time) {
	at := g.tick.due - eveFor
	if g.tick.every <= longCall || g.eves == 0 || g.eveOf == g.tick.due {
		return g.tick.due
	}
	if now < at {
		return at
	}
	g.eveOf, g.eves = g.tick.due, 0
	for _, th := range g.threads {
		if th.wary == 0 || th.dropped.Load() || len(th.coming) > 0 {
			continue
		}
		g.eves++
		at := g.tracer.Now() // before the counters
		if th.file.Counters(&th.eve) == nil {
			th.eveAt = at
		}
	}
	return g.tick.due
}

// warily has the counters of a thread read before its next ticks, where these are so far
// apart that it tells.
func (g *group) warily(th *thread) {
	if g.tick.every <= longCall {
		return
	}
	th.wary = waryFor
	g.eves++
}

// wentOn reports whether a thread whose counters are c is in no call that has lasted for
// long: it has run since its counters were read last, and cannot have slept for long since.
func (th *thread) wentOn(c *Counters, at stack.Time) bool {
	ran := c.CPU - th.eve.CPU
	return th.eveAt != 0 && ran > leaveFor && int64(at-th.eveAt)-ran-(c.Delay-th.eve.Delay) <= longCall
}

// mayLeave reports whether a thread that runs may be on its way out of a call
// with a timeout that has lasted for long: it was asleep in one at the last look, and
// has not used a CPU for a while since, or it has slept since then without being looked at.
func (g *group) mayLeave(th *thread, c *Counters, at stack.Time) bool {
	if g.s.cfg.Delays == nil {
		return false
	}
	if !th.started {
		if th.firstAt == 0 {
			th.firstAt, th.counters = at, *c
		}
		return *c == th.counters
	}
	if c.Switches == th.counters.Switches {
		return false
	}
	ran := c.CPU - th.counters.CPU
	if th.blocked && ran <= 10*leaveFor {
		return th.file.TimesOut(&th.call)
	}
	if int64(at)-th.acc.to.Load()-ran-(c.Delay-th.counters.Delay) <= longCall {
		return false
	}
	g.warily(th)
	return !th.wentOn(c, at)
}
