package sampler

import (
	"fmt"
	"time"
)

// Pause suspends sampling until Resume; the target's threads keep running.
func (s *Sampler) Pause() {
	s.ctl.paused.Store(true)
	for _, g := range s.groups {
		g.wake()
	}
}

// Resume ends Pause.
func (s *Sampler) Resume() { s.ctl.paused.Store(false) }

// SetInterval changes the interval of all threads, from their next tick on.
func (s *Sampler) SetInterval(d time.Duration) error {
	if d < MinInterval || d > MaxInterval {
		return fmt.Errorf("interval: %v is out of range; use %v to %v", d, MinInterval, MaxInterval)
	}
	s.ctl.ivl.Store(int64(d))
	for _, g := range s.groups {
		g.wake()
	}
	return nil
}

// SetSelection changes which threads are sampled. Threads that it does not select are dropped:
// their frames end with a mark. If it matches no thread, it returns ErrNoThreads and changes
// nothing.
func (s *Sampler) SetSelection(sel *Selection) error {
	was := s.ctl.chosen.Swap(sel)
	if err := s.Check(); err != nil {
		s.ctl.chosen.CompareAndSwap(sel, was)
		return err
	}
	return nil
}

// Choose is SetSelection, also if sel matches no thread yet.
func (s *Sampler) Choose(sel *Selection) { s.ctl.chosen.Store(sel) }

// Selection returns the current selection.
func (s *Sampler) Selection() *Selection { return s.ctl.chosen.Load() }

// Interval returns the current interval.
func (s *Sampler) Interval() time.Duration { return time.Duration(s.ctl.ivl.Load()) }

// Paused reports whether sampling is paused.
func (s *Sampler) Paused() bool { return s.ctl.paused.Load() }
