package sampler

import "time"

// followShare is the time between two looks of any process at its list of threads, if many that do not run are
// sampled and their ends and execs are reported.
const followShare = 2500 * time.Microsecond

// LivesReported says that the caller calls Look for each exec and end of the target. Any goroutine may call it.
func (s *Sampler) LivesReported() { s.list.reported.Store(true) }

// idleFollow returns how soon a new thread is noticed of a target that has not run: reading the lists of hundreds of
// processes takes more CPU time than sampling those that run.
func (s *Sampler) idleFollow() time.Duration {
	if !s.list.reported.Load() || s.cfg.Hosts == nil {
		return 0
	}
	return min(time.Duration(s.cfg.Hosts.count())*followShare, mostFollow)
}

// awakes counts the looks that found a thread running.
func (s *Sampler) awakes() (n uint64) {
	for _, g := range s.groups {
		n += g.tally.awakes.Load()
	}
	return n
}
