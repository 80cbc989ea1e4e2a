package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// After a library is unloaded, another one may be mapped at the same addresses, or a rebuilt plugin
// may be loaded under the old name. No address is unknown then, so the change goes unnoticed. Each
// walk through a file that can be unloaded therefore compares a few bytes in memory with the file:
// its build ID, or its first bytes if it has none. Files that a program is linked with stay mapped
// and are not compared. So only programs that load code at run time pay: one more read per sample,
// after the stop.

const (
	// maxMark bounds the bytes that are compared per file.
	maxMark = 1024
	// maxMarked bounds the files that are compared after one walk.
	maxMarked = 8
	// maxNoteBytes bounds a notes segment that is searched for a build ID.
	maxNoteBytes = 4096
	// maxDoubts is how often in a row a file must differ from memory right after the mappings were read.
	maxDoubts = 8
	// maxLinked bounds the recorded names of linked files.
	maxLinked = 1 << 16
)

// mark holds bytes that identify a file where it is mapped.
type mark struct {
	vaddr uint64
	data  []byte // nil: nothing identifies the file
}

// markOf returns the build ID of a file, or its first bytes.
func (m *Image) markOf() mark {
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

// links reads a file's dependencies. A file that names an interpreter is the program itself.
func (m *Image) links(f *elf.File) {
	m.fixed = f.Type == elf.ET_EXEC
	for _, p := range f.Progs {
		m.fixed = m.fixed || p.Type == elf.PT_INTERP
		if p.Type == elf.PT_NOTE {
			m.notes = append(m.notes, p.ProgHeader)
		}
	}
	m.mark = m.markOf()
	m.needed = dynamicNames(f, elf.DT_NEEDED)
	if names := dynamicNames(f, elf.DT_SONAME); len(names) > 0 {
		m.named = names[0]
	}
}

// maxLibraryName bounds the name of a library in bytes: that of a file has at most 255. maxNeeded bounds the libraries.
const (
	maxLibraryName = 256
	maxNeeded      = 1 << 12
)

// dynamicNames is f.DynString without reading the whole string table, which has the names of all symbols too.
func dynamicNames(f *elf.File, tag elf.DynTag) (names []string) {
	at, err := f.DynValue(tag)
	dynamic := f.SectionByType(elf.SHT_DYNAMIC)
	if err != nil || dynamic == nil || int(dynamic.Link) >= len(f.Sections) {
		return nil
	}
	table := f.Sections[dynamic.Link]
	if table.Type != elf.SHT_STRTAB {
		return nil
	}
	for _, off := range at[:min(len(at), maxNeeded)] {
		var b [maxLibraryName]byte
		n, _ := table.ReadAt(b[:], int64(min(off, math.MaxInt64)))
		if name, _, ok := bytes.Cut(b[:n], []byte{0}); ok && len(name) > 0 {
			names = append(names, string(name))
		}
	}
	return names
}

// link records a file's dependencies in its Space. The files that a program is linked with stay
// mapped as long as it runs.
func (m *module) link() {
	if m.mapping.Inode == 0 || m.progs == nil {
		return
	}
	if m.soname = m.named; m.soname == "" {
		m.soname = m.mapping.Path[strings.LastIndexByte(m.mapping.Path, '/')+1:]
	}
	s := m.space
	s.linkMu.Lock()
	defer s.linkMu.Unlock()
	if !m.fixed && !s.linked[m.soname] {
		// The program may be opened after its libraries.
		if s.needs == nil {
			s.needs = map[string][]string{}
		}
		if len(s.needs) < maxLinked {
			s.needs[m.soname] = m.needed
		}
		return
	}
	s.keepLinked(append([]string{m.soname}, m.needed...))
}

// keepLinked records that files with these names, and their dependencies, stay mapped.
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

// replaced compares the marks of the files on the walk with memory, and reports whether one of them
// was replaced. twice means that the mappings were already read again. A file that still differs then
// is not compared any more after maxDoubts times in a row: its memory was changed. The first times, the
// program may have replaced the file once more since the mappings were read.
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
	w.markOff, w.markBuf = ReadAll(w.space.mem, w.markSpans, w.markOff, w.markBuf)
	yes = !twice && w.reopen()
	for i, m := range w.marked {
		at := w.markOff[i]
		if at >= 0 && bytes.Equal(w.markBuf[at:at+len(m.mark.data)], m.mark.data) {
			if m.doubts.Load() != 0 {
				m.doubts.Store(0)
			}
			continue
		}
		if twice {
			if m.doubts.Add(1) >= maxDoubts {
				m.trusted.Store(true)
			}
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

// Replaced reports whether the last walk met a replaced file. The caller then reads the mappings
// again (Update) and repeats the walk.
func (w *Walker) Replaced() bool { return w.stale }

// Current reports whether the last walk used the current mappings.
func (w *Walker) Current() bool { return w.snap == w.space.snap.Load() }

// Here reports whether the code of a frame is still mapped at the same place.
func (w *Walker) Here(f *stack.Frame) bool {
	if f.Kind.Managed() || f.Kind == stack.KindError {
		return true
	}
	r := w.snap.find(f.PC - 1)
	return r != nil && r.era == f.Era && (r.exec || r.made)
}

// Gone reports whether the file that is or was mapped as m was replaced by another one.
func (s *Space) Gone(m *stack.Mapping) bool {
	mod := s.module(m)
	return mod != nil && mod.gone.Load()
}

// module returns the module of a mapping, nil if there is none.
func (s *Space) module(m *stack.Mapping) *module {
	key, ok := keyOf(m)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.modules[key]
}

// turns sets the eras of the regions. A region that does not continue an earlier one starts a new
// era.
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
