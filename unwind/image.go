package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/cfi"
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
	own    Tables           // nil: none
	by     *Language        // whose own are
	err    error            // why a table is missing

	// whole: the program was compiled as a whole, by GraalVM. Its functions are long: see nativeMore.
	whole bool
	facts facts  // that languages read of the file
	known *rules // nil: one Space uses the image, whose Walkers keep its rules
}

// rules are those of an Image that several Spaces use, by the address that was looked up: a compiler that runs a
// hundred times is in the same functions each time. Its methods may be called concurrently.
type rules struct {
	mu sync.Mutex
	of map[uint64]knownRule
}

type knownRule struct {
	rule rule.Rule
	own  bool
}

// maxRules bounds the rules of one Image, of some 400 bytes each.
const maxRules = 4096

func (r *rules) find(vaddr uint64, out *rule.Rule) (own, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.of[vaddr]
	if !ok {
		return false, false
	}
	exprs := append(out.Exprs[:0], k.rule.Exprs...)
	*out = k.rule
	out.Exprs = exprs
	return k.own, true
}

func (r *rules) add(vaddr uint64, own bool, found *rule.Rule) {
	k := knownRule{rule: *found, own: own}
	k.rule.Exprs = slices.Clone(found.Exprs)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.of) >= maxRules {
		clear(r.of)
	}
	r.of[vaddr] = k
}

// Images are Files that share images between Spaces.
type Images interface {
	Files
	// Image returns the image of a mapped file. nil: it is not shared, use Open. The file stays
	// open as long as the Space is used.
	Image(m stack.Mapping) *Image
}

// MemoryImages are Files that share images without a file between Spaces: the kernel maps the same vDSO into each process.
type MemoryImages interface {
	Files
	// MemoryImage returns the image with this content. nil: it is not shared.
	MemoryImage(content []byte) *Image
}

// NewMemoryImage is NewImage for an image without a file, which is linked with no other one.
func NewMemoryImage(content []byte, arch rule.Arch, languages ...*Language) *Image {
	return newImage(bytes.NewReader(content), arch, false, languages)
}

// NewImage opens the image of an ELF file. An Image of a file that cannot be read has no tables;
// the error is among the Space's Errors.
//
// Space's languages are the same.
func NewImage(file io.ReaderAt, arch rule.Arch, languages ...*Language) *Image {
	return newImage(file, arch, true, languages)
}

// Share makes the image keep the rules that are looked up, for the Walkers of further Spaces. Call it before the
// first use.
func (m *Image) Share() { m.known = &rules{of: map[uint64]knownRule{}} }

// newImage is NewImage. linked: the file may be linked with others, unlike the vDSO.
func newImage(file io.ReaderAt, arch rule.Arch, linked bool, languages []*Language) *Image {
	m := &Image{file: file}
	m.err = m.open(arch, linked, languages)
	return m
}

func (m *Image) open(arch rule.Arch, linked bool, languages []*Language) error {
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
	errOwn := m.openOwn(f, arch, languages)
	if m.cfi, err = cfi.Load(m.file, arch); err == nil {
		err = errOwn
	}
	return err
}

// openOwn opens the tables of the first language whose compiler made the file.
func (m *Image) openOwn(f *elf.File, arch rule.Arch, languages []*Language) error {
	for _, l := range languages {
		if l.Tables == nil {
			continue
		}
		t, err := l.Tables(f, m.file, arch)
		if err != nil {
			return err
		}
		if t != nil {
			m.own, m.by = t, l
			return nil
		}
	}
	return nil
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

// rule computes the rule for vaddr. It uses the language's own tables where they cover vaddr, because
// many programs are linked without Go's CFI. It uses call frame information for the rest (C code in the same
// file).
func (m *Image) rule(vaddr uint64, out *rule.Rule) (own bool, err error) {
	if m.known == nil {
		return m.find(vaddr, out)
	}
	if own, ok := m.known.find(vaddr, out); ok {
		return own, nil
	}
	if own, err = m.find(vaddr, out); err == nil {
		m.known.add(vaddr, own, out)
	}
	return own, err
}

func (m *Image) find(vaddr uint64, out *rule.Rule) (own bool, err error) {
	if m.own != nil {
		if err := m.own.Rule(vaddr, out); err == nil || !errors.Is(err, rule.ErrNoRule) {
			return true, err
		}
	}
	if m.cfi == nil {
		return false, rule.ErrNoRule
	}
	return false, m.cfi.Rule(vaddr, out)
}
