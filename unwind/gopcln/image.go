package gopcln

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

const (
	pageSize    = 4096
	maxPages    = 512      // of one file to keep in memory: 2 MiB
	maxSegments = 256      // program headers to read; real files have a dozen
	maxRelocs   = 64 << 20 // bytes of relocations to read: those of a file of some 500 MB
	scanBuffer  = 64 << 10
)

// An image reads an ELF file by vaddr through a bounded page cache. Its methods may be called
// concurrently.
type image struct {
	r    io.ReaderAt
	segs []elf.ProgHeader // PT_LOAD only

	mu    sync.Mutex
	pages map[int64][]byte
	order []int64 // keys of pages; the oldest is at next
	next  int
}

func newImage(r io.ReaderAt, f *elf.File) *image {
	m := &image{r: r, pages: make(map[int64][]byte)}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && len(m.segs) < maxSegments {
			m.segs = append(m.segs, p.ProgHeader)
		}
	}
	return m
}

// page returns one page of the file. It is shorter than pageSize at the file's end.
func (m *image) page(no int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.pages[no]; ok {
		return p, nil
	}
	p := make([]byte, pageSize)
	n, err := m.r.ReadAt(p, no*pageSize)
	if n == 0 && err != nil {
		return nil, err
	}
	p = p[:n]
	if len(m.order) < maxPages {
		m.order = append(m.order, no)
	} else {
		delete(m.pages, m.order[m.next])
		m.order[m.next] = no
		m.next = (m.next + 1) % maxPages
	}
	m.pages[no] = p
	return p, nil
}

// readOff fills b completely from the file offset off, or returns an error.
func (m *image) readOff(b []byte, off int64) error {
	if off < 0 || off > 1<<56 {
		return fmt.Errorf("offset %#x is outside the file", uint64(off))
	}
	for start := off; len(b) > 0; {
		p, err := m.page(off / pageSize)
		if err != nil {
			return fmt.Errorf("read at offset %#x: %w", start, err)
		}
		in := int(off % pageSize)
		if in >= len(p) {
			return fmt.Errorf("read at offset %#x: %w", start, io.ErrUnexpectedEOF)
		}
		n := copy(b, p[in:])
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// segment returns the file offset of vaddr and the number of bytes that follow it there.
func (m *image) segment(vaddr uint64) (off int64, rest uint64, ok bool) {
	for i := range m.segs {
		s := &m.segs[i]
		if d := vaddr - s.Vaddr; vaddr >= s.Vaddr && d < s.Filesz {
			return int64(s.Off + d), s.Filesz - d, s.Off <= 1<<56 && d <= 1<<56
		}
	}
	return 0, 0, false
}

// executable reports whether vaddr is in code.
func (m *image) executable(vaddr uint64) bool {
	for i := range m.segs {
		s := &m.segs[i]
		if s.Flags&elf.PF_X != 0 && vaddr >= s.Vaddr && vaddr-s.Vaddr < s.Memsz {
			return true
		}
	}
	return false
}

// read fills b from vaddr with the file's bytes, before relocation.
func (m *image) read(b []byte, vaddr uint64) error {
	off, rest, ok := m.segment(vaddr)
	if !ok || rest < uint64(len(b)) {
		return fmt.Errorf("vaddr %#x (%d bytes) is not in the file", vaddr, len(b))
	}
	return m.readOff(b, off)
}

// some is read for data that the end of the segment may cut off.
func (m *image) some(b []byte, vaddr uint64) ([]byte, error) {
	_, rest, ok := m.segment(vaddr)
	if !ok {
		return nil, fmt.Errorf("vaddr %#x is not in the file", vaddr)
	}
	if rest < uint64(len(b)) {
		b = b[:rest]
	}
	return b, m.read(b, vaddr)
}

// A reloc is a relocation to which the dynamic linker adds the load bias.
type reloc struct{ at, addend uint64 }

// relative calls visit with every relative relocation that has an addend (RELA), until visit
// returns false. RELR relocations keep the value in place, where read finds it.
func (m *image) relative(f *elf.File, machine elf.Machine, visit func(reloc) bool) error {
	table, size := uint64(0), uint64(0)
	for _, p := range f.Progs {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		var b [16]byte
		for i := uint64(0); i+16 <= p.Filesz && i < pageSize*16; i += 16 {
			if err := m.readOff(b[:], int64(p.Off+i)); err != nil {
				return err
			}
			switch v := binary.LittleEndian.Uint64(b[8:]); elf.DynTag(binary.LittleEndian.Uint64(b[:])) {
			case elf.DT_RELA:
				table = v
			case elf.DT_RELASZ:
				size = v
			}
		}
	}
	off, rest, ok := m.segment(table)
	if size == 0 || !ok {
		return nil
	}
	want := uint64(elf.R_X86_64_RELATIVE)
	if machine == elf.EM_AARCH64 {
		want = uint64(elf.R_AARCH64_RELATIVE)
	}
	buf := make([]byte, scanBuffer/24*24)
	for left := min(size, rest, maxRelocs) / 24 * 24; left > 0; {
		b := buf[:min(left, uint64(len(buf)))]
		if n, err := m.r.ReadAt(b, off); n < len(b) {
			return fmt.Errorf("read relocations at offset %#x: %w", off, err)
		}
		off, left = off+int64(len(b)), left-uint64(len(b))
		for ; len(b) >= 24; b = b[24:] {
			if binary.LittleEndian.Uint64(b[8:]) == want &&
				!visit(reloc{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[16:])}) {
				return nil
			}
		}
	}
	return nil
}
