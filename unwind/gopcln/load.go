package gopcln

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/internal/elffile"
	"github.com/sliverprof/sliver/unwind/rule"
)

// ErrNotGo says that the file holds no pclntab.
var ErrNotGo = errors.New("no pclntab: not a Go program")

// The magics of a pclntab, by the first version of Go that wrote them
// (internal/abi/symtab.go of go1.26.8). Go 1.20 and later write the same.
const (
	magic116 = 0xfffffffa
	magic118 = 0xfffffff0
	magic120 = 0xfffffff1
)

const (
	maxFuncs    = 1 << 24 // functions of one program; Kubernetes has some 10^5
	maxSections = 64      // text sections of one program; more than one only above 100 MB of code
	maxData     = 256 << 20
	moduleWords = 46 // of moduledata, up to textsectmap in every version
	moduleText  = 22 // index of moduledata.text, 1.16 … 1.26
)

// A Table is the pclntab of one ELF file. It reads the file on demand through a bounded cache. Its
// methods may be called concurrently.
type Table struct {
	arch    rule.Arch
	version int // minor version of Go 1; 0: unknown
	img     *image
	header
	gofunc   uint64 // vaddr of go:func.*; 0: unknown
	sections []section
	first    uint64 // vaddr of the first function's start, and of the last one's end
	last     uint64
	kinds    kinds
	tls      tlsHint
}

// header is the table's header.
type header struct {
	off     int64  // file offset of the table
	size    uint64 // maximum size of the table in bytes
	addr    uint64 // its vaddr
	magic   uint32
	quantum uint64
	nfunc   uint64
	text    uint64 // vaddr of runtime.text
	names   uint64 // offsets in the table from this field on
	cu      uint64
	files   uint64
	pc      uint64
	funcs   uint64
}

// section is one of several text sections: offsets [off, end) are at vaddr.
type section struct{ off, end, vaddr uint64 }

// Version returns the minor version of Go that built the file (26 for go1.26.8), or 0 if it is
// unknown.
func (t *Table) Version() int { return t.version }

// Arch returns the architecture of the file.
func (t *Table) Arch() rule.Arch { return t.arch }

// Bounds returns the vaddrs of the first function's start and the last one's end.
func (t *Table) Bounds() (lo, hi uint64) { return t.first, t.last }

// Load finds the pclntab of the ELF file r. It reads the headers. If the linker left no other trace
// of runtime.text, it also reads data and relocations. It never reads the whole table. An error
// that wraps ErrNotGo means that there is none. Any other error means that the table cannot be
// used.
func Load(r io.ReaderAt, arch rule.Arch) (*Table, error) {
	f, err := elffile.Open(r)
	if err != nil {
		return nil, fmt.Errorf("load pclntab: %w", err)
	}
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Machine != arch.Machine() {
		return nil, fmt.Errorf("load pclntab: not a 64-bit little-endian %s file", arch)
	}
	t := &Table{arch: arch, img: newImage(r, f)}
	t.version = version(r)
	if err := t.locate(f); err != nil {
		return nil, fmt.Errorf("load pclntab: %w", err)
	}
	if err := t.place(f); err != nil {
		return nil, fmt.Errorf("load pclntab at offset %#x: %w", t.off, err)
	}
	t.tls = findTLS(f, arch)
	return t, nil
}

// version returns the minor version in the build information.
func version(r io.ReaderAt) int {
	info, err := buildinfo.Read(r)
	if err != nil {
		return 0
	}
	i := strings.Index(info.GoVersion, "go1.")
	if i < 0 {
		return 0
	}
	s := info.GoVersion[i+4:]
	n := 0
	for n < len(s) && n < 4 && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	v, err := strconv.Atoi(s[:n])
	if err != nil {
		return 0
	}
	return v
}

// locate finds the table by its section. Otherwise it searches the mapped data that is not code for
// the header's bytes, because external linkers merge the section into .data.rel.ro, and section
// headers may be missing.
func (t *Table) locate(f *elf.File) error {
	var bad error
	for _, s := range f.Sections {
		if s.Name != ".gopclntab" && s.Name != ".data.rel.ro.gopclntab" || s.Type == elf.SHT_NOBITS {
			continue
		}
		if bad = t.readHeader(int64(s.Offset), s.Addr, s.FileSize); bad == nil {
			return nil
		}
	}
	for i := range t.img.segs {
		s := &t.img.segs[i]
		if s.Flags&elf.PF_X != 0 || s.Filesz == 0 {
			continue
		}
		if t.search(s) {
			return nil
		}
	}
	for i := range t.img.segs { // old layouts have one segment for headers, code and constants
		s := &t.img.segs[i]
		if s.Flags&elf.PF_X != 0 && t.search(s) {
			return nil
		}
	}
	if bad != nil {
		return bad
	}
	return ErrNotGo
}

// search looks for a header in one segment. Tables are aligned to 8 bytes.
func (t *Table) search(s *elf.ProgHeader) bool {
	quantum := byte(1)
	if t.arch == rule.ARM64 {
		quantum = 4
	}
	tail := []byte{0xff, 0xff, 0xff, 0, 0, quantum, 8}
	buf := make([]byte, scanBuffer)
	for pos := uint64(0); pos < s.Filesz && pos < maxData*4; {
		n, _ := t.img.r.ReadAt(buf[:min(uint64(len(buf)), s.Filesz-pos)], int64(s.Off+pos))
		b := buf[:n]
		for i := 0; ; {
			j := bytes.Index(b[i:], tail)
			if j < 0 {
				break
			}
			i += j + 1
			at := pos + uint64(i-2)
			if i >= 2 && (s.Vaddr+at)%8 == 0 && t.readHeader(int64(s.Off+at), s.Vaddr+at, s.Filesz-at) == nil {
				return true
			}
		}
		if n <= 8 {
			return false
		}
		pos += uint64(n - 8) // a header may straddle two reads
	}
	return false
}

// readHeader reads and checks the table's header. Layout: runtime.pcHeader in
// src/runtime/symtab.go. 1.18 inserted textStart before the offsets, and 1.26 leaves it 0.
func (t *Table) readHeader(off int64, addr, size uint64) error {
	var b [72]byte
	if size < uint64(len(b)) {
		return fmt.Errorf("pclntab of %d bytes at offset %#x", size, off)
	}
	if err := t.img.readOff(b[:], off); err != nil {
		return err
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	quantum := uint64(1)
	if t.arch == rule.ARM64 {
		quantum = 4
	}
	h := header{off: off, addr: addr, size: size, magic: binary.LittleEndian.Uint32(b[:]), quantum: quantum}
	first := 3 // index of the first offset
	switch h.magic {
	case magic116:
		first = 2
	case magic118, magic120:
		h.text = word(2)
	default:
		return fmt.Errorf("unknown pclntab magic %#x at offset %#x", h.magic, off)
	}
	if b[4] != 0 || b[5] != 0 || uint64(b[6]) != quantum || b[7] != 8 {
		return fmt.Errorf("pclntab header at offset %#x is not that of %s", off, t.arch)
	}
	h.nfunc = word(0)
	h.names, h.cu, h.files, h.pc, h.funcs = word(first), word(first+1), word(first+2), word(first+3), word(first+4)
	if h.nfunc == 0 || h.nfunc > maxFuncs {
		return fmt.Errorf("pclntab at offset %#x has %d functions", off, h.nfunc)
	}
	if h.names >= size || h.cu >= size || h.files >= size || h.pc >= size || h.funcs >= size ||
		(h.nfunc*2+1)*h.ftabField() > size-h.funcs {
		return fmt.Errorf("pclntab at offset %#x has parts outside its %d bytes", off, size)
	}
	t.header = h
	return nil
}

// place finds the code's address. It uses moduledata, which the header's pointer identifies and its
// other pointers confirm. Otherwise it uses the symbol runtime.text, the header, or as last resort
// the section .text.
func (t *Table) place(f *elf.File) error {
	found := t.module(f)
	if !found && t.magic != magic116 {
		guesses := []uint64{t.text}
		if syms, err := elffile.Symbols(f); err == nil {
			for i := range syms {
				if syms[i].Name == "runtime.text" {
					guesses = []uint64{syms[i].Value, t.text}
					break
				}
			}
		}
		if s := f.Section(".text"); s != nil {
			guesses = append(guesses, s.Addr)
		}
		for _, g := range guesses {
			if t.text = g; g != 0 && t.img.executable(g) {
				found = true
				break
			}
		}
		if !found {
			return errors.New("the start of the code cannot be found")
		}
	}
	var err error
	if t.first, err = t.entry(0); err != nil {
		return err
	}
	if t.last, err = t.entry(t.nfunc); err != nil {
		return err
	}
	if t.first >= t.last || !t.img.executable(t.first) {
		return fmt.Errorf("functions from %#x to %#x do not lie in the file's code", t.first, t.last)
	}
	return nil
}

// module finds runtime.firstmoduledata and reads text, gofunc and the text sections from it.
func (t *Table) module(f *elf.File) bool {
	if s := f.Section(".go.module"); s != nil && t.moduleAt(f, s.Addr) { // 1.26 on
		return true
	}
	for i := range t.img.segs {
		s := &t.img.segs[i]
		if s.Flags&elf.PF_W == 0 {
			continue
		}
		buf := make([]byte, scanBuffer)
		for pos := uint64(0); pos+8 <= s.Filesz && pos < maxData; pos += uint64(len(buf)) {
			n, _ := t.img.r.ReadAt(buf[:min(uint64(len(buf)), s.Filesz-pos)], int64(s.Off+pos))
			for i := 0; i+8 <= n; i += 8 {
				if binary.LittleEndian.Uint64(buf[i:]) == t.addr && t.moduleAt(f, s.Vaddr+pos+uint64(i)) {
					return true
				}
			}
		}
	}
	// Not in place: the linker left the values to relocations.
	const maxCandidates = 8
	var at []uint64
	if err := t.img.relative(f, t.arch.Machine(), func(r reloc) bool {
		if r.addend == t.addr {
			at = append(at, r.at)
		}
		return len(at) < maxCandidates
	}); err != nil {
		return false
	}
	for _, a := range at {
		if t.moduleAt(f, a) {
			return true
		}
	}
	return false
}

// moduleAt reads vaddr if it holds the moduledata of this table.
func (t *Table) moduleAt(f *elf.File, vaddr uint64) bool {
	var b [moduleWords * 8]byte
	if t.img.read(b[:], vaddr) != nil {
		return false
	}
	var w [moduleWords]uint64
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	if !t.isModule(&w) {
		if err := t.img.relative(f, t.arch.Machine(), func(r reloc) bool {
			if d := r.at - vaddr; d < uint64(len(b)) && d%8 == 0 {
				w[d/8] = r.addend
			}
			return true
		}); err != nil || !t.isModule(&w) {
			return false
		}
	}
	t.text = w[moduleText]
	// src/runtime/symtab.go: 1.16 and 1.17 lack rodata and gofunc, 1.20 inserted covctrs before
	// them, 1.26 added epclntab after them.
	gofunc, sections := 40, 41
	switch {
	case t.magic == magic116:
		gofunc, sections = 0, 37
	case t.magic == magic118:
		gofunc, sections = 38, 39
	case t.version >= 26 || t.version == 0 && w[41] > w[40]:
		sections = 42
	}
	if gofunc != 0 {
		if _, _, ok := t.img.segment(w[gofunc]); ok {
			t.gofunc = w[gofunc]
		}
	}
	t.readSections(f, w[sections], w[sections+1])
	return true
}

// isModule reports whether w, the words of a moduledata, belong to t.
func (t *Table) isModule(w *[moduleWords]uint64) bool {
	const names, ftab, minpc, maxpc, etext = 1, 16, 20, 21, 23
	return w[0] == t.addr && w[names] == t.addr+t.names && w[ftab] == t.addr+t.funcs && w[ftab+1] == t.nfunc+1 &&
		w[minpc] >= w[moduleText] && w[minpc] < w[maxpc] && w[maxpc] <= w[etext] && t.img.executable(w[minpc])
}

// readSections reads textsectmap if it has more than the one entry of ordinary programs.
func (t *Table) readSections(f *elf.File, vaddr, n uint64) {
	if n < 2 || n > maxSections {
		return
	}
	b := make([]byte, n*24)
	if t.img.read(b, vaddr) != nil {
		return
	}
	if t.img.relative(f, t.arch.Machine(), func(r reloc) bool {
		if d := r.at - vaddr; d+8 <= uint64(len(b)) && d%8 == 0 {
			binary.LittleEndian.PutUint64(b[d:], r.addend)
		}
		return true
	}) != nil {
		return
	}
	for ; len(b) >= 24; b = b[24:] {
		t.sections = append(t.sections, section{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]),
			binary.LittleEndian.Uint64(b[16:])})
	}
}
