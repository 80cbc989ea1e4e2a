package unwind

import "github.com/sliverprof/sliver/stack"

// A file that another one replaced before it was opened has no tables, no names and nothing to compare
// with memory (replaced.go). The next file at the same addresses would be taken for it, and so on until
// the recording ends. So the mappings are read again if walks go through such a file: at the first walk,
// the second, the fourth and so on, and at each maxPause-th: a file that was deleted stays one.

const (
	// maxPause is the most walks between two of these looks.
	maxPause = 1024
	// maxUnopened bounds the paths that are remembered for that.
	maxUnopened = 256
)

// pause counts the walks through files of one path that could not be opened.
type pause struct{ walks, next int }

// due counts a walk through an unopened file. It returns true if the caller should read the mappings.
func (s *Space) due(path string) bool {
	s.linkMu.Lock()
	defer s.linkMu.Unlock()
	p := s.unopened[path]
	if p == nil {
		if len(s.unopened) >= maxUnopened {
			return false
		}
		if s.unopened == nil {
			s.unopened = map[string]*pause{}
		}
		p = &pause{next: 1}
		s.unopened[path] = p
	}
	if p.walks++; p.walks < p.next {
		return false
	}
	p.next = p.walks + min(p.walks, maxPause)
	return true
}

// opened records that a file of the path could be opened.
func (s *Space) opened(path string) {
	s.linkMu.Lock()
	defer s.linkMu.Unlock()
	delete(s.unopened, path)
}

// Unopened reports whether the file mapped as m could not be opened and the next Update tries it again.
func (s *Space) Unopened(m *stack.Mapping) bool {
	mod := s.module(m)
	return mod != nil && mod.again.Load()
}

// reopen returns true if the caller should read the mappings, because files on the walk could not be
// opened. Update then replaces their modules.
func (w *Walker) reopen() (yes bool) {
	var last *module
	for i := range w.frames {
		f := &w.frames[i]
		if f.Kind.Managed() || f.Kind == stack.KindError || f.PC == 0 {
			continue
		}
		r := w.snap.find(f.PC - 1)
		if r == nil || r.mod == nil || r.mod == last || !r.mod.loaded.Load() || !r.mod.failed {
			continue
		}
		if last = r.mod; w.space.due(last.mapping.Path) {
			last.again.Store(true)
			yes = true
		}
	}
	return yes
}
