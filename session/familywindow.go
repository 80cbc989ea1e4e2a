package session

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/trace"
)

// each calls do for each process beside the first that is recorded now.
func (f *family) each(do func(*Session)) {
	f.mu.Lock()
	all := make([]*Session, 0, len(f.live))
	for s := range f.live {
		all = append(all, s)
	}
	f.mu.Unlock()
	for _, s := range all {
		do(s)
	}
}

// control gives a process that each already reaches the settings that changed since its options were made.
func (f *family) control(s *Session) {
	_ = s.smp.SetInterval(f.s.smp.Interval()) // it is in range
	s.smp.Choose(f.s.smp.Selection())
	if f.s.smp.Paused() {
		s.smp.Pause()
	}
}

// choose changes the threads of all processes, also later ones. If none of the present processes has a thread
// that sel matches, it returns sampler.ErrNoThreads and changes nothing.
func (f *family) choose(sel *sampler.Selection) error {
	all := []*Session{f.s}
	f.each(func(s *Session) { all = append(all, s) })
	var without []*Session
	for _, s := range all {
		if s.smp.SetSelection(sel) != nil {
			without = append(without, s)
		}
	}
	if len(without) == len(all) {
		return sampler.ErrNoThreads
	}
	for _, s := range without {
		s.smp.Choose(sel)
	}
	return nil
}

// part is the recording of one process while names are missing in the file.
type part struct {
	section *trace.Section
	mods    *modules
	options naming.Options // without what depends on the recording
	grows   *Session       // nil: the process has ended
	rec     *trace.Recording
}

// window returns the recording of all processes so far, with names and without what does not affect the time
// from from on. Processes that ended before are left out, but for the first.
func (f *family) window(from stack.Time) (*trace.Recording, error) {
	f.reading.RLock() // keeps the files of parts open
	defer f.reading.RUnlock()
	var first *trace.Recording
	rec, failed := f.together(f.parts(from), from, &first)
	if len(failed) > 0 {
		return nil, failed[0]
	}
	return rec, nil
}

// windows yields the same in recordings of at most most processes each, one after the other, which bounds the memory.
// It returns the errors of the processes that cannot be read.
func (f *family) windows(from stack.Time, most int, yield func(*trace.Recording)) (failed []error) {
	f.reading.RLock()
	defer f.reading.RUnlock()
	var first *trace.Recording
	for parts := range slices.Chunk(f.parts(from), most) {
		rec, errs := f.together(parts, from, &first)
		failed = append(failed, errs...)
		if rec != nil {
			yield(rec)
		}
	}
	return failed
}

// together opens the parts and resolves their names. It leaves out those that cannot be read; nil: none are left.
// It sets first if the first process is one of them: the others use what its section has for all.
func (f *family) together(parts []part, from stack.Time, first **trace.Recording) (rec *trace.Recording, failed []error) {
	together := &naming.Together{}
	kept := parts[:0]
	for _, p := range parts {
		if p.grows != nil {
			p.grows.flush()
		}
		if !p.section.Written() {
			continue
		}
		one, err := p.section.Open()
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if p.section == f.s.section {
			*first = one
		} else if *first != nil {
			one.Borrow(*first)
		}
		if from > 0 {
			one = one.Since(from)
		}
		p.rec = one
		together.Add(one, p.mods, &p.options)
		kept = append(kept, p)
	}
	for i := range kept {
		p := &kept[i]
		p.options.Captured, p.options.Together = p.rec.Captured, together
		p.rec.Symbols, _ = naming.Symbols(p.rec, p.mods, p.options)
		p.rec.Named = true
	}
	if len(kept) == 0 {
		return nil, failed
	}
	rec = kept[0].rec
	for _, p := range kept[1:] {
		rec.Others = append(rec.Others, p.rec)
	}
	slices.SortStableFunc(rec.Others, func(a, b *trace.Recording) int {
		return cmp.Or(cmp.Compare(a.Process.StartTime, b.Process.StartTime), cmp.Compare(a.Process.PID, b.Process.PID))
	})
	rec.Left = f.s.Left()
	return rec, failed
}

// parts returns the recordings of the processes that did not end before from, and of the first.
func (f *family) parts(from stack.Time) []part {
	own := part{section: f.s.section, mods: f.s.mods, options: f.s.namingOptions(nil), grows: f.s}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []part{own}
	for s := range f.live {
		if s.mods != nil { // otherwise it is in nameless
			out = append(out, part{section: s.section, mods: s.mods, options: s.namingOptions(nil), grows: s})
		}
	}
	for i := range f.nameless {
		if n := &f.nameless[i]; n.ended >= from {
			out = append(out, part{section: n.section, mods: n.mods, options: n.options})
		}
	}
	return out
}

// flush writes what the rings hold, and the names of generated code so far. Errors are reported when the
// recording ends.
func (s *Session) flush() {
	s.fileMu.Lock()
	rec := s.rec
	s.fileMu.Unlock()
	if rec == nil {
		return
	}
	s.jit.look(false)
	s.runtimes.Tell()
	_, _ = rec.Flush()
}
