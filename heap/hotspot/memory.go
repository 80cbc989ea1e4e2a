package hotspot

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	pageBytes = 16 << 10 // read at once
	maxPages  = 8 << 10  // of them that are kept: 128 MiB
	fewPages  = 512      // the same, where most pages are read once
	maxString = 1 << 16  // bytes of a name
)

// memory reads small structures in pages that it keeps, since the memory does not change.
type memory struct {
	src   io.ReaderAt
	pages map[uint64][]byte
	most  int      // of them that are kept
	free  [][]byte // buffers of pages that are not kept any more
	last  []byte   // the page that was used last,
	lastN uint64   // and its number
}

func newMemory(src io.ReaderAt) *memory {
	return &memory{src: src, pages: map[uint64][]byte{}, most: maxPages}
}

// page returns the readable start of a page, which may be shorter than the page.
func (m *memory) page(n uint64) []byte {
	if m.last == nil || m.lastN != n {
		m.last, m.lastN = m.find(n), n
	}
	return m.last
}

// find returns a page that is kept, or reads it.
func (m *memory) find(n uint64) []byte {
	if p, ok := m.pages[n]; ok {
		return p
	}
	if len(m.pages) >= m.most {
		for _, p := range m.pages {
			m.free = append(m.free, p[:pageBytes])
		}
		clear(m.pages)
	}
	var p []byte
	if k := len(m.free); k > 0 {
		p, m.free = m.free[k-1], m.free[:k-1]
	} else {
		p = make([]byte, pageBytes)
	}
	got, _ := m.src.ReadAt(p, int64(n*pageBytes))
	if got < len(p) {
		// Smaller pages before the first one that is not mapped.
		for got = 0; got < len(p); got += 4096 {
			if k, _ := m.src.ReadAt(p[got:got+4096], int64(n*pageBytes)+int64(got)); k < 4096 {
				break
			}
		}
	}
	p = p[:got]
	m.pages[n] = p
	return p
}

func (m *memory) read(b []byte, addr uint64) error {
	for len(b) > 0 {
		p := m.page(addr / pageBytes)
		at := addr % pageBytes
		if at >= uint64(len(p)) {
			// Behind a hole in the page.
			n := min(uint64(len(b)), pageBytes-at)
			if got, err := m.src.ReadAt(b[:n], int64(addr)); uint64(got) < n {
				return fmt.Errorf("read %d bytes at %#x: %w", n, addr, err)
			}
			b, addr = b[n:], addr+n
			continue
		}
		n := copy(b, p[at:])
		b, addr = b[n:], addr+uint64(n)
	}
	return nil
}

func (m *memory) word(addr uint64) (uint64, error) {
	var b [8]byte
	err := m.read(b[:], addr)
	return le64(b[:]), err
}

func (m *memory) half(addr uint64) (uint32, error) {
	var b [4]byte
	err := m.read(b[:], addr)
	return le32(b[:]), err
}

func (m *memory) byte(addr uint64) (byte, error) {
	var b [1]byte
	err := m.read(b[:], addr)
	return b[0], err
}

// handle follows an OopHandle: a pointer to a reference of 8 bytes. 0: there is none.
func (m *memory) handle(addr uint64) uint64 {
	p, err := m.word(addr)
	if err != nil || p == 0 {
		return 0
	}
	oop, err := m.word(p)
	if err != nil {
		return 0
	}
	return oop
}

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func le16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }
