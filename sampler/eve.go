package sampler

import "github.com/sliverprof/sliver/stack"

// Early counters: if samples are far apart, the counters of a thread that often sleeps for a
// moment only show that it has slept for long since its last sample. It may then be leaving a
// call that a stop would restart (mayLeave). Checking whether it is on a CPU would decide that,
// but is expensive, and on a busy machine the thread mostly waits for one. So the counters of
// such a thread are read once more a moment before the tick. If it ran since then, it has left
// the earlier call, and no later call has lasted for long. The counters of a tick that was left
// out for this reason serve the same way. Without them, a computing thread that seldom has a CPU
// at the moment of a tick would get no sample at all.

const (
	// eveFor, in ns, is how long before a tick the counters are read: shorter than a call that
	// may restart, and long enough for a thread that waits for a CPU to get one.
	eveFor = 12_000_000
	// waryFor is for how many samples this is done after a sample that needed it.
	waryFor = 32
)

// eve reads those counters once they are due, and returns the time until which the group may
// sleep before its next tick.
func (g *group) eve(now stack.Time) (until stack.Time) {
	at := g.tick.due - eveFor
	if g.tick.every <= longCall || g.extra.eves == 0 || g.extra.eveOf == g.tick.due {
		return g.tick.due
	}
	if now < at {
		return at
	}
	g.extra.eveOf, g.extra.eves = g.tick.due, 0
	for _, th := range g.threads {
		if th.leave.early.samples == 0 || th.life.dropped.Load() || th.pend.is == awaited {
			continue
		}
		g.extra.eves++
		at := g.engine.Now() // before the counters
		if th.file.Counters(&th.leave.early.Counters) == nil {
			th.leave.early.at = at
		}
	}
	return g.tick.due
}

// warily makes eve read the thread's counters before its next ticks, if ticks are far enough
// apart for that to help.
func (g *group) warily(th *thread) {
	if g.tick.every <= longCall {
		return
	}
	th.leave.early.samples = waryFor
	g.extra.eves++
}

// early is a thread's last early counters.
type early struct {
	Counters
	at      stack.Time // 0: there are none
	samples int        // for this many samples they are still read
}

// wentOn reports whether a thread with counters c is not in a long-lasting call: it has run since
// the early counters and cannot have slept for long since.
func (e *early) wentOn(c *Counters, at stack.Time) bool {
	ran := c.CPU - e.CPU
	return e.at != 0 && ran > leaveFor && int64(at-e.at)-ran-(c.Delay-e.Delay) <= longCall
}

// mayLeave reports whether a running thread may be leaving a call with a timeout that has lasted
// for long. Either it was asleep in such a call at the last look and has hardly used a CPU since,
// or it has slept since then without being looked at.
func (g *group) mayLeave(th *thread, c *Counters, at stack.Time) bool {
	if g.s.cfg.Delays == nil {
		return false
	}
	if !th.life.started {
		if th.seen.firstAt == 0 {
			th.seen.firstAt, th.seen.counters = at, *c
		}
		return *c == th.seen.counters
	}
	if c.Switches == th.seen.counters.Switches {
		return false
	}
	ran := c.CPU - th.seen.counters.CPU
	if th.seen.blocked && ran <= 10*leaveFor {
		return th.file.TimesOut(&th.seen.call)
	}
	if int64(at)-th.acc.to.Load()-ran-(c.Delay-th.seen.counters.Delay) <= longCall {
		return false
	}
	g.warily(th)
	return !th.leave.early.wentOn(c, at)
}
