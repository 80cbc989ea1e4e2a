package live

import (
	"time"

	"github.com/sliverprof/sliver/engine/ptrace"
	"github.com/sliverprof/sliver/sampler"
)

// Together is how many threads one goroutine samples before it wakes others: a wake-up
// costs more than a sample, and most programs have few running threads. The number is
// small enough to be on time even if each thread must be waited for.
func Together(interval time.Duration) int {
	const each, most = 2500 * time.Microsecond, 8
	return int(min(interval/each, most))
}

// NewHosts returns hosts that wake up all samplers which share them together.
func NewHosts(interval time.Duration) *sampler.Hosts {
	return sampler.NewHosts(Together(interval), ptrace.NewSleeper)
}

// NewHosts is the function NewHosts for Targets that share files: one after the other uses what an OS thread needs
// to stop threads.
func (s *Shared) NewHosts(interval time.Duration) *sampler.Hosts {
	return sampler.NewHosts(Together(interval), s.tracers.Sleeper)
}
