package sampler

import "github.com/sliverprof/sliver/stack"

// A thread that waits for a CPU, possibly to leave a call, must not be stopped (mayLeave). On a
// busy machine this is the most frequent state of a thread. If ticks are far apart, such a tick
// is not lost: the thread is looked at again during the tick, until it has run.

const (
	// againEach is the time, in ns, between these looks. A thread that has run since the look
	// before has not slept for long since.
	againEach = eveFor
	// againMost is the highest number of these looks per tick.
	againMost = 8
)

// extraLooks is a group's state for looks between ticks.
type extraLooks struct {
	again stack.Time // time of the next repeated look for this tick; 0: none
	eves  int        // threads whose counters are read before the tick
	eveOf stack.Time // the tick before which they were read

	lacking int // threads to look at again since a late sample lacks memory: see retake
}

// unsure handles a tick of a thread that may or may not be stopped, and reports whether the
// thread is looked at again for it.
func (g *group) unsure(th *thread, now stack.Time) bool {
	if g.tick.every <= 2*againEach || th.pend.looks >= againMost || !th.pend.to(doubted) {
		return false
	}
	if g.extra.again == 0 {
		g.extra.again = now + againEach
	}
	return true
}

// lookAgain repeats the looks that are due, and returns until when the group may sleep before the
// next ones.
func (g *group) lookAgain(now stack.Time) (until stack.Time) {
	if g.extra.again != 0 && now >= g.extra.again {
		g.extra.again = 0
		g.visitUnsure()
	}
	if g.extra.again == 0 {
		return g.tick.due
	}
	return min(g.extra.again, g.tick.due)
}

// visitUnsure looks at all such threads.
func (g *group) visitUnsure() {
	for _, th := range g.threads {
		if th.pend.is != unsure || th.life.ended {
			continue
		}
		th.pend.to(resolved)
		th.pend.looks++
		at := g.engine.Now() // before the counters
		var c Counters
		if th.file.Counters(&c) == nil && c == th.leave.early.Counters {
			th.leave.early.at = at
			g.failed(th, ErrUnsure) // it has not run at all
			continue
		}
		g.visit(th, false)
		g.askSoon()
	}
	g.ask()
}

// sure counts the tick as left out if the thread still needed another look for it.
func (g *group) sure(th *thread) {
	if th.pend.is != unsure {
		return
	}
	th.pend.to(resolved)
	g.miss(th, g.engine.Now(), 1)
}
