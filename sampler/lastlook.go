package sampler

import "github.com/sliverprof/sliver/stack"

// lastLooksFor bounds the time for all last looks of a group, in ns.
const lastLooksFor = 20_000_000

// lastLooks samples threads that ran since their last sample and are blocked as sampling ends: the CPU time since then
// belongs to their samples. Nothing is stopped for that, so a running thread without a clock lacks the time since its last
// tick.
func (g *group) lastLooks() {
	if g.ctl.held != 0 {
		return
	}
	g.cur.spent = true // no stops
	limit := g.engine.Now() + lastLooksFor
	for _, th := range g.threads {
		if g.engine.Now() > limit {
			break
		}
		var c Counters
		var call stack.Call
		if !th.life.started || th.life.ended || th.file.Counters(&c) != nil || th.unrun(&c) {
			continue
		}
		if running, err := th.file.Call(&call); err == nil && !running {
			_, _ = g.readLooked(th) // one that wakes up, or ended, stays without
		}
	}
	g.cur.spent = false
}
