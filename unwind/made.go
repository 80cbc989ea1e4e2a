package unwind

import "slices"

// Memory in which runtimes with Properties.Generates make code.

// mark is markMade for the current mappings.
func (s *Space) mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.snap.Load()
	next := *old
	next.regions = slices.Clone(old.regions)
	next.markMade(old)
	s.snap.Store(&next)
}

// markMade marks the memory in which a runtime generates code. V8 reserves it as a whole and makes parts
// of it non-executable while it writes to them, so a single read of the maps is not conclusive.
// markMade marks all adjacent anonymous memory if any part of it is executable, or was before.
func (s *snapshot) markMade(old *snapshot) {
	made := func(r *region) bool { return r.mod == nil && !r.main && (r.exec || r.made) }
	for i := 0; i < len(s.regions); {
		j, any := i, false
		for ; j < len(s.regions) && s.regions[j].mod == nil && !s.regions[j].main && (j == i || s.regions[j-1].end == s.regions[j].start); j++ {
			r := &s.regions[j]
			any = any || made(r)
			for k := old.after(r.start); !any && k < len(old.regions) && old.regions[k].start < r.end; k++ {
				any = made(&old.regions[k])
			}
		}
		for k := i; k < j; k++ {
			s.regions[k].made = any
		}
		i = max(j, i+1)
	}
}

// mayBeMade reports whether ra may be in generated code whose mapping is not known yet. V8, for example,
// has code memory for each thread with its own isolate. next is the frame pointer saved at fp.
func (w *Walker) mayBeMade(ra, next, fp uint64) bool {
	return w.with.all.Has(Generates) && next > fp && next-fp <= maxFrame && ra>>47 == 0 && ra > smallPage && w.isNew(ra)
}

// isNew reports whether an address is outside of all known mappings, or in one that did not hold
// code.
func (w *Walker) isNew(addr uint64) bool {
	r := w.snap.find(addr - 1)
	return r == nil || r.mod == nil && !r.main && !r.exec && !r.made
}

// renew makes walkers drop cached rules that predate newly found facts.
func (s *Space) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *s.snap.Load()
	next.epoch++
	s.snap.Store(&next)
}
