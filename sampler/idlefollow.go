package sampler

import (
	"context"
	"time"

	"github.com/sliverprof/sliver/internal/background"
)

// followShare is the time between two looks of any process at its list of threads, if many are sampled that were not
// found running.
const followShare = 2500 * time.Microsecond

// restList is the time between two full checks of a target that has not run, if its changes are reported.
const restList = 5 * mostList

// LivesReported says that the caller calls Look for each exec and end of the target, and Changed for each new thread
// and name. Any goroutine may call it.
func (s *Sampler) LivesReported() { s.list.reported.Store(true) }

// Changed says that the target has a new thread, or, if named, that one has a new name. The list is read at once, or
// after followEvery since the last reading. Any goroutine may call it.
func (s *Sampler) Changed(named bool) {
	if named {
		s.list.named.Store(true)
	}
	if !s.list.soon.CompareAndSwap(false, true) {
		return
	}
	now := func() {
		s.list.soon.Store(false)
		s.look()
	}
	if wait := s.followEvery() - time.Duration(int64(s.target.Now())-s.list.looked.Load()); wait > 0 {
		time.AfterFunc(wait, now)
	} else {
		now()
	}
}

// idleFollow returns how soon a new thread, an end and an exec are noticed of a target that was not found running since
// the last look: reading the lists of many processes takes more CPU time than sampling those that run.
func (s *Sampler) idleFollow() time.Duration {
	if s.cfg.Hosts == nil {
		return 0
	}
	return min(time.Duration(s.cfg.Hosts.count())*followShare, mostFollow)
}

// restReported is rest for a target whose changes are reported: only full checks are due, for names of threads that are
// young or that the runtime of a language gave them. ran: the target ran since the last list.
func (f *follower) restReported(ctx context.Context, every time.Duration, ran bool) (due, ok bool) {
	s := f.s
	full := max(mostList, (restFor-2)*every, min(listShare*f.cost, restList))
	switch {
	case f.known.youth > 0:
		full = (restFor - 2) * every
	case !ran:
		full = restList
	}
	wait := max(full-s.hooks.now().Sub(f.whole), 0)
	_, ok = s.hooks.wait(ctx, s.list.poke, wait+background.Until(every))
	return s.list.named.Swap(false) || s.hooks.now().Sub(f.whole) >= full, ok
}

// awakes counts the looks that found a thread running.
func (s *Sampler) awakes() (n uint64) {
	for _, g := range s.groups {
		n += g.tally.awakes.Load()
	}
	return n
}
