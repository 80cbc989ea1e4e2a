package sampler

import (
	"errors"

	"github.com/sliverprof/sliver/stack"
)

// On a machine whose CPUs are all taken a thread that is asked to stop may have to
// wait for one, for longer than a tick. Its group does not wait with it: it goes on
// with its other threads, and takes the sample when it comes. As the thread has run
// nothing of its own since it was asked, it shows what it did at all ticks since.

// LateTracer is what a Tracer may be besides: its Stop says ErrLater, and with the
// deadline AtOnce it says nothing else, and the thread need not be asked before Ask.
type LateTracer interface {
	// Ask has those threads asked to stop that were to be stopped AtOnce: all of a round
	// together, since that costs little more than one.
	Ask()
	// Arrived has the view show a stop that came after its deadline, until the next
	// Reap. Its times are those of the request and of the stop. err: as Stop's; there is
	// none.
	Arrived(v *View) (t Thread, err error, ok bool)
	// Free reports whether threads that have not stopped yet are let go without Reap.
	Free() bool
}

// Limits of how long a sample is waited for: what takes longer does not wait for a
// CPU alone.
const (
	comingFor = 200_000_000 // ns
	// queueFor is for how long, in ns, a thread that was seen to wait for a CPU is taken to
	// do so still: when it has one, it stops.
	queueFor    = 25_000_000
	comingTicks = 256
)

// expectLater notes a tick whose sample is still to come.
func (th *thread) expectLater(at stack.Time) {
	if len(th.coming) == 0 {
		th.queuedUntil = 0
	}
	th.coming = append(th.coming, at)
}

// later has a tick of a thread whose sample is still to come. It reports whether it
// is waited for still.
func (g *group) later(th *thread, now stack.Time) bool {
	if len(th.coming) == 0 {
		return false
	}
	// It may have come since the round began, and run on: then it is asked anew.
	g.tracer.Reap()
	if g.arrivals(); len(th.coming) == 0 {
		return false
	}
	if len(th.coming) < comingTicks && now-th.coming[0] < comingFor {
		if now < th.queuedUntil {
			th.expectLater(now)
			return true
		}
		// One that sleeps where it cannot be woken (vfork) cannot stop either, and is
		// read without a stop.
		var call stack.Call
		if running, err := th.file.Call(&call); running && err == nil {
			th.queuedUntil = now + queueFor
			th.expectLater(now)
			return true
		}
	}
	g.giveUp(th)
	return false
}

// giveUp counts the ticks whose sample has not come as timed out.
func (g *group) giveUp(th *thread) {
	for _, at := range th.coming {
		g.catchUpTo(th, at)
		th.acc.timedOut.Add(1)
		th.gap(at, stack.WhyTimeout, g.tick.every)
	}
	th.coming = th.coming[:0]
	g.catchUp(th)
}

// leftAlone notes that th is to be asked to stop by Ask.
func (g *group) leftAlone(th *thread, now stack.Time) {
	th.lates++
	th.expectLater(now)
	th.blocked = false
	if g.unasked == 0 {
		g.unasked = now
	}
}

// ask has the threads asked to stop that nobody waits for.
func (g *group) ask() {
	if g.late != nil && g.unasked != 0 {
		g.late.Ask()
	}
	g.unasked = 0
}

// askSoon is ask where some of them have waited for it since a while: what a look has found is
// to be true still when they are asked.
func (g *group) askSoon() {
	if g.unasked != 0 && g.tracer.Now()-g.unasked > askWithin {
		g.ask()
	}
}

const askWithin = 1_000_000 // ns

// arrivals takes the samples that have come.
func (g *group) arrivals() {
	if g.late == nil {
		return
	}
	g.batches++
	g.view.Mem.Batch = g.batches
	defer func() { g.view.Mem.Batch = 0 }()
	for {
		file, err, ok := g.late.Arrived(&g.view)
		if !ok {
			return
		}
		for _, th := range g.threads {
			if th.file != file || len(th.coming) == 0 {
				continue
			}
			if err != nil {
				g.cameNot(th, err)
			} else {
				g.arrived(th)
			}
			break
		}
	}
}

// cameNot notes why a sample that was to come did not: the next stop is waited for.
func (g *group) cameNot(th *thread, err error) {
	th.insist = !errors.Is(err, ErrUnsure)
	if errors.Is(err, ErrGone) { // the next look says so, too
		g.giveUp(th)
		return
	}
	n := len(th.coming)
	th.coming = th.coming[:0]
	g.catchUp(th)
	for range n {
		g.failed(th, err)
	}
}

// arrived has the sample that the view shows, for all ticks that have waited for it.
func (g *group) arrived(th *thread) {
	v := &g.view
	ticks := th.coming
	th.coming = nil
	// It stood there since the request: that is when the sample was. Before, who asked
	// may have waited for a CPU, too, with the clock read and the thread running.
	stopped := v.Stopped
	if v.Halted == 0 { // it was not late at all
		v.Halted = stopped
	}
	v.Stopped = v.Halted
	onCPU := int64(stopped-v.Halted) < onCPU
	if onCPU {
		th.lates = 0 // the next stop is waited for
	}
	c := g.walkTaken(th, stopped)
	if th.again(g.sample.Reason, 1) {
		th.coming = ticks // another copy would be of another time
		th.insist = true
		g.giveUp(th)
		return
	}
	if s := &g.sample; s.State == stack.StateRunning && g.queued > int64(stopped-v.Halted)/2 {
		s.State = stack.StateRunnable
		th.owed -= g.queued // the next look need not make up for it
	}
	g.catchUpTo(th, v.Stopped)
	g.stopped(th, c)
	for _, at := range ticks[1:] {
		g.catchUpTo(th, at)
		if at < stopped && !onCPU {
			g.unrunAt(th, at)
		} else {
			g.miss(th, at, 1) // it may have run before that
		}
	}
	th.active, th.coming = true, ticks[:0]
	g.catchUp(th)
}

// leaves reports whether a thread whose counters are c is likely to have no CPU. Then it is
// left to its stopper at once, which spares the group a wait and costs no more: it was late
// again and again, or since the last look it has waited for longer than it ran, or others of
// this round were waited for in vain for so long that the rest would be late for it. Where there
// are such threads, in this round or the one before, the others are left as well: whoever asks those
// has little more to do for these, and that is less than a wait.
func (g *group) leaves(th *thread, c *Counters) bool {
	if g.late == nil || th.insist || g.view.Ask || g.walker.Guesses(&th.walk) {
		return false
	}
	if th.lates >= latesMost || th.queues(c) || g.vain > g.tick.every/vainShare {
		g.left++
		return true
	}
	return g.left+g.leftBefore > 1 // others than itself
}

func (th *thread) queues(c *Counters) bool {
	return th.started && c.Delay-th.counters.Delay > c.CPU-th.counters.CPU
}

// patience is the deadline, in ns, of a stop that is waited for: long enough for a thread that is on a
// CPU, and where its sample is lost after it also for one that has to wait for one; short
// enough for the group to be in time for its next tick.
func (g *group) patience() int64 {
	if g.late != nil {
		return min(max(g.tick.every/8, 1_000_000), 2_000_000)
	}
	return min(max(g.tick.every/2, 2_000_000), 10_000_000)
}

const (
	// AtOnce is the deadline of a stop that is not waited for at all.
	AtOnce = 0
	// vainShare of a tick, as its divisor, may be waited in vain for threads that do not stop.
	vainShare = 4
	// latesMost is how many stops in a row may be late before the next ones are not waited for.
	latesMost = 3
	// onCPU is more, in ns, than a thread takes to stop that has a CPU, and less than most
	// wait for one.
	onCPU = 250_000
)
