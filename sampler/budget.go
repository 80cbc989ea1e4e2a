package sampler

import (
	"errors"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// purse bounds the saved-up stop time of a thread: its share of a period of this length (ns),
// available to a burst of stops.
const purse = 200_000_000

// broke reports whether the thread's stops have used up their share of its time. Then this tick
// gets a sample only if that needs no stop.
func (th *thread) broke(now stack.Time, limit float64) bool {
	if limit <= 0 {
		return false
	}
	if th.paidAt == 0 {
		th.paidAt, th.purse = now, limit*purse/10
	}
	part := 1.0
	if th.share > 0 {
		part = th.share
	}
	th.purse = min(th.purse+limit*part*float64(now-th.paidAt), limit*purse)
	th.paidAt = now
	return th.purse < 0
}

// errSpent: the thread runs, and its stops have used up their share of its time.
var errSpent = errors.New("the thread's share of stops is used up")

// stretch leaves out a tick of a thread for its budget. If the thread's last sample shows it
// running, the new interval explains the missing sample. A thread that woke since then would be
// shown asleep until its next stop, so a gap is recorded.
func (g *group) stretch(th *thread, now stack.Time) {
	th.skipped++
	th.acc.stretched.Add(1)
	if th.blocked {
		th.active = true
		th.gap(now, stack.WhyBudget, g.tick.every)
	}
}

// leastShare ensures that a thread that hardly runs can be stopped again.
const leastShare = .02

// measure updates the share of the time since the last stop that the thread ran.
func (th *thread) measure(now stack.Time) {
	cpu := th.acc.cpu.Load()
	if since := now - th.ranAt; th.ranAt != 0 && since > 0 {
		th.share = min(max(float64(cpu-th.ran)/float64(since), leastShare), 1)
	}
	th.ran, th.ranAt = cpu, now
}

// pay takes a stop from the thread's purse. If the distance between its samples has changed much,
// it records the new rate.
func (g *group) pay(th *thread, pause int64) {
	if g.s.cfg.MaxOverhead <= 0 {
		return
	}
	th.purse -= float64(pause)
	if g.s.cfg.OverheadOfCPU {
		th.measure(g.view.Resumed)
	}
	rate := th.skipped + 1
	th.skipped = 0
	if rate > th.rate+th.rate/4 || rate < th.rate-th.rate/4 {
		th.rate = rate
		at := g.view.Asked // the sample is written after this and may have the time of the request
		th.sink.Event(at, event.Rate, uint64(rate*g.tick.every))
		th.sink.Event(at, event.Mark, uint64(stack.WhyBudget))
	}
}
