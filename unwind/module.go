package unwind

import (
	"debug/elf"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
)

// A module is one file in one address space. Its Image is loaded on first use.
type module struct {
	*Image
	space   *Space
	mapping stack.Mapping // the first one seen

	once   sync.Once
	loaded atomic.Bool
	soname string
	// gone: another file is mapped in its place. trusted: memory differs from the file, but the
	// mappings still show this file.
	gone, trusted atomic.Bool
	doubts        atomic.Int32 // see maxDoubts
	failed        bool         // valid with loaded: the file could not be opened
	again         atomic.Bool  // the next Update opens it again: see unopened.go
}

func newModule(s *Space, m *stack.Mapping) *module {
	return &module{Image: &Image{}, space: s, mapping: *m}
}

func (m *module) load() {
	m.once.Do(func() {
		m.Image = m.open()
		if m.mapping.Inode != 0 && !m.failed {
			m.space.opened(m.mapping.Path)
		}
		m.link()
		m.loaded.Store(true)
	})
}

func (m *module) open() *Image {
	if m.mapping.Inode == 0 {
		b, err := m.memory()
		if err != nil {
			return &Image{err: err}
		}
		if shared, ok := m.space.files.(MemoryImages); ok {
			if img := shared.MemoryImage(b); img != nil {
				return img
			}
		}
		return NewMemoryImage(b, m.space.arch, m.space.tables...)
	}
	if shared, ok := m.space.files.(Images); ok {
		if img := shared.Image(m.mapping); img != nil {
			return img
		}
	}
	r, err := m.space.files.Open(m.mapping)
	if err != nil {
		m.failed = true
		return &Image{err: err}
	}
	return NewImage(r, m.space.arch, m.space.tables...)
}

// memory copies an ELF image without a file from the target's memory.
func (m *module) memory() ([]byte, error) {
	if m.space.mem == nil {
		return nil, errors.New("no access to the target's memory")
	}
	n := m.mapping.End - m.mapping.Start
	if n > maxImage {
		return nil, fmt.Errorf("image of %d bytes at %#x: too large", n, m.mapping.Start)
	}
	b := make([]byte, n)
	if k, err := m.space.mem.ReadAt(b, int64(m.mapping.Start)); k < len(b) {
		return nil, fmt.Errorf("image at %#x: %d of %d bytes: %w", m.mapping.Start, k, n, err)
	}
	return b, nil
}

// The kernel maps a segment from the page that contains its start. Pages have 4 KiB, or up to 64
// KiB on arm64.
const (
	smallPage = 4 << 10
	largePage = 64 << 10
)

// bias returns the offset from the file's vaddrs to addresses in r. A file that is mapped several
// times has one bias per mapping.
func (m *module) bias(r *region) (uint64, bool) {
	var best *elf.ProgHeader
	score := -1
	for i := range m.progs {
		p := &m.progs[i]
		first, end := p.Off, p.Off+p.Filesz
		if end < first || r.off >= end {
			continue
		}
		n := 0
		switch {
		case r.off >= first&^(smallPage-1):
		case r.off >= first&^(largePage-1):
			n -= 2
		default:
			continue
		}
		// Segments may share a page of the file. Of several that fit, take the one that is executable
		// like r, and then the one that begins here.
		if (p.Flags&elf.PF_X != 0) == r.exec {
			n += 4
		}
		if r.off == first&^(smallPage-1) {
			n++
		}
		if n+2 > score {
			best, score = p, n+2
		}
	}
	if best == nil {
		return 0, false
	}
	return r.start - r.off + best.Off - best.Vaddr, true
}
