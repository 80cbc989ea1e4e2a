package ruby

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/internal/elffile"
)

// ErrNotRuby says that a file is not a CRuby interpreter.
var ErrNotRuby = errors.New("no CRuby in this file")

// VersionError says that the interpreter's version is not supported.
type VersionError struct{ Version string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("Ruby %s is not known: its stacks are shown as C alone; 3.1 to 3.4 are", e.Version)
}

// The supported minor versions of Ruby 3.
const oldest, newest = 1, 4

// Image describes the interpreter in a file: libruby, or a program that contains it. Addresses are
// the file's own.
type Image struct {
	Minor   int      // of version 3
	Version string   // "3.3.8"
	vm      uint64   // ruby_current_vm_ptr; 0: not exported
	symbols uint64   // ruby_global_symbols; 0: not exported
	data    []span   // writable data
	funcs   []uint64 // beginnings of functions, in order; nil: unknown
}

// span is the vaddrs of a segment.
type span struct{ start, end uint64 }

const (
	// maxSymbols bounds a file's tables of symbols: libruby exports 2,100.
	maxSymbols = 1 << 20
	// maxStrings bounds the names of a file's exported symbols, in bytes.
	maxStrings = 256 << 20
	// maxData bounds the writable data to search, in bytes: libruby has 150 KB.
	maxData = 16 << 20
)

// Load looks for CRuby in an ELF file. Errors are ErrNotRuby (wrapped), a *VersionError, and those of
// a damaged file.
func Load(r io.ReaderAt) (img *Image, err error) {
	defer func() {
		if x := recover(); x != nil { // debug/elf on damaged files
			img, err = nil, fmt.Errorf("look for CRuby: damaged file: %v", x)
		}
	}()
	f, err := elffile.Open(r)
	if err != nil {
		return nil, fmt.Errorf("look for CRuby: %w", err)
	}
	if s := f.SectionByType(elf.SHT_DYNSYM); s == nil || s.Size > maxSymbols*elf.Sym64Size || f.Class != elf.ELFCLASS64 || !mentions(f, s, "ruby_api_version") {
		return nil, ErrNotRuby
	}
	img = &Image{}
	version := uint64(0)
	at := map[string]*uint64{"ruby_current_vm_ptr": &img.vm, "ruby_global_symbols": &img.symbols, "ruby_version": &version}
	exported, err := elffile.DynamicSymbols(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotRuby, err)
	}
	lookUp(exported, at)
	if version == 0 {
		return nil, ErrNotRuby
	}
	if s := f.SectionByType(elf.SHT_SYMTAB); s != nil && s.Size <= maxSymbols*elf.Sym64Size {
		if all, err := elffile.Symbols(f); err == nil {
			lookUp(all, at)
		}
	}
	if img.Version, err = text(f, version); err != nil {
		return nil, fmt.Errorf("read ruby_version: %w", err)
	}
	parts := strings.SplitN(img.Version, ".", 3)
	if len(parts) == 3 && parts[0] == "3" {
		img.Minor, _ = strconv.Atoi(parts[1]) // 0: not known
	}
	if img.Minor < oldest || img.Minor > newest {
		return nil, &VersionError{img.Version}
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_W != 0 && p.Memsz <= maxData && p.Vaddr <= maxPointer {
			img.data = append(img.data, span{p.Vaddr, p.Vaddr + p.Memsz})
		}
	}
	img.funcs = functions(f)
	return img, nil
}

// functions returns the beginnings of the file's functions: the table of .eh_frame_hdr, in the form that
// all linkers write (Linux Standard Base Core, section 10.6.2).
func functions(f *elf.File) []uint64 {
	const (
		head   = 12 // version, three encodings, pointer to .eh_frame, number of entries
		entry  = 8  // beginning and description, relative to the section
		most   = 1 << 20
		udata4 = 0x03
		sorted = 0x3b // DW_EH_PE_datarel | DW_EH_PE_sdata4
	)
	s := f.Section(".eh_frame_hdr")
	if s == nil || s.Size < head || s.Size > head+most*entry {
		return nil
	}
	b, err := elffile.Data(s, head+most*entry)
	if err != nil || len(b) < head || b[0] != 1 || b[2] != udata4 || b[3] != sorted {
		return nil
	}
	n := min(uint64(le32(b, 8)), uint64(len(b)-head)/entry)
	out := make([]uint64, n)
	for i := range n {
		out[i] = s.Addr + uint64(int64(int32(le32(b, head+i*entry))))
	}
	if !slices.IsSorted(out) {
		return nil
	}
	return out
}

// function returns the beginning of the function at a vaddr; 0: unknown.
func (img *Image) function(vaddr uint64) uint64 {
	i, ok := slices.BinarySearch(img.funcs, vaddr)
	if !ok {
		i--
	}
	if i < 0 {
		return 0
	}
	return img.funcs[i]
}

// lookUp sets the values of the symbols that are defined in a file.
func lookUp(syms []elf.Symbol, at map[string]*uint64) {
	for i := range syms {
		if s := &syms[i]; s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_OBJECT {
			if p := at[s.Name]; p != nil {
				*p = s.Value
			}
		}
	}
}

// mentions looks for a name among those of the exported symbols. This is much faster than reading
// the symbols of a large program.
func mentions(f *elf.File, symbols *elf.Section, name string) bool {
	if int(symbols.Link) >= len(f.Sections) {
		return false
	}
	s := f.Sections[symbols.Link]
	if s.Type != elf.SHT_STRTAB || s.Size > maxStrings {
		return false
	}
	b, err := elffile.Data(s, maxStrings)
	return err == nil && bytes.Contains(b, append([]byte(name), 0))
}

// text reads the short C string at a vaddr of f.
func text(f *elf.File, vaddr uint64) (string, error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			b := make([]byte, min(16, p.Filesz-(vaddr-p.Vaddr)))
			if _, err := p.ReadAt(b, int64(vaddr-p.Vaddr)); err != nil {
				return "", fmt.Errorf("at %#x: %w", vaddr, err)
			}
			if n := bytes.IndexByte(b, 0); n > 0 {
				return string(b[:n]), nil
			}
			return "", fmt.Errorf("at %#x: not a short text", vaddr)
		}
	}
	return "", fmt.Errorf("at %#x: no such address in the file", vaddr)
}
