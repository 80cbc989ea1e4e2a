// Package elffile safely opens hostile ELF files with the standard library's debug/elf,
// which trusts a file's headers: it reads a table of as many sections as a header claims,
// even in a sparse file, and decompresses the table of their names whatever its size. This
// package checks limits before anything is read. All functions may be called concurrently.
package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits of headers and symbols. The largest programs with one section per function have
// about 100,000 sections; Chromium with all symbols has two million symbols.
const (
	maxSections = 1 << 19
	maxNames    = 64 << 20  // bytes of the sections' names
	maxSymtab   = 96 << 20  // bytes of one table of symbols, 24 each
	maxStrtab   = 512 << 20 // bytes of their names
)

// ErrTooLarge reports that a file's headers exceed the limits.
var ErrTooLarge = errors.New("too large")

// Open is elf.NewFile with limits.
func Open(r io.ReaderAt) (*elf.File, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	return elf.NewFile(r)
}

// check checks the file header, the first section's header, which may contain the number of
// sections (gABI, "Section Header"), and that of the table of names.
func check(r io.ReaderAt) error {
	var h [64]byte
	if n, err := r.ReadAt(h[:], 0); n < len(h) || string(h[:4]) != elf.ELFMAG ||
		elf.Class(h[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB {
		if n == len(h) && string(h[:4]) == elf.ELFMAG {
			return fmt.Errorf("%v %v: only 64-bit little-endian files are read", elf.Class(h[elf.EI_CLASS]), elf.Data(h[elf.EI_DATA]))
		}
		if n == len(h) || err == io.EOF {
			return errors.New("not an ELF file")
		}
		return err
	}
	le := binary.LittleEndian
	// debug/elf allocates a table before it reads it.
	if n := uint64(le.Uint16(h[54:])) * uint64(le.Uint16(h[56:])); !within(r, le.Uint64(h[32:]), n) {
		return errors.New("its program headers are not in the file")
	}
	shoff, size := le.Uint64(h[40:]), uint64(le.Uint16(h[58:]))
	num, names := uint64(le.Uint16(h[60:])), uint64(le.Uint16(h[62:]))
	if shoff == 0 || shoff > 1<<62 {
		return nil // elf.NewFile reads none, or rejects it
	}
	var s [64]byte
	if num == 0 {
		if _, err := r.ReadAt(s[:], int64(shoff)); err != nil {
			return nil
		}
		num = le.Uint64(s[32:])
		if names == uint64(elf.SHN_XINDEX) {
			names = uint64(le.Uint32(s[40:]))
		}
	}
	if num > maxSections {
		return fmt.Errorf("%d sections: %w", num, ErrTooLarge)
	}
	if !within(r, shoff, num*size) {
		return errors.New("its section headers are not in the file")
	}
	if names == 0 || names >= num {
		return nil
	}
	at := shoff + names*size
	if _, err := r.ReadAt(s[:], int64(at)); err != nil {
		return nil
	}
	flags, length := elf.SectionFlag(le.Uint64(s[8:])), le.Uint64(s[32:])
	if flags&elf.SHF_COMPRESSED != 0 {
		return fmt.Errorf("the names of sections, at %#x, are compressed", at)
	}
	if length > maxNames {
		return fmt.Errorf("%d bytes of names of sections: %w", length, ErrTooLarge)
	}
	return nil
}

// within reports whether a file has n bytes at off.
func within(r io.ReaderAt, off, n uint64) bool {
	if n == 0 {
		return true
	}
	if off > 1<<62 || n > 1<<62 {
		return false
	}
	var last [1]byte
	got, _ := r.ReadAt(last[:], int64(off+n-1))
	return got == 1
}

// Symbols is f.Symbols with limits.
func Symbols(f *elf.File) ([]elf.Symbol, error) {
	if err := symbols(f, elf.SHT_SYMTAB); err != nil {
		return nil, err
	}
	return f.Symbols()
}

// DynamicSymbols is f.DynamicSymbols with limits.
func DynamicSymbols(f *elf.File) ([]elf.Symbol, error) {
	if err := symbols(f, elf.SHT_DYNSYM); err != nil {
		return nil, err
	}
	return f.DynamicSymbols()
}

// EachSymbol calls fn with each symbol of a table, SHT_SYMTAB or SHT_DYNSYM, and its name, without its version. fn copies
// what it keeps: the symbol is overwritten, and the name is a part of the table of all. Symbols makes a string
// of each name.
func EachSymbol(f *elf.File, kind elf.SectionType, fn func(s *elf.Symbol, name []byte)) error {
	if err := symbols(f, kind); err != nil {
		return err
	}
	s := f.SectionByType(kind)
	if s == nil {
		return elf.ErrNoSymbols
	}
	if int(s.Link) >= len(f.Sections) || s.Link == 0 {
		return fmt.Errorf("%s: no table of names", s.Name)
	}
	table, err := s.Data()
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	names, err := f.Sections[s.Link].Data()
	if err != nil {
		return fmt.Errorf("%s: %w", f.Sections[s.Link].Name, err)
	}
	le := binary.LittleEndian
	var x elf.Symbol
	for at := elf.Sym64Size; at+elf.Sym64Size <= len(table); at += elf.Sym64Size { // the first one is empty
		e := table[at : at+elf.Sym64Size]
		x = elf.Symbol{Info: e[4], Other: e[5], Section: elf.SectionIndex(le.Uint16(e[6:])), Value: le.Uint64(e[8:]), Size: le.Uint64(e[16:])}
		var name []byte
		if from := int(le.Uint32(e)); from < len(names) {
			name = names[from:]
			name = name[:max(0, bytes.IndexByte(name, 0))]
		}
		fn(&x, name)
	}
	return nil
}

// symbols checks the tables that debug/elf reads completely into memory for symbols of a
// kind, including versions.
func symbols(f *elf.File, kind elf.SectionType) error {
	for _, s := range f.Sections {
		switch s.Type {
		case kind, elf.SHT_GNU_VERSYM, elf.SHT_GNU_VERNEED, elf.SHT_GNU_VERDEF:
		default:
			continue
		}
		if err := small(s, maxSymtab); err != nil {
			return err
		}
		if int(s.Link) < len(f.Sections) && s.Link > 0 && s.Type != elf.SHT_GNU_VERSYM {
			if err := small(f.Sections[s.Link], maxStrtab); err != nil {
				return err
			}
		}
	}
	return nil
}

func small(s *elf.Section, most uint64) error {
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		return fmt.Errorf("%s is compressed", s.Name)
	}
	if s.Type != elf.SHT_NOBITS && s.FileSize > most {
		return fmt.Errorf("%s has %d bytes: %w", s.Name, s.FileSize, ErrTooLarge)
	}
	return nil
}

// Data reads a section of at most most bytes. It rejects compressed sections: the tables of
// runtimes are not compressed.
func Data(s *elf.Section, most uint64) ([]byte, error) {
	if err := small(s, most); err != nil {
		return nil, err
	}
	return s.Data()
}
