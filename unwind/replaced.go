package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// A library that is unloaded leaves room for another one, which may come to lie at the same
// addresses, and a plugin that was rebuilt is loaded again under its old name. No
// address is unknown then. So each walk through a file that can be unloaded compares a few
// bytes in memory with the file's: its build
// ID, or its first bytes where it has none. Files that a program is linked with stay, and
// are not looked at, so that only programs that load code while they run pay for it: one
// more read a sample, after the stop.

const (
	// maxMark bounds the bytes that are compared of a file.
	maxMark = 1024
	// maxMarked bounds the files that are looked at after one walk.
	maxMarked = 8
	// maxNoteBytes bounds a segment of notes that may hold a build ID.
	maxNoteBytes = 4096
	// maxLinked bounds the names that programs are linked with.
	maxLinked = 1 << 16
)

// mark holds bytes that identify a file where it is mapped.
type mark struct {
	vaddr uint64
	data  []byte // nil: nothing does
}

// markOf finds the build ID of a file, or takes its beginning.
func (m *module) markOf() mark {
	for i := range m.notes {
		p := &m.notes[i]
		if p.Filesz > maxNoteBytes {
			continue
		}
		b := make([]byte, p.Filesz)
		if n, _ := m.file.ReadAt(b, int64(p.Off)); n < len(b) {
			continue
		}
		// ELF notes: sizes of name and description, type; NT_GNU_BUILD_ID is 3.
		head := []byte{4, 0, 0, 0}
		for at := 0; at+16 <= len(b); at += 4 {
			if bytes.Equal(b[at:at+4], head) && binary.LittleEndian.Uint32(b[at+8:]) == 3 && string(b[at+12:at+16]) == "GNU\x00" {
				if n := int(binary.LittleEndian.Uint32(b[at+4:])); n > 0 && n <= len(b)-at-16 && n <= 64 {
					return mark{p.Vaddr + uint64(at) + 16, b[at+16 : at+16+n]}
				}
			}
		}
	}
	for i := range m.progs {
		if p := &m.progs[i]; p.Off == 0 && p.Flags&elf.PF_W == 0 {
			b := make([]byte, min(p.Filesz, maxMark))
			if n, _ := m.file.ReadAt(b, 0); n == len(b) {
				return mark{p.Vaddr, b}
			}
		}
	}
	return mark{}
}

// link notes what a file says of the program: one that names its loader is the program
// itself, and what it is linked with stays as long as it runs.
func (m *module) link(f *elf.File) {
	if m.mapping.Inode == 0 {
		return
	}
	m.fixed = f.Type == elf.ET_EXEC
	for _, p := range f.Progs {
		m.fixed = m.fixed || p.Type == elf.PT_INTERP
		if p.Type == elf.PT_NOTE {
			m.notes = append(m.notes, p.ProgHeader)
		}
	}
	m.mark = m.markOf()
	needed, _ := f.ImportedLibraries()
	m.soname = m.mapping.Path[strings.LastIndexByte(m.mapping.Path, '/')+1:]
	if names, err := f.DynString(elf.DT_SONAME); err == nil && len(names) > 0 && names[0] != "" {
		m.soname = names[0]
	}
	s := m.space
	s.linkMu.Lock()
	defer s.linkMu.Unlock()
	if !m.fixed && !s.linked[m.soname] {
		// The program may be opened later.
		if s.needs == nil {
			s.needs = map[string][]string{}
		}
		if len(s.needs) < maxLinked {
			s.needs[m.soname] = needed
		}
		return
	}
	s.keepLinked(append(needed, m.soname))
}

// keepLinked notes that files of these names stay, and what they are linked with.
func (s *Space) keepLinked(names []string) {
	if s.linked == nil {
		s.linked = map[string]bool{}
	}
	for len(names) > 0 {
		n := names[len(names)-1]
		names = names[:len(names)-1]
		if s.linked[n] || len(s.linked) >= maxLinked {
			continue
		}
		s.linked[n] = true
		names = append(names, s.needs[n]...)
	}
}

// loose reports whether the file may be unloaded while its program runs.
func (m *module) loose() bool {
	if m.fixed || len(m.mark.data) == 0 || m.trusted.Load() {
		return false
	}
	s := m.space
	s.linkMu.Lock()
	defer s.linkMu.Unlock()
	return !s.linked[m.soname]
}

// replaced compares the marks of the files that the walk went through with memory, and
// reports whether one of the files was replaced. A file that still differs after the
// mappings were read again (twice) is not compared any more.
func (w *Walker) replaced(twice bool) (yes bool) {
	if w.space.mem == nil {
		return false
	}
	w.marked, w.markSpans = w.marked[:0], w.markSpans[:0]
	for i := range w.frames {
		f := &w.frames[i]
		if f.Kind.Managed() || f.Kind == stack.KindError || f.PC == 0 {
			continue
		}
		r := w.snap.find(f.PC - 1)
		if r == nil || r.mod == nil || !r.exec || !r.mod.loose() {
			continue
		}
		bias, ok := r.mod.bias(r)
		at := r.mod.mark.vaddr + bias
		if !ok || len(w.marked) == maxMarked || contains(w.markSpans, at) {
			continue
		}
		w.marked = append(w.marked, r.mod)
		w.markSpans = append(w.markSpans, stack.Span{Addr: at, Len: len(r.mod.mark.data)})
	}
	w.markOff, w.markBuf = readAll(w.space.mem, w.markSpans, w.markOff, w.markBuf)
	for i, m := range w.marked {
		at := w.markOff[i]
		if at >= 0 && bytes.Equal(w.markBuf[at:at+len(m.mark.data)], m.mark.data) {
			continue
		}
		if twice {
			m.trusted.Store(true)
			continue
		}
		yes = true
		if at >= 0 {
			m.gone.Store(true)
		}
	}
	return yes
}

func contains(spans []stack.Span, addr uint64) bool {
	for i := range spans {
		if spans[i].Addr == addr {
			return true
		}
	}
	return false
}

// Replaced reports whether the last walk met a file that was replaced. The caller reads the
// mappings again (Update) and repeats the walk.
func (w *Walker) Replaced() bool { return w.stale }

// Current reports whether the mappings are still those of the last walk.
func (w *Walker) Current() bool { return w.snap == w.space.snap.Load() }

// Here reports whether the code that a frame is in is still mapped where it was.
func (w *Walker) Here(f *stack.Frame) bool {
	if f.Kind.Managed() || f.Kind == stack.KindError {
		return true
	}
	r := w.snap.find(f.PC - 1)
	return r != nil && r.era == f.Era && (r.exec || r.made)
}

// Gone reports whether a file that is or was mapped as m says was found to be another one.
func (s *Space) Gone(m *stack.Mapping) bool {
	key, ok := keyOf(m)
	if !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	mod := s.modules[key]
	return mod != nil && mod.gone.Load()
}

// turns sets the regions' eras: a region that does not continue an earlier one begins
// another era.
func (s *snapshot) turns(old *snapshot) {
	if s.era = old.era; s.epoch != old.epoch {
		if s.era++; s.era == 0 {
			s.era = 1
		}
	}
	for i := range s.regions {
		r := &s.regions[i]
		if !r.exec {
			continue
		}
		r.era = s.era
		for j := old.after(r.start); j < len(old.regions) && old.regions[j].start < r.end; j++ {
			if o := &old.regions[j]; o.exec && o.mod == r.mod && (r.mod == nil || o.start-o.off == r.start-r.off) {
				r.era = o.era
				break
			}
		}
	}
}
