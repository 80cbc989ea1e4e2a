package sampler

import "github.com/sliverprof/sliver/stack"

// lastWords records the last sample of a thread that is gone: its position when a signal killed
// it, if the Thread knows it. The thread may have run for an interval since the sample before, or
// for longer on a busy machine.
func (g *group) lastWords(th *thread) {
	v := &g.view
	if !th.file.Died(stack.Time(th.acc.to.Load()), v) {
		return
	}
	g.giveUp(th)
	g.cur.thread = th
	c := &th.seen.counters // the last known ones
	// Ticks may have been left out between its death and now, and records must be in order.
	g.sample = stack.Sample{Time: max(v.Stopped, th.gaps.last), Way: stack.WayRead, CPU: c.CPU, Delay: c.Delay, Switches: c.Switches,
		State: stack.StateRunning, Call: stack.Call{Nr: -1}, Stack: g.sample.Stack[:0]}
	g.walkView(th, &g.sample)
	g.write(th)
}
