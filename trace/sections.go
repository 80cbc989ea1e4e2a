package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"
)

// A recording of several processes is one file with a section for each process. A section
// has the chunks of a recording of that process alone. A chunk SECT (payload: uvarint
// number of the section) says to which section the chunks after it belong, up to the next
// SECT. Chunks before the first SECT belong to section 0.

// MaxSections limits the sections of a file: more processes than a PID namespace has by
// default (PID_MAX_DEFAULT in include/linux/threads.h).
const MaxSections = 1 << 15

// extent is a range of a section's own bytes in the file.
type extent struct{ at, off, n int64 }

// span is a section as a file of its own: the file's header, then the section's chunks.
type span struct {
	r       io.ReaderAt
	extents []extent // by at
	size    int64
}

func newSpan(r io.ReaderAt) *span {
	s := &span{r: r}
	s.add(0, headerLen)
	return s
}

// add appends n bytes of the file from off.
func (s *span) add(off, n int64) {
	if k := len(s.extents); k > 0 && s.extents[k-1].off+s.extents[k-1].n == off {
		s.extents[k-1].n += n
	} else {
		s.extents = append(s.extents, extent{s.size, off, n})
	}
	s.size += n
}

// ReadAt implements io.ReaderAt.
func (s *span) ReadAt(p []byte, at int64) (n int, err error) {
	for len(p) > n {
		i := sort.Search(len(s.extents), func(i int) bool { return s.extents[i].at > at }) - 1
		if i < 0 || at >= s.extents[i].at+s.extents[i].n {
			return n, io.EOF
		}
		e := &s.extents[i]
		k := min(int64(len(p)-n), e.at+e.n-at)
		m, err := s.r.ReadAt(p[n:n+int(k)], e.off+at-e.at)
		n, at = n+m, at+int64(m)
		if int64(m) < k {
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
	}
	return n, nil
}

// File is the file that Sections writes and that its sections read.
type File interface {
	io.Writer
	io.ReaderAt
}

// Sections writes a recording of several processes. Its methods and those of its sections
// may be called from any goroutine.
type Sections struct {
	f File

	mu   sync.Mutex
	at   int64 // bytes written
	n    int   // sections with a number
	last int   // section of the chunks written last
	err  error
	buf  []byte
}

// Section is one process's part of the file. It takes the output of a Writer: whole
// chunks. A section without events stays in memory.
type Section struct {
	of     *Sections
	number int    // -1: it is in memory
	held   []byte // chunks in memory
	span   *span
}

// NewSections writes the header of a file to f, which must be empty, and returns the first
// section, which is in the file from the start.
func NewSections(f File) (*Sections, *Section, error) {
	s := &Sections{f: f, n: 1}
	if err := s.write(appendHeader(nil)); err != nil {
		return nil, nil, err
	}
	return s, &Section{of: s, span: newSpan(f)}, nil
}

// Add returns a new section.
func (s *Sections) Add() *Section { return &Section{of: s, number: -1, span: newSpan(s.f)} }

func (s *Sections) write(b []byte) error {
	if s.err == nil {
		var n int
		n, s.err = s.f.Write(b)
		s.at += int64(n)
	}
	return s.err
}

// Writer returns a Writer of the section's chunks.
func (x *Section) Writer() *Writer { return &Writer{w: x} }

// Write implements io.Writer. The bytes are whole chunks.
func (x *Section) Write(b []byte) (int, error) {
	s := x.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	if x.number < 0 {
		x.held = append(x.held, b...)
		if !hasEvents(b) {
			return len(b), nil
		}
		return len(b), s.begin(x)
	}
	return len(b), s.put(x, b)
}

// hasEvents reports whether one of the chunks in b is of type EVNT.
func hasEvents(b []byte) bool {
	for len(b) >= chunkHead {
		if string(b[:4]) == chunkEvents {
			return true
		}
		n := chunkHead + int64(binary.LittleEndian.Uint32(b[4:]))
		if n >= int64(len(b)) {
			return false
		}
		b = b[n:]
	}
	return false
}

// begin gives a section its number and writes what it holds. The caller holds s.mu.
func (s *Sections) begin(x *Section) error {
	if s.n >= MaxSections {
		return fmt.Errorf("more than %d processes in one recording", MaxSections)
	}
	x.number = s.n
	s.n++
	held := x.held
	x.held = nil
	return s.put(x, held)
}

// put writes chunks of x, with one call. The caller holds s.mu.
func (s *Sections) put(x *Section, b []byte) error {
	s.buf = s.buf[:0]
	if s.last != x.number {
		s.buf = appendChunk(s.buf, chunkSection, binary.AppendUvarint(nil, uint64(x.number)))
	}
	head := int64(len(s.buf))
	off := s.at + head
	if head > 0 {
		s.buf = append(s.buf, b...)
		b = s.buf
	}
	if err := s.write(b); err != nil {
		return err
	}
	s.last = x.number
	x.span.add(off, int64(len(b))-head)
	return nil
}

// Size returns the length of the file so far in bytes, and the number of its sections.
func (s *Sections) Size() (bytes int64, sections int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at, s.n
}

// Written reports whether the section is in the file: whether it has events.
func (x *Section) Written() bool {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	return x.number >= 0
}

// Open opens the section as a recording of one process.
func (x *Section) Open() (*Recording, error) { return x.open(nil) }

// OpenPlaces opens the section for the names of its places, without statistics and waits. It takes k's content from k, since
// parsing that takes most of the time of Open.
func (x *Section) OpenPlaces(k Known) (*Recording, error) { return x.open(&k) }

func (x *Section) open(k *Known) (*Recording, error) {
	x.of.mu.Lock()
	view := &span{r: x.span.r, extents: append([]extent(nil), x.span.extents...), size: x.span.size}
	x.of.mu.Unlock()
	return openKnown(view, view.size, k)
}

// Known is what the writer of a section knows of it. Maps are sorted by time.
type Known struct {
	Process Process
	Maps    []Maps
	Modules []Module
}

// put sets the known fields of rec. k may be nil.
func (k *Known) put(rec *Recording) (process bool) {
	if k == nil {
		return false
	}
	rec.Process, rec.Maps, rec.Modules = k.Process, k.Maps, k.Modules
	return true
}

// replaces reports whether a chunk need not be read. k may be nil.
func (k *Known) replaces(typ string) bool {
	return k != nil && (typ == chunkProcess || typ == chunkMaps || typ == chunkStats || typ == chunkWait || typ == chunkLeft)
}

func appendChunk(b []byte, typ string, payload []byte) []byte {
	at := len(b)
	b = append(b, typ...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, chunkCRC(b[at:], payload))
	return append(b, payload...)
}

// openSections opens a file with sections. The first process that can be read is the
// recording, the others are its Others.
func openSections(r io.ReaderAt, size int64) (*Recording, error) {
	spans, problems := findSections(r, size)
	var rec *Recording
	var first error
	for i, s := range spans {
		one, err := Open(s, s.size)
		if errors.Is(err, ErrNewer) {
			return nil, err
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("section %d: %w", i, err))
			if first == nil {
				first = err
			}
			continue
		}
		if rec == nil {
			rec = one
		} else {
			one.Borrow(rec)
			rec.Others = append(rec.Others, one)
		}
	}
	if rec == nil {
		return nil, first
	}
	for _, p := range problems {
		rec.problem(p)
	}
	return rec, nil
}

// VDSO is Captured.What of the image of the vDSO.
const VDSO = "vdso"

// Borrow takes the image of the vDSO from first, the recording of the first section, if rec has the same vDSO by its
// build ID, without an image: such a section was written after that of first.
func (rec *Recording) Borrow(first *Recording) {
	id, own := rec.vdso()
	if has, image := first.vdso(); own == nil && image != nil && id != "" && id == has {
		rec.Captured = append(rec.Captured, *image)
	}
}

// vdso returns the build ID of the vDSO, "" if it is unknown, and its image, nil if the recording has none.
func (rec *Recording) vdso() (id string, image *Captured) {
	for i := range rec.Modules {
		if m := &rec.Modules[i]; m.Path == "[vdso]" && id == "" {
			id = m.BuildID
		}
	}
	for i := range rec.Captured {
		if rec.Captured[i].What == VDSO {
			image = &rec.Captured[i]
		}
	}
	return id, image
}

// findSections returns the parts of the file by section. It does not know the section of
// chunks after a damaged SECT, and leaves them out.
func findSections(r io.ReaderAt, size int64) (spans []*span, problems []error) {
	spans = []*span{newSpan(r)}
	now := spans[0]
	var buf []byte
	for off := int64(headerLen); off < size; {
		typ, length, crc, err := chunkAt(r, off, size)
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				problems = append(problems, err)
			}
			break
		}
		n := chunkHead + int64(length)
		switch {
		case typ == chunkSection:
			now = nil
			var number uint64
			if buf, err = payloadAt(r, off, typ, length, crc, buf); err == nil {
				number, err = sectionNumber(buf, off, len(spans))
			}
			switch {
			case err != nil:
				problems = append(problems, err)
			case number == uint64(len(spans)):
				now = newSpan(r)
				spans = append(spans, now)
			default:
				now = spans[number]
			}
		case now != nil:
			now.add(off, n)
		}
		off += n
	}
	if len(problems) > maxProblems {
		problems = problems[:maxProblems]
	}
	return spans, problems
}

func sectionNumber(b []byte, off int64, known int) (uint64, error) {
	number, n := binary.Uvarint(b)
	if n <= 0 || number > uint64(known) || number >= MaxSections {
		return 0, fmt.Errorf("offset %d: section %d, expected at most %d", off, number, min(known, MaxSections-1))
	}
	return number, nil
}

// All returns the recording of each process, the first one's first.
func (rec *Recording) All() []*Recording { return append([]*Recording{rec}, rec.Others...) }

// Pick returns a recording of the processes of rec that want accepts; nil if there are none.
func (rec *Recording) Pick(want func(*Process) bool) *Recording {
	var out *Recording
	for _, one := range rec.All() {
		if !want(&one.Process) {
			continue
		}
		if out == nil {
			first := *one
			out = &first
			out.Others = nil
		} else {
			out.Others = append(out.Others, one)
		}
	}
	return out
}

// Copy writes all chunks of rec and of its Others to w, with names that were looked up
// after Open.
func Copy(w io.Writer, rec *Recording) error {
	if _, err := w.Write(appendHeader(nil)); err != nil {
		return err
	}
	for i, one := range rec.All() {
		if i > 0 {
			if _, err := w.Write(appendChunk(nil, chunkSection, binary.AppendUvarint(nil, uint64(i)))); err != nil {
				return err
			}
		}
		if _, err := io.Copy(w, io.NewSectionReader(one.r, headerLen, max(one.end-headerLen, 0))); err != nil {
			return err
		}
		if one.Named {
			if err := AppendSymbols(w, one.Symbols); err != nil {
				return err
			}
		}
	}
	return nil
}
