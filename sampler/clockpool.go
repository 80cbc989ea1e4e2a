package sampler

import (
	"github.com/sliverprof/sliver/stack"
)

// poolUse is the share of a CPU that threads of a group use together of which each uses less than clockBusy, or has a clock
// as one of them.
type poolUse struct {
	on    bool // it has been enough
	share float64
	at    stack.Time // when it was added up
	times poolTimes
}

// pools reports whether a thread that uses too little of a CPU for a clock is one of many that take turns. Its whole life
// counts, too: its first turn in the recording may be seconds away.
func (g *group) pools(th *thread, c *Counters, at stack.Time) bool {
	if g.few() {
		return false
	}
	p := &g.tally.pool
	if at-p.at >= clockLook {
		p.at, p.share = at, 0
		for _, x := range g.threads {
			if k := &x.clock; k.cpus.pool || !k.on && x.usage.lately < machineBusy*clockBusy {
				p.share += x.usage.lately
			}
		}
		if was := p.on; !was && p.share >= poolShare || was && p.share < poolShare/4 {
			if p.on = !was; p.on {
				g.startPool(at)
			}
		}
	}
	age := max(float64(at-th.info.Born), 1)
	return p.on && (th.clock.cpus.pool || max(th.usage.lately, float64(c.CPU)/age) >= poolLeast)
}

// startPool starts the clocks of the threads of a pool at once: at long naps, some would be looked at seconds later. startClock
// leaves out those that are not of it.
func (g *group) startPool(at stack.Time) {
	for _, x := range g.threads {
		if k := &x.clock; !k.on && !k.refused && x.life.started && at >= k.again && x.usage.lately < clockBusy {
			g.startClock(x, &x.seen.counters, at)
		}
	}
}
