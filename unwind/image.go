package unwind

import (
	"debug/elf"
	"errors"
	"io"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/rule"
)

// maxImage bounds the size of an image that is read from memory. The vDSO has two to four pages.
const maxImage = 1 << 20

// An Image holds the headers and unwind tables of one file, and the data that identify a managed
// runtime in it. It is of no process: any number of Spaces may use it at once. Tables and runtimes
// are read on first use through the file, which must stay readable.
type Image struct {
	file   io.ReaderAt
	progs  []elf.ProgHeader // PT_LOAD
	entry  uint64           // vaddr of the process's entry point
	notes  []elf.ProgHeader // PT_NOTE
	mark   mark             // bytes that identify the file: see replaced.go
	fixed  bool             // the program itself
	named  string           // DT_SONAME; "": none
	needed []string         // DT_NEEDED
	cfi    *cfi.Table       // nil: none
	golang *gopcln.Table    // nil: not a Go program
	err    error            // why a table is missing

	// whole: the program was compiled as a whole, by GraalVM. Its functions are long: see nativeMore.
	whole bool
	facts facts // that languages read of the file
}

// Images are Files that share images between Spaces.
type Images interface {
	Files
	// Image returns the image of a mapped file. nil: it is not shared, use Open. The file stays
	// open as long as the Space is used.
	Image(m stack.Mapping) *Image
}

// NewImage opens the image of an ELF file. An Image of a file that cannot be read has no tables;
// the error is among the Space's Errors.
func NewImage(file io.ReaderAt, arch rule.Arch) *Image { return newImage(file, arch, true) }

// newImage is NewImage. linked: the file may be linked with others, unlike the vDSO.
func newImage(file io.ReaderAt, arch rule.Arch, linked bool) *Image {
	m := &Image{file: file}
	m.err = m.open(arch, linked)
	return m
}

func (m *Image) open(arch rule.Arch, linked bool) error {
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
	if linked {
		m.links(f)
	}
	m.whole = f.Section(".svm_heap") != nil // as jvm.NativeImage recognizes them
	errGo := m.loadGo(f, arch)
	if m.cfi, err = cfi.Load(m.file, arch); err == nil {
		err = errGo
	}
	return err
}

// loadGo opens the tables of Go's linker if the file has them.
func (m *Image) loadGo(f *elf.File, arch rule.Arch) error {
	if !mayBeGo(f) {
		return nil
	}
	t, err := gopcln.Load(m.file, arch)
	switch {
	case err == nil:
		m.golang = t
	case errors.Is(err, gopcln.ErrNotGo):
		err = nil
	}
	return err
}

// code reads bytes at vaddr from the file.
func (m *Image) code(b []byte, vaddr uint64) int {
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
func (m *Image) rule(vaddr uint64, out *rule.Rule) (golang bool, err error) {
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
