package sampler

import (
	"errors"

	"github.com/sliverprof/sliver/stack"
)

// If all CPUs of the machine are busy, a thread that is asked to stop may have to wait for one
// for longer than a tick. Its group does not wait with it: it goes on with its other threads and
// takes the sample when it arrives. The thread has run nothing of its own since the request, so
// the sample holds for all ticks since.

// Limits of the wait for a sample: a thread that takes longer is not just waiting for a CPU.
const (
	comingFor = 200_000_000 // ns
	// queueFor is for how long, in ns, a thread seen waiting for a CPU is assumed to wait still;
	// once it gets one, it stops.
	queueFor    = 25_000_000
	comingTicks = 256
)

// late is how a thread's stops were late.
type late struct {
	queuedUntil stack.Time // until then it is assumed to wait for a CPU, as last seen
	stops       int        // late stops in a row
	insist      bool       // wait for the next stop
	lacks       bool       // the sample came, and lacks memory that another copy has: see retake
	retakes     int        // such samples in a row
	slow        bool       // the last stop took long
	owed        int64      // ns of waiting for a CPU not represented by a sample yet
}

// later handles a tick of a thread whose sample is pending. It reports whether the sample is
// still awaited.
func (g *group) later(th *thread, now stack.Time) bool {
	if th.pend.is != awaited {
		return false
	}
	// The sample may have arrived since the round began, with the thread running on; then request
	// a new stop.
	g.engine.Reap()
	if g.arrivals(); th.pend.is == awaited && th.late.lacks {
		g.retake(th)
	}
	if th.pend.is != awaited {
		return false
	}
	if len(th.pend.ticks) < comingTicks && now-th.pend.ticks[0] < comingFor {
		if now < th.late.queuedUntil {
			return th.pend.expect(now)
		}
		// A thread in an uninterruptible sleep (vfork) cannot stop either, and is read without a
		// stop.
		var call stack.Call
		if running, err := th.file.Call(&call); running && err == nil {
			th.late.queuedUntil = now + queueFor
			return th.pend.expect(now)
		}
	}
	g.giveUp(th)
	return false
}

// giveUp counts the ticks of a pending sample as timed out.
func (g *group) giveUp(th *thread) {
	if th.pend.is != awaited {
		return
	}
	g.settleLack(th)
	for _, at := range th.pend.take() {
		g.catchUpTo(th, at)
		th.acc.timedOut.Add(1)
		th.gap(at, stack.WhyTimeout, g.tick.every)
	}
	g.catchUp(th)
}

// leftAlone records that th awaits Ask.
func (g *group) leftAlone(th *thread, now stack.Time) {
	th.late.stops++
	th.late.queuedUntil = 0
	th.seen.blocked = false
	if !th.pend.expect(now) {
		g.miss(th, now, 1)
	}
	if g.pass.unasked == 0 {
		g.pass.unasked = now
	}
}

// ask sends the stop requests that the group does not wait for.
func (g *group) ask() {
	if g.can.Late && g.pass.unasked != 0 {
		g.engine.Ask()
	}
	g.pass.unasked = 0
}

// askSoon calls ask once a request has been delayed for askWithin: the last look must still hold
// when the request is sent.
func (g *group) askSoon() {
	if g.pass.unasked != 0 && g.engine.Now()-g.pass.unasked > askWithin {
		g.ask()
	}
}

const askWithin = 1_000_000 // ns

// arrivals processes the samples that have arrived.
func (g *group) arrivals() {
	if !g.can.Late {
		return
	}
	g.cur.batches++
	g.view.Mem.Batch = g.cur.batches
	defer func() { g.view.Mem.Batch = 0 }()
	for {
		file, err, ok := g.engine.Arrived(&g.view)
		if !ok {
			return
		}
		for _, th := range g.threads {
			if th.file != file || th.pend.is != awaited {
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

// cameNot records why a pending sample failed; the group waits for the next stop.
func (g *group) cameNot(th *thread, err error) {
	th.late.insist = !errors.Is(err, ErrUnsure)
	if errors.Is(err, ErrGone) { // the next look says so, too
		g.giveUp(th)
		return
	}
	n := len(th.pend.take())
	g.catchUp(th)
	for range n {
		g.failed(th, err)
	}
}

// arrived records the sample in the view for all ticks that awaited it.
func (g *group) arrived(th *thread) {
	v := &g.view
	ticks := th.pend.ticks
	th.pend.ticks = nil // these are in use
	th.pend.to(resolved)
	// The thread has not run since v.Halted, so that is the time of the sample. Before it, the
	// requester may have read the clock and then waited for a CPU while the thread ran.
	stopped := v.Stopped
	if v.Halted == 0 { // it was not late at all
		v.Halted = stopped
	}
	v.Stopped = v.Halted
	onCPU := int64(stopped-v.Halted) < onCPU
	if onCPU {
		th.late.stops = 0 // wait for the next stop
	}
	c := g.walkTaken(th, stopped)
	if th.again(g.sample.Reason, 1) {
		th.pend.to(requested)
		th.pend.ticks = ticks
		if th.late.retakes++; th.late.retakes < walkTries {
			th.late.lacks = true
			g.extra.lacking++
		} else {
			th.late.retakes, th.late.insist = 0, true
			g.giveUp(th)
		}
		return
	}
	if s := &g.sample; s.State == stack.StateRunning && g.cur.queued > int64(stopped-v.Halted)/2 {
		s.State = stack.StateRunnable
		th.late.owed -= g.cur.queued // the next look need not compensate for it
	}
	// What makes the request may have waited for a CPU, too.
	begun := 1
	for ; begun < len(ticks) && ticks[begun] < v.Halted; begun++ {
		g.catchUpTo(th, ticks[begun])
		g.miss(th, ticks[begun], 1)
	}
	g.catchUpTo(th, v.Stopped)
	g.stopped(th, c)
	for _, at := range ticks[begun:] {
		g.catchUpTo(th, at)
		if at < stopped && !onCPU {
			g.unrunAt(th, at)
		} else {
			g.miss(th, at, 1) // it may have run before that
		}
	}
	th.life.active, th.pend.ticks = true, ticks[:0]
	g.catchUp(th)
}

// retake looks again at a thread whose sample came and lacks memory. It has run since, so the new sample is of
// this moment, and counts for the first tick; the stack at the others is not known. After walkTries of them the tick is
// given up, and the group waits for the next stop.
func (g *group) retake(th *thread) {
	g.settleLack(th)
	for i, at := range th.pend.take() {
		if g.catchUpTo(th, at); i > 0 {
			g.miss(th, at, 1)
		}
	}
	g.catchUp(th)
	g.lookNow(th)
}

// settleLack ends the wait for another look at th, if there is one.
func (g *group) settleLack(th *thread) {
	if th.late.lacks {
		th.late.lacks = false
		g.extra.lacking--
	}
}

// retakes looks again at all such threads.
func (g *group) retakes() {
	if g.extra.lacking == 0 {
		return
	}
	for _, th := range g.threads {
		if th.late.lacks {
			g.retake(th)
		}
	}
}

// leaves reports whether a thread with counters c probably has no CPU. Then the Engine waits for
// it, which saves the group a wait and costs no more. It holds if the thread was late
// several times in a row, if it has waited longer than it ran since the last look, or if this
// round has waited in vain until the remaining threads would be late. If this round or
// the one before has such threads, the others are treated alike: adding them to the same request
// costs little, and less than a wait.
func (g *group) leaves(th *thread, c *Counters) bool {
	if !g.can.Late || th.late.insist || g.view.Ask || g.walker.Guesses(&th.walk) {
		return false
	}
	if th.late.stops >= latesMost || th.queues(c) || g.pass.vain > g.tick.every/vainShare {
		g.pass.left++
		return true
	}
	return g.pass.left+g.pass.leftBefore > 1 // other threads than this one
}

func (th *thread) queues(c *Counters) bool {
	return th.life.started && c.Delay-th.seen.counters.Delay > c.CPU-th.seen.counters.CPU
}

// patience returns the deadline, in ns, of a stop that the group waits for: long enough for a
// thread on a CPU, and, if its sample would be lost afterwards, also for one that waits for a
// CPU; short enough for the group to be in time for its next tick.
func (g *group) patience() int64 {
	if g.can.Late {
		return min(max(g.tick.every/8, 1_000_000), 2_000_000)
	}
	return min(max(g.tick.every/2, 2_000_000), 10_000_000)
}

const (
	// AtOnce is the deadline of a stop that the group does not wait for.
	AtOnce = 0
	// vainShare is the divisor of a tick that may be spent waiting for threads that do not stop.
	vainShare = 4
	// latesMost is how many stops in a row may be late before the group no longer waits for them.
	latesMost = 3
	// onCPU is a time, in ns, longer than a thread on a CPU takes to stop, and shorter than most
	// waits for a CPU.
	onCPU = 250_000
)
