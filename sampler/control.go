package sampler

import (
	"fmt"
	"time"
)

// Pause holds sampling until Resume; threads run on.
func (s *Sampler) Pause() {
	s.paused.Store(true)
	for _, g := range s.groups {
		g.wake()
	}
}

// Resume goes on after Pause.
func (s *Sampler) Resume() { s.paused.Store(false) }

// SetInterval changes the interval of all threads from their next tick on.
func (s *Sampler) SetInterval(d time.Duration) error {
	if d < MinInterval || d > MaxInterval {
		return fmt.Errorf("interval: %v is out of range; use %v to %v", d, MinInterval, MaxInterval)
	}
	s.ivl.Store(int64(d))
	for _, g := range s.groups {
		g.wake()
	}
	return nil
}

// SetSelection changes which threads are sampled. Those that it does not have
// are let go of: their frames end with a mark. It fails with ErrNoThreads,
// and changes nothing, when it matches none.
func (s *Sampler) SetSelection(sel *Selection) error {
	was := s.chosen.Swap(sel)
	if err := s.Check(); err != nil {
		s.chosen.CompareAndSwap(sel, was)
		return err
	}
	return nil
}

// Selection is the one in force.
func (s *Sampler) Selection() *Selection { return s.chosen.Load() }

// Interval is the one in force.
func (s *Sampler) Interval() time.Duration { return time.Duration(s.ivl.Load()) }

// Paused reports whether Pause holds the sampling.
func (s *Sampler) Paused() bool { return s.paused.Load() }
