package sampler

import (
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
)

// Groups have priority over all other work where permissions allow it. If their load exceeded the
// CPUs, nothing else of this program would run: neither the file writer nor signal handling. So
// all groups together may use at most breathShare of the time of all CPUs. A group that has used
// up its part sleeps in the middle of its round, and the ticks it misses count as late.
const (
	breathShare = .75
	// breathAfter is how much CPU time, in ns, a group may overdraw.
	breathAfter = 5_000_000
	// breathEach is the time, in ns, between two readings of a group's CPU time.
	breathEach = 1_000_000
)

// breath is a group's account of its CPU time.
type breath struct {
	at      stack.Time   // last update
	thread  int64        // CPU time of the OS thread at the last update; a host's guests share host.counted
	helpers int64        // the same of the engine's helpers
	debt    float64      // ns of work to compensate by sleep
	all     atomic.Int64 // CPU time of the group until the last update, for other goroutines
}

// exclude leaves out what the OS thread and the helpers have worked so far, since the last call of worked: for earlier
// groups, to begin this one, or for the first look at a thread. No interval makes these rarer. The caller is the
// group's goroutine.
func (g *group) exclude() {
	thread, helpers := g.engine.Spent()
	g.breath.helpers = helpers
	if g.hosted == nil {
		g.breath.thread = thread
	} else {
		g.hosted.host.Load().counted = thread
	}
}

// worked returns the CPU time since the last call. All work of a host since the last call for any guest counts as
// work for g, so the sum over all guests is the host's.
func (g *group) worked() int64 {
	thread, helpers := g.engine.Spent()
	from := &g.breath.thread
	if g.hosted != nil {
		from = &g.hosted.host.Load().counted
	}
	n := thread - *from + helpers - g.breath.helpers
	*from, g.breath.helpers = thread, helpers
	g.breath.all.Add(n)
	return n
}

// restShare returns how many ns a group has to sleep for each ns of work; 0: none.
func (s *Sampler) restShare() float64 {
	return max(float64(s.run.working.Load())/(breathShare*float64(s.cpus))-1, 0)
}

// account updates the account: all time that the group did not work counts as sleep.
func (g *group) account(now stack.Time) (rest float64) {
	b := &g.breath
	worked, all := float64(g.worked()), float64(now-b.at)
	b.at = now
	rest = g.s.restShare()
	if rest == 0 {
		b.debt = 0
		return 0
	}
	b.debt = max(b.debt+worked-max(all-worked, 0)/rest, 0)
	return rest
}

// breathe sleeps if the group has recently worked too much.
func (g *group) breathe() {
	b := &g.breath
	now := g.engine.Now()
	if now-b.at < breathEach {
		return
	}
	if rest := g.account(now); b.debt > breathAfter && g.hosted == nil {
		until := now + stack.Time(b.debt*rest)
		if end := stack.Time(g.s.run.end.Load()); end > 0 {
			until = min(until, end)
		}
		g.engine.SleepUntil(until)
	}
}
