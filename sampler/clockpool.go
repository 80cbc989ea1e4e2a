package sampler

import (
	"math"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
)

// poolUse is what a group knows of the process's pool: threads of which each uses less than clockBusy of a CPU, or has a
// clock as one of them.
type poolUse struct {
	on    bool          // the whole pool has used enough
	share atomic.Uint64 // math.Float64bits of the share of a CPU that the group's own threads use; other groups read it
	at    stack.Time    // when that was added up
	times poolTimes
}

// poolShare returns the share of a CPU that all threads of the pool use.
func (s *Sampler) poolShare() (share float64) {
	for _, g := range s.groups {
		if g.tally.size.Load() > 0 {
			share += math.Float64frombits(g.tally.pool.share.Load())
		}
	}
	return share
}

// pools reports whether a thread that uses too little of a CPU for a clock is one of many that take turns. Its whole life
// counts, too: its first turn in the recording may be seconds away.
func (g *group) pools(th *thread, c *Counters, at stack.Time) bool {
	if g.few() {
		return false
	}
	p := &g.tally.pool
	if at-p.at >= clockLook {
		own := 0.
		for _, x := range g.threads {
			if k := &x.clock; k.cpus.pool || !k.on && x.usage.lately < machineBusy*clockBusy {
				own += x.usage.lately
			}
		}
		p.at = at
		p.share.Store(math.Float64bits(own))
		share := g.s.poolShare()
		if was := p.on; !was && share >= poolShare || was && share < poolShare/4 {
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
