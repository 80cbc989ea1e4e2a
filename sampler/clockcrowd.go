package sampler

import (
	"math"
	"math/rand/v2"
)

// The clock of a pool's threads copies them in their own code alone, if that is all that the kernel allows (see callTime), and
// these threads are hardly ever met running by a tick. Their time in the kernel is the CPU time of all of them less that of
// their copies. When a thread is next found blocked, it gets samples of its part, in an unknown place of the kernel.

// poolRuns is the number of periods of CPU time after which the share of the time in the kernel is known. After poolKeeps of them, all
// sums count half.
const poolRuns, poolKeeps = 128, 4096

// poolTimes are sums of a pool's CPU time, in ns.
type poolTimes struct{ ran, copied float64 }

// inKernel returns the share of the time in the kernel, less a standard deviation of chance.
func (p *poolTimes) inKernel(period int64) float64 {
	n := p.ran / float64(period)
	if n < poolRuns {
		return 0
	}
	own := min(p.copied/p.ran, 1)
	return max(0, 1-own-math.Sqrt(own*(1-own)/n))
}

// crowdTime is a thread's state in such a clock.
type crowdTime struct {
	on      bool    // the thread has a clock as one of a pool, without one of all CPUs
	ownCode bool    // it makes no copies in the kernel
	cpu     int64   // CPU time at the last look
	ran     int64   // ns of CPU time without samples of the kernel
	owed    float64 // ns of time in the kernel without samples; below 0: too many
}

// ranInPool counts the CPU time of a pool's thread, with counters c, since its last look.
func (g *group) ranInPool(th *thread, c *Counters) {
	t, p := &th.clock.cpus.crowd, &g.tally.pool.times
	if !t.on || !t.ownCode || c.CPU == math.MaxInt64 {
		return
	}
	ran := c.CPU - t.cpu
	t.ran, t.cpu = t.ran+ran, c.CPU
	p.ran += float64(ran)
	if p.ran > poolKeeps*float64(th.clock.every) {
		p.ran, p.copied = p.ran/2, p.copied/2
	}
}

// owedInPool records what a pool's thread owes. The sample at hand found it blocked.
func (g *group) owedInPool(th *thread) {
	t, every := &th.clock.cpus.crowd, float64(th.clock.every)
	t.owed += g.tally.pool.times.inKernel(th.clock.every) * float64(t.ran)
	t.ran = 0
	n := int64(max(t.owed/every, 0) + rand.Float64()) // one that it owes in part has that probability
	if n = min(n, fewCalls); n > 0 {
		t.owed -= float64(n) * every
		g.makeUnknown(th, n)
	}
}
