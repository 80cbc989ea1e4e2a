package live

import (
	"time"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
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
	return sampler.NewHosts(Together(interval), newSleeper)
}

// newSleeper is an argument for sampler.NewHosts.
func newSleeper() (sampler.Sleeper, error) {
	tr, err := target.NewTracer()
	if err != nil {
		return nil, err
	}
	return &sleeper{tr}, nil
}

type sleeper struct{ *target.Tracer }

func (s *sleeper) Now() stack.Time { return target.Now() }

func (s *sleeper) SleepUntil(at stack.Time) { s.Tracer.SleepUntil(at) }

func (s *sleeper) Close() { _ = s.Tracer.Close() } // it stopped no thread
