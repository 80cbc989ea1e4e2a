package sampler

import (
	"errors"

	"github.com/sliverprof/sliver/stack"
)

// readTries is how many times a thread that wakes up during a read is read before it counts as
// running.
const readTries = 2

// lookState is what one look has read of its thread so far.
type lookState struct {
	c  Counters   // as of the last reading
	at stack.Time // before that reading: their state also holds at this time
	// woke: it was blocked when its state was decided; the rest only obtains its stack.
	woke bool
	left bool // it got time to leave a call with a timeout: see letLeave
}

// read reads the thread's counters.
func (l *lookState) read(g *group, th *thread) error {
	l.at = g.engine.Now()
	return th.file.Counters(&l.c)
}

// look takes one sample of th in the cheapest way that is correct.
func (g *group) look(th *thread) error {
	var l lookState
	if err := l.read(g, th); err != nil {
		g.awake(th, false)
		g.confirm(th, false)
		return err
	}
	g.inherit(th, &l.c, l.at)
	same := th.unrun(&l.c)
	if !same && th.seen.blocked && th.life.started {
		g.tally.moved.Add(1)
	}
	g.awake(th, same)
	g.confirm(th, same)
	g.calmly(th, &l.c, l.at, same)
	th.usage.add(&l.c, l.at)
	if th.clock.on && !same {
		g.takeCopies(th, &l.c)
	}
	g.wind(th, &l.c, l.at)
	l.woke, th.round.asleep = th.round.asleep, false
	if !same && th.reuse.kept.ok && th.usage.share < busyShare {
		if done, err := g.asKept(th); done || err != nil {
			return err
		}
	}
	return g.lookOn(th, &l)
}

// lookOn reads a blocked thread and stops a running one. It starts again if the thread wakes up
// during the read.
func (g *group) lookOn(th *thread, l *lookState) error {
	for try := 0; try < readTries; try++ {
		if th.unrun(&l.c) && !th.seen.stale {
			return g.unrun(th, l.c, l.at)
		}
		running, err := g.runs(th, l)
		if err != nil {
			return err
		}
		if running {
			leaving, err := g.letLeave(th, l)
			if err != nil {
				return err
			}
			if leaving {
				try--
				continue
			}
			if err := g.stopLooked(th, l); !errors.Is(err, ErrAsleep) {
				return err
			}
		}
		if done, err := g.readLooked(th); done || err != nil {
			return err
		}
		l.woke = true
		if err := l.read(g, th); err != nil {
			return err
		}
	}
	g.cur.woke = true
	err := g.stopAndWalk(th, l.c, nil)
	g.cur.woke = false
	return err
}

// runs reports whether the thread needs a stop. For a thread that uses CPUs, the Engine
// decides right before the stop whether it runs. Two checks that must agree would miss the start
// of each burst of work.
func (g *group) runs(th *thread, l *lookState) (bool, error) {
	if !l.woke && !th.clock.on && g.decidesLate(th, &l.c, l.at) {
		return true, nil
	}
	var call stack.Call
	running, err := th.file.Call(&call)
	if err != nil {
		return false, err
	}
	if running && !l.woke && th.clock.on && g.clocked(th, &l.c) {
		return false, errClocked
	}
	return running, nil
}

// letLeave keeps a running thread from a stop while it may be leaving a call with a timeout. It
// waits for that once and then reports leaving: the look starts again.
func (g *group) letLeave(th *thread, l *lookState) (leaving bool, err error) {
	if g.cur.spent {
		return false, errSpent
	}
	if !g.mayLeave(th, &l.c, l.at) {
		return false, nil
	}
	if on, err := th.file.OnCPU(); err != nil {
		return false, err
	} else if !on {
		th.leave.early.Counters, th.leave.early.at = l.c, l.at // the next tick shows whether it went on from here
		return false, ErrUnsure
	}
	if l.left {
		return false, nil
	}
	l.left = true
	g.engine.SleepUntil(l.at + leaveFor)
	return true, l.read(g, th)
}

// stopLooked stops the thread. It returns ErrAsleep if the thread fell asleep before.
func (g *group) stopLooked(th *thread, l *lookState) error {
	g.view.Check, g.cur.woke = !l.woke, l.woke
	err := g.stopAndWalk(th, l.c, nil)
	g.view.Check, g.cur.woke = false, false
	if errors.Is(err, ErrAsleep) {
		l.woke, th.round.left = true, errors.Is(err, ErrLeft)
	}
	return err
}

// readLooked reads the blocked thread. done is false if it woke up.
func (g *group) readLooked(th *thread) (done bool, err error) {
	st, err := th.file.State()
	if err != nil {
		return false, err
	}
	if st == stack.StateDead {
		return false, ErrGone
	}
	return g.readAndWalk(th, st)
}
