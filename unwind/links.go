package unwind

import "github.com/sliverprof/sliver/stack"

// Links returns the list of th's frames; ok is false if no runtime has one, or its place is not known yet.
func (w *Walker) Links(th *Thread) (l stack.Links, ok bool) {
	for _, x := range w.space.runtimes.Load().found {
		if l, ok = x.s.Links(th); ok {
			return l, true
		}
	}
	return l, false
}

// Expected returns the list of the frames of the first thread of a runtime that has not begun yet, so that it cannot be
// followed. ok is false if no file of the process has such a runtime.
func (s *Space) Expected() (l stack.Links, ok bool) {
	r := s.runtimes.Load()
	s.found.Lock()
	languages := s.languages
	s.found.Unlock()
	for _, k := range languages {
		if k.Expect != nil && r.of(k) == nil {
			if l, ok = k.Expect(s); ok {
				return l, true
			}
		}
	}
	return l, false
}

// Beyond returns the address that the last walk lacked, if it ended because the copied stack was too short.
func (w *Walker) Beyond() uint64 { return w.missing }
