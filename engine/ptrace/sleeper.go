package ptrace

import (
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// NewSleeper is an argument for sampler.NewHosts.
func NewSleeper() (sampler.Sleeper, error) {
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
