package v8

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/internal/elffile"
)

// ErrNotV8 says that a file does not contain V8.
var ErrNotV8 = errors.New("no V8 in this file")

// VersionError says that V8's data cannot be read.
type VersionError struct {
	Version string // of V8; "": not in the file
	Why     string
	partly  bool // some functions are shown
}

func (e *VersionError) Error() string {
	v := "JavaScript"
	if e.Version != "" {
		v = "V8 " + e.Version
	}
	if e.partly {
		return fmt.Sprintf("%s %s: functions of JavaScript may be missing from its stacks", v, e.Why)
	}
	return fmt.Sprintf("%s: %s; its stacks are shown as machine code, with names where --perf-basic-prof has them", v, e.Why)
}

// Image describes the V8 in a file.
type Image struct {
	Version string // "11.3.244"
	layout  layout
}

const (
	// maxTable bounds a file's symbol tables and their names, in bytes. node's have 2 and 6 MB for
	// exported symbols, 3 and 12 MB for all.
	maxTable = 64 << 20
	prefix   = "v8dbg_"
	version  = "_ZN2v88internal7Version"
	sizes    = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE"
	// addons is a function of all programs with Node's interface for addons: node itself, and
	// programs without V8's symbols (Electron, Deno) or with another engine (Bun).
	addons = "napi_module_register"
	// maxSizes bounds the table of bytecode lengths, in bytes.
	maxSizes = 3 * 256
)

// symbol is an exported name's value and size.
type symbol struct{ value, size uint64 }

// Load finds V8 in an ELF file. Errors are ErrNotV8 (wrapped), a *VersionError, and those of a
// damaged file.
func Load(r io.ReaderAt) (img *Image, err error) {
	defer func() {
		if x := recover(); x != nil { // debug/elf on damaged files
			img, err = nil, fmt.Errorf("look for V8: damaged file: %v", x)
		}
	}()
	f, err := elffile.Open(r)
	if err != nil {
		return nil, fmt.Errorf("look for V8: %w", err)
	}
	if f.Class != elf.ELFCLASS64 || f.ByteOrder != binary.LittleEndian {
		return nil, ErrNotV8
	}
	syms, err := symbols(f, elf.SHT_DYNSYM, prefix, version, sizes, addons)
	if err != nil {
		return nil, err
	}
	if _, ok := syms[version+"6major_E"]; !ok {
		if _, ok := syms[addons]; ok {
			return nil, &VersionError{Why: "the program has Node's interface, and does not say where its engine's data is"}
		}
		return nil, ErrNotV8
	}
	num := func(name string) (int, bool) {
		s, ok := syms[name]
		if !ok {
			return 0, false
		}
		v, err := word32(f, s.value)
		return int(int32(v)), err == nil
	}
	major, ok1 := num(version + "6major_E")
	minor, ok2 := num(version + "6minor_E")
	build, ok3 := num(version + "6build_E")
	if !ok1 || !ok2 || !ok3 {
		return nil, &VersionError{Why: "the file does not say the version of its V8"}
	}
	img = &Image{Version: fmt.Sprintf("%d.%d.%d", major, minor, build)}
	if f.Machine != elf.EM_X86_64 {
		return nil, &VersionError{Version: img.Version, Why: "JavaScript is read on amd64 only"}
	}
	if err := img.layout.fill(major, minor, num); err != nil {
		return nil, &VersionError{Version: img.Version, Why: err.Error()}
	}
	if _, ok := syms[sizes]; !ok { // Node 24 does not export it
		if all, err := symbols(f, elf.SHT_SYMTAB, sizes); err == nil {
			syms[sizes] = all[sizes]
		}
	}
	if s := syms[sizes]; s.size%3 == 0 && s.size <= maxSizes {
		b := make([]byte, s.size)
		if err := read(f, b, s.value); err == nil {
			img.layout.bytecodeSizes = b
		}
	}
	return img, nil
}

// symbols returns the symbols of a table with these prefixes. It skips the tens of thousands of
// others.
func symbols(f *elf.File, of elf.SectionType, beginnings ...string) (map[string]symbol, error) {
	table := f.SectionByType(of)
	if table == nil || table.Size > maxTable || int(table.Link) >= len(f.Sections) {
		return nil, ErrNotV8
	}
	names := f.Sections[table.Link]
	if names.Type != elf.SHT_STRTAB || names.Size > maxTable {
		return nil, ErrNotV8
	}
	str, err := elffile.Data(names, maxTable)
	if err != nil {
		return nil, fmt.Errorf("look for V8: names of symbols: %w", err)
	}
	at := map[uint32]string{}
	for _, p := range beginnings {
		for from := 0; ; {
			i := bytes.Index(str[from:], []byte(p))
			if i < 0 {
				break
			}
			i += from
			n := bytes.IndexByte(str[i:], 0)
			if n < 0 {
				break
			}
			at[uint32(i)] = string(str[i : i+n])
			from = i + n
		}
	}
	if len(at) == 0 {
		return nil, ErrNotV8
	}
	syms, err := elffile.Data(table, maxTable)
	if err != nil {
		return nil, fmt.Errorf("look for V8: symbols: %w", err)
	}
	out := map[string]symbol{}
	le := binary.LittleEndian
	for ; len(syms) >= elf.Sym64Size; syms = syms[elf.Sym64Size:] {
		if name, ok := at[le.Uint32(syms)]; ok && le.Uint16(syms[6:]) != uint16(elf.SHN_UNDEF) {
			out[name] = symbol{le.Uint64(syms[8:]), le.Uint64(syms[16:])}
		}
	}
	return out, nil
}

// read fills b from a vaddr of f.
func read(f *elf.File, b []byte, vaddr uint64) error {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			if _, err := p.ReadAt(b, int64(vaddr-p.Vaddr)); err != nil {
				return fmt.Errorf("at %#x: %w", vaddr, err)
			}
			return nil
		}
	}
	return fmt.Errorf("at %#x: no such address in the file", vaddr)
}

// word32 reads 4 bytes at a vaddr of f.
func word32(f *elf.File, vaddr uint64) (uint32, error) {
	var b [4]byte
	err := read(f, b[:], vaddr)
	return binary.LittleEndian.Uint32(b[:]), err
}
