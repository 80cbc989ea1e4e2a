package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/sliverprof/sliver/internal/elffile"
	"github.com/sliverprof/sliver/internal/limits"
	"github.com/sliverprof/sliver/symbol/dwarf"
)

// Bounds on reads into memory.
const (
	maxWhole    = 64 << 20 // a section larger than this is read piecewise
	maxInflated = 2 << 30  // bytes of one section after decompression
	// maxFileMemory bounds the memory of all sections of a file and its debug files.
	maxFileMemory = 4 << 30
	// maxRatio bounds compression: DWARF sections shrink to a third or a tenth,
	// repetitive ones to a fiftieth. Small sections may have any ratio.
	maxRatio = 256
	anyRatio = 1 << 20 // bytes
	// The decoder allocates a zstd window before the first byte. A window is not larger than
	// the content, or than leastWindow, which encoders of streams use.
	maxWindow   = 64 << 20
	leastWindow = 8 << 20
)

// image is one ELF file: the module itself or one of its debug files.
type image struct {
	name string
	r    io.ReaderAt
	f    *elf.File
	src  Source // to close; nil: not owned
	text []segment

	whole uint64 // sections of at most this many bytes are read into memory
	share *Shared
	kept  Sections       // nil: none
	mem   *limits.Budget // the budget of its sections
}

// Shared holds the DWARF sections of one file, so that several Files of it used at the
// same time read them only once. The zero value is ready to use.
type Shared struct {
	mu       sync.Mutex
	sections map[uint64]*sharedSection // by offset in the file
	mem      *limits.Budget
}

// budget returns the budget shared by all Files of the same file.
func (s *Shared) budget(path string) *limits.Budget {
	if s == nil {
		return newBudget(path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mem == nil {
		s.mem = newBudget(path)
	}
	return s.mem
}

func newBudget(path string) *limits.Budget { return limits.Process().New(path, maxFileMemory) }

type sharedSection struct {
	once sync.Once
	c    *dwarf.Section
	err  error
}

func (s *Shared) section(off uint64, read func() (*dwarf.Section, error)) (*dwarf.Section, error) {
	if s == nil {
		return read()
	}
	s.mu.Lock()
	x := s.sections[off]
	if x == nil {
		if s.sections == nil {
			s.sections = map[uint64]*sharedSection{}
		}
		x = &sharedSection{}
		s.sections[off] = x
	}
	s.mu.Unlock()
	x.once.Do(func() { x.c, x.err = read() })
	return x.c, x.err
}

type segment struct{ lo, hi uint64 }

// openImage opens a file whose sections are charged to mem.
func openImage(name string, r io.ReaderAt, mem *limits.Budget) (*image, error) {
	f, err := elffile.Open(r)
	if err != nil {
		return nil, err
	}
	if f.Class != elf.ELFCLASS64 || f.ByteOrder != binary.LittleEndian {
		return nil, fmt.Errorf("%v %v: only 64-bit little-endian files are read", f.Class, f.Data)
	}
	m := &image{name: name, r: r, f: f, whole: maxWhole, mem: mem}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Vaddr+p.Memsz > p.Vaddr {
			m.text = append(m.text, segment{p.Vaddr, p.Vaddr + p.Memsz})
		}
	}
	sort.Slice(m.text, func(i, j int) bool { return m.text[i].lo < m.text[j].lo })
	return m, nil
}

// isText reports whether vaddr is in an executable segment. It is false for address 0,
// which linkers assign to dropped code.
func (m *image) isText(vaddr uint64) bool {
	if vaddr == 0 {
		return false
	}
	for _, s := range m.text {
		if vaddr >= s.lo && vaddr < s.hi {
			return true
		}
	}
	return false
}

// section returns the section of that name with content in the file, nil for none.
func (m *image) section(name string) *elf.Section {
	for _, s := range m.f.Sections {
		if s.Name == name && s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL {
			return s
		}
	}
	return nil
}

// content returns a section for package dwarf. An error means that it is missing or
// unreadable.
func (m *image) content(s *elf.Section) (*dwarf.Section, error) {
	switch {
	case s == nil:
		return nil, nil
	case s.Flags&elf.SHF_COMPRESSED != 0:
		b, err := m.inflateELF(m.raw(s))
		return dwarf.Bytes(b).With(m.mem), named(s.Name, err)
	case strings.HasPrefix(s.Name, ".zdebug_"):
		b, err := m.inflateGNU(m.raw(s))
		return dwarf.Bytes(b).With(m.mem), named(s.Name, err)
	case s.FileSize > m.whole && reaches(m.raw(s)):
		return dwarf.At(m.raw(s), s.FileSize), nil
	}
	b, err := m.readSome(m.raw(s))
	return dwarf.Bytes(b).With(m.mem), named(s.Name, err)
}

func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// raw returns a section as stored in the file.
func (m *image) raw(s *elf.Section) *io.SectionReader {
	return io.NewSectionReader(m.r, int64(s.Offset), int64(s.FileSize))
}

// bytes returns the content of a section in memory; nil if it is missing.
func (m *image) bytes(name string) ([]byte, error) {
	return m.sectionBytes(m.section(name))
}

func (m *image) sectionBytes(s *elf.Section) ([]byte, error) {
	if s == nil {
		return nil, nil
	}
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		b, err := m.inflateELF(m.raw(s))
		return b, named(s.Name, err)
	}
	b, err := m.readSome(m.raw(s))
	return b, named(s.Name, err)
}

// reaches reports whether the last byte exists: headers can claim any size.
func reaches(r *io.SectionReader) bool {
	var b [1]byte
	n, _ := r.ReadAt(b[:], r.Size()-1)
	return n == 1
}

// readSome reads all of r; if it ends early, it returns the data read and an error.
func (m *image) readSome(r *io.SectionReader) ([]byte, error) {
	n := uint64(r.Size())
	if n > maxInflated {
		return nil, fmt.Errorf("%d bytes are too many", n)
	}
	if n <= 1<<20 || reaches(r) {
		if err := m.mem.Take(int64(n)); err != nil {
			return nil, err
		}
		return grow(r, n, n)
	}
	b, err := grow(r, n, 1<<20)
	if e := m.mem.Take(int64(len(b))); e != nil {
		return nil, e
	}
	return b, err
}

// grow reads exactly n bytes; its first allocation is at most first.
func grow(r io.Reader, n, first uint64) ([]byte, error) {
	b := make([]byte, 0, min(n, max(first, 512)))
	for uint64(len(b)) < n {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		m, err := r.Read(b[len(b):min(uint64(cap(b)), n)])
		b = b[:len(b)+m]
		if err != nil {
			if err == io.EOF {
				if uint64(len(b)) == n {
					break
				}
				err = io.ErrUnexpectedEOF
			}
			return b, err
		}
	}
	return b, nil
}

// inflateELF reads a SHF_COMPRESSED section: Elf64_Chdr {type, reserved u32,
// size, align u64}, then the stream (gABI, "Section Compression").
func (m *image) inflateELF(r *io.SectionReader) ([]byte, error) {
	var h [24]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint64(h[8:])
	return m.inflate(elf.CompressionType(binary.LittleEndian.Uint32(h[:])), io.NewSectionReader(r, 24, r.Size()-24), size)
}

// inflateGNU reads a .zdebug_ section: "ZLIB", the size in 8 bytes, big-endian,
// then the stream.
func (m *image) inflateGNU(r *io.SectionReader) ([]byte, error) {
	var h [12]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	if string(h[:4]) != "ZLIB" {
		return nil, errors.New("not compressed as its name says")
	}
	return m.inflate(elf.COMPRESS_ZLIB, io.NewSectionReader(r, 12, r.Size()-12), binary.BigEndian.Uint64(h[4:]))
}

func (m *image) inflate(how elf.CompressionType, r *io.SectionReader, size uint64) ([]byte, error) {
	packed := uint64(r.Size())
	if size > maxInflated {
		return nil, fmt.Errorf("%d bytes are too many", size)
	}
	if size > anyRatio && size/maxRatio > packed {
		return nil, fmt.Errorf("%d bytes are packed into %d: more than %d to one is not believed", size, packed, maxRatio)
	}
	if err := m.mem.Take(int64(size)); err != nil {
		return nil, err
	}
	switch how {
	case elf.COMPRESS_ZLIB:
		return m.inflateZlib(r, size)
	case elf.COMPRESS_ZSTD:
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxInflated),
			zstd.WithDecoderMaxWindow(min(maxWindow, max(leastWindow, size))))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		return grow(z, size, size)
	}
	return nil, fmt.Errorf("compression %v", how)
}

// hasDwarf reports whether the file itself has DWARF.
func (m *image) hasDwarf() bool {
	return m.section(".debug_info") != nil || m.section(".zdebug_info") != nil
}

// sections returns the DWARF sections; suffix is "" or ".dwo". It decompresses them
// concurrently, which is most of the work.
func (m *image) sections(suffix string) (s dwarf.Sections, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, x := range []struct {
		name string
		to   **dwarf.Section
	}{
		{"info", &s.Info}, {"abbrev", &s.Abbrev}, {"str", &s.Str}, {"line_str", &s.LineStr}, {"line", &s.Line},
		{"addr", &s.Addr}, {"str_offsets", &s.StrOffsets}, {"ranges", &s.Ranges}, {"rnglists", &s.RngLists},
		{"aranges", &s.Aranges}, {"cu_index", &s.CUIndex},
	} {
		suffix := suffix
		if x.name == "cu_index" {
			suffix = ""
		}
		sec := m.section(".debug_" + x.name + suffix)
		if sec == nil {
			sec = m.section(".zdebug_" + x.name + suffix)
		}
		if sec == nil {
			continue
		}
		wg.Go(func() {
			c, e := m.contained(sec)
			mu.Lock()
			defer mu.Unlock()
			if e != nil && err == nil {
				err = e
			}
			*x.to = c
		})
	}
	wg.Wait()
	return s, err
}

// contained is content for a goroutine of its own: nothing else there recovers a panic
// over malformed input.
func (m *image) contained(sec *elf.Section) (*dwarf.Section, error) {
	return m.share.section(sec.Offset, func() (c *dwarf.Section, err error) {
		defer recovered(&err, sec.Name)
		return m.content(sec)
	})
}

// link reads .gnu_debuglink or .gnu_debugaltlink: a name, NUL, and the rest.
func (m *image) link(section string) (name string, rest []byte) {
	b, err := m.bytes(section)
	i := bytes.IndexByte(b, 0)
	if err != nil || i <= 0 {
		return "", nil
	}
	return string(b[:i]), b[i+1:]
}
