package sampler

import "github.com/sliverprof/sliver/stack"

// holdBack leaves out a tick of a thread whose sink is full, which happens if the file is written
// more slowly than samples arrive.
func (g *group) holdBack(th *thread, now stack.Time) bool {
	if th.sink.Full() {
		th.gaps.held++
		th.ahead.steady = 0
		return true
	}
	g.letIn(th, now)
	return false
}

// letIn records the ticks that were left out while the sink was full.
func (g *group) letIn(th *thread, now stack.Time) {
	if th.gaps.held == 0 {
		return
	}
	th.acc.behind.Add(uint64(th.gaps.held))
	g.miss(th, now, th.gaps.held)
	th.gaps.held = 0
}
