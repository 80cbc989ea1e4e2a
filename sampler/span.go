package sampler

import (
	"time"

	"github.com/sliverprof/sliver/stack"
)

// EndAfter ends sampling d after Began: no thread is stopped after that. Run continues until its
// context ends.
func (s *Sampler) EndAfter(d time.Duration) {
	s.run.lasts.Store(int64(d))
	s.setEnd()
}

func (s *Sampler) setEnd() {
	if began, lasts := s.run.began.Load(), s.run.lasts.Load(); began > 0 && lasts > 0 {
		s.run.end.Store(began + lasts)
	}
}

// Began returns the time of the first tick of the first thread; 0: none yet.
func (s *Sampler) Began() stack.Time { return stack.Time(s.run.began.Load()) }

// begins records the first tick of a thread.
func (s *Sampler) begins(now stack.Time) {
	if s.run.began.CompareAndSwap(0, int64(now)) {
		s.setEnd()
	}
}
