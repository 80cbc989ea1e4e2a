package sampler

import "github.com/sliverprof/sliver/stack"

// A thread that waits for a CPU, perhaps to leave a call, is not to be stopped
// (mayLeave). On a busy machine a thread is found so more often than not. Where
// ticks are far apart, such a tick is not lost: the thread is looked at again while it
// lasts, until it has run.

const (
	// againEach, in ns, is how far apart these looks are: what has run since the one before
	// has not slept for long since.
	againEach = eveFor
	// againMost is how many of them a tick may have.
	againMost = 8
)

// unsure has a tick of a thread for which it could not be told whether it may be stopped,
// and reports whether the thread is looked at again for it.
func (g *group) unsure(th *thread, now stack.Time) bool {
	if g.tick.every <= 2*againEach || th.looks >= againMost {
		return false
	}
	th.unsure = true
	if g.again == 0 {
		g.again = now + againEach
	}
	return true
}

// lookAgain looks at those again where the time has come, and says until when the group may
// sleep for them.
func (g *group) lookAgain(now stack.Time) (until stack.Time) {
	if g.again != 0 && now >= g.again {
		g.again = 0
		g.visitUnsure()
	}
	if g.again == 0 {
		return g.tick.due
	}
	return min(g.again, g.tick.due)
}

// visitUnsure looks at all of them.
func (g *group) visitUnsure() {
	for _, th := range g.threads {
		if !th.unsure || len(th.coming) > 0 || th.ended {
			continue
		}
		th.unsure = false
		th.looks++
		at := g.tracer.Now() // before the counters
		var c Counters
		if th.file.Counters(&c) == nil && c == th.eve {
			th.eveAt = at
			g.failed(th, ErrUnsure) // it has not run at all
			continue
		}
		g.visit(th, false)
		g.askSoon()
	}
	g.ask()
}

// sure counts the tick as left out for which a thread was still to be looked at again.
func (g *group) sure(th *thread) {
	if !th.unsure {
		return
	}
	th.unsure = false
	if len(th.coming) == 0 {
		g.miss(th, g.tracer.Now(), 1)
	}
}
