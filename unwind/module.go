package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/jvm"
	"github.com/sliverprof/sliver/unwind/python"
	"github.com/sliverprof/sliver/unwind/rule"
	"github.com/sliverprof/sliver/unwind/v8"
)

// maxImage bounds the size of an image that is read from memory. The vDSO has two to four pages.
const maxImage = 1 << 20

// A module holds the tables of one file, loaded on first use.
type module struct {
	space   *Space
	mapping stack.Mapping // the first one seen

	once   sync.Once
	loaded atomic.Bool
	file   io.ReaderAt
	progs  []elf.ProgHeader // PT_LOAD
	entry  uint64           // vaddr of the process's entry point
	notes  []elf.ProgHeader // PT_NOTE
	mark   mark             // bytes that identify the file: see replaced.go
	fixed  bool             // the program itself
	soname string
	// gone: another file is mapped in its place. trusted: memory differs from the file, but the
	// mappings still show this file.
	gone, trusted atomic.Bool
	cfi           *cfi.Table    // nil: none
	golang        *gopcln.Table // nil: not a Go program
	err           error         // why a table is missing

	v8 struct { // see v8Image
		once sync.Once
		img  *v8.Image
		err  error
	}
	python struct { // see pythonImage
		once sync.Once
		img  *python.Image
		err  error
	}
	jvm struct { // see FollowJVM
		once sync.Once
		img  *jvm.Image
		err  error
	}
	native struct { // see jvm.NativeImage
		vm string
		ok bool
	}
}

func (m *module) load() {
	m.once.Do(func() {
		m.err = m.open()
		m.loaded.Store(true)
	})
}

func (m *module) open() (err error) {
	if m.mapping.Inode == 0 {
		m.file, err = m.image()
	} else {
		m.file, err = m.space.files.Open(m.mapping)
	}
	if err != nil {
		return err
	}
	f, err := cfi.OpenELF(m.file)
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			m.progs = append(m.progs, p.ProgHeader)
		}
	}
	m.entry = f.Entry
	m.link(f)
	m.native.vm, m.native.ok = jvm.NativeImage(f)
	errGo := m.loadGo(f)
	if m.cfi, err = cfi.Load(m.file, m.space.arch); err == nil {
		err = errGo
	}
	return err
}

// image copies an ELF image without a file from the target's memory.
func (m *module) image() (io.ReaderAt, error) {
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
	return bytes.NewReader(b), nil
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

// code reads bytes at vaddr from the file.
func (m *module) code(b []byte, vaddr uint64) int {
	for i := range m.progs {
		if p := &m.progs[i]; vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			d := vaddr - p.Vaddr
			n, _ := m.file.ReadAt(b[:min(uint64(len(b)), p.Filesz-d)], int64(p.Off+d))
			return n
		}
	}
	return 0
}

// rule computes the rule for vaddr. It uses pclntab where it covers vaddr, because many programs
// are linked without Go's CFI. It uses call frame information for the rest (C code in the same
// file).
func (m *module) rule(vaddr uint64, out *rule.Rule) (golang bool, err error) {
	if m.golang != nil {
		if err := m.golang.Rule(vaddr, out); err == nil || !errors.Is(err, rule.ErrNoRule) {
			return true, err
		}
	}
	if m.cfi == nil {
		return false, rule.ErrNoRule
	}
	return false, m.cfi.Rule(vaddr, out)
}
