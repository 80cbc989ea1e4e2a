package sampler

import (
	"errors"
	"math/rand/v2"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// budget bounds the time for which stops hold a thread: Config.MaxOverhead of its time.
//
// Random thinning: if stops at all ticks would cost more, each tick may stop the thread with the same
// probability, whatever the thread does. A thread that may be stopped again as soon as its budget
// allows it would be stopped mostly at the start of its work, since the budget recovers while it
// sleeps.
type budget struct {
	left   float64    // ns that stops may still take, as of paidAt; below 0: overdrawn
	paidAt stack.Time // 0: no tick yet
	cost   float64    // ns that a stop took recently
	needs  float64    // recent share of ticks that needed a stop

	skipped int64 // ticks left out since the last stop
	rate    int64 // recorded distance of stops, in ticks

	share float64    // with OverheadOfCPU, recent share of time that it ran
	ran   int64      // CPU time as of ranAt
	ranAt stack.Time // of the last stop
}

const (
	// budgetFor bounds the saved-up stop time of a thread: its share of a period of this length (ns).
	budgetFor = 200_000_000
	// costTurns and needsTurns are the numbers of stops and ticks over which cost and needs average.
	costTurns, needsTurns = 8, 64
	// costJump limits what one stop adds to that average, as a multiple of it. A stop of 10 ms while another program had the
	// CPU reduces the budget by that, but the stops after it are short again.
	costJump = 4
)

// refill adds the stop time that became available until now.
func (b *budget) refill(now stack.Time, limit float64) {
	if b.paidAt == 0 {
		b.paidAt, b.left, b.needs = now, limit*budgetFor/10, 1
	}
	b.left = min(b.left+limit*b.part()*float64(now-b.paidAt), limit*budgetFor)
	b.paidAt = now
}

func (b *budget) part() float64 {
	if b.share > 0 {
		return b.share
	}
	return 1
}

// spent reports whether a tick gets a sample only if that needs no stop. every is the interval, ns.
func (b *budget) spent(now stack.Time, limit float64, every int64) bool {
	if limit <= 0 {
		return false
	}
	b.refill(now, limit)
	full := limit * budgetFor
	if b.overdrawn(limit) {
		return true
	}
	correction := 1 + min(max(b.left/full, -.5), .5)
	return rand.Float64()*b.thinning(limit, every) > correction
}

// overdrawn reports whether no tick gets a stop until much of the debt is paid off: stops got dearer at once, or one takes more than
// is ever saved up.
func (b *budget) overdrawn(limit float64) bool { return limit > 0 && b.left < -limit*budgetFor/2 }

// thinning returns how much more than allowed stops at all ticks would take.
func (b *budget) thinning(limit float64, every int64) float64 {
	return b.cost * b.needs / (limit * b.part() * float64(every))
}

// ticked notes whether a tick needed a stop, with or without getting it.
func (b *budget) ticked(stop bool) {
	x := 0.
	if stop {
		x = 1
	}
	b.needs = max(b.needs+(x-b.needs)/needsTurns, 1./needsTurns)
}

// pay takes the cost of a stop, in ns. It returns the distance of stops in ticks if that has changed
// much since it was last returned; else 0.
func (b *budget) pay(pause int64, limit float64, every int64) (rate int64) {
	b.left -= float64(pause)
	if b.cost == 0 {
		b.cost = float64(pause)
	}
	b.cost += (min(float64(pause), costJump*b.cost) - b.cost) / costTurns
	n := int64(max(b.thinning(limit, every), 1) + .5)
	if b.skipped > 2*n {
		n = b.skipped + 1
	}
	b.skipped = 0
	if n <= b.rate+b.rate/4 && n >= b.rate-b.rate/4 {
		return 0
	}
	b.rate = n
	return n
}

// errSpent: the thread runs, and its stops have used up their share of its time.
var errSpent = errors.New("the thread's share of stops is used up")

// stretch leaves out a tick of a thread for its budget. If the thread's last sample shows it
// running, the new interval explains the missing sample. A thread that woke since then would be
// shown asleep until its next stop, so a gap is recorded. So it is while the budget is overdrawn: that may take seconds.
func (g *group) stretch(th *thread, now stack.Time) {
	th.budget.skipped++
	th.acc.stretched.Add(1)
	switch {
	case th.seen.blocked:
		th.life.active = true
		th.unknown(now, g.tick.every)
	case th.life.started && !th.clock.on && th.budget.overdrawn(g.s.cfg.MaxOverhead):
		th.unknown(now, g.tick.every)
	}
}

// unknown records that what the thread did since the last tick is not known. Ticks are at most 1.5
// intervals apart.
func (th *thread) unknown(now stack.Time, every int64) {
	since := int64(now - max(stack.Time(th.acc.to.Load()), th.gaps.last))
	th.gap(now, stack.WhyBudget, min(since, every+every/2))
}

// leastShare ensures that a thread that hardly runs can be stopped again.
const leastShare = .02

// measure updates the share of the time since the last stop that the thread ran.
func (b *budget) measure(now stack.Time, cpu int64) {
	if since := now - b.ranAt; b.ranAt != 0 && since > 0 {
		b.share = min(max(float64(cpu-b.ran)/float64(since), leastShare), 1)
	}
	b.ran, b.ranAt = cpu, now
}

// pay takes a stop from the thread's budget. If the distance between its samples has changed much,
// it records the new rate.
func (g *group) pay(th *thread, pause int64) {
	if g.s.cfg.MaxOverhead <= 0 {
		return
	}
	if at := g.view.Asked; th.seen.blocked && th.budget.skipped > 0 && at > th.gaps.last { // it woke before this tick
		th.unknown(at, g.tick.every)
	}
	if g.s.cfg.OverheadOfCPU {
		th.budget.measure(g.view.Resumed, th.acc.cpu.Load())
	}
	if rate := th.budget.pay(pause, g.s.cfg.MaxOverhead, g.tick.every); rate > 0 {
		at := g.view.Asked // the sample is written after this and may have the time of the request
		th.sink.Event(at, event.Rate, uint64(rate*g.tick.every))
		th.sink.Event(at, event.Mark, uint64(stack.WhyBudget))
	}
}
