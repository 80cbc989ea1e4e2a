// Package data names a program's variables by address, from the symbol tables of an ELF
// file, for example the variable that holds a lock. It also names the functions that
// its caller selects. It reads bytes and knows no process: its callers know where the
// file is mapped and how its names read best. A Table does not change after it is read,
// so any number of goroutines may use it at once.
package data

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/sliverprof/sliver/internal/elffile"
)

// MaxTable bounds the bytes read of a file's symbol table and of its names. Only
// browsers with full debug information have larger tables, and reading those takes
// longer than the name of a lock is worth.
const MaxTable = 256 << 20

// maxProgs bounds the number of program headers that are read.
const maxProgs = 4096

// ErrNoSymbols reports that a file has no symbol table.
var ErrNoSymbols = errors.New("no symbols")

// Table holds the variables of one file and some of its functions.
type Table struct {
	syms     []symbol // by vaddr
	funcs    []symbol // by vaddr
	exported bool
}

// Exported reports whether the Table has only exported symbols, because the file has no
// .symtab.
func (t *Table) Exported() bool { return t.exported }

type symbol struct {
	vaddr, size uint64
	name        string
}

// Read reads the variables of the ELF file in r: those of .symtab if it has one,
// otherwise the exported ones. It keeps the functions for whose names keep returns
// true; a nil keep keeps none.
func Read(r io.ReaderAt, keep func(name []byte) bool) (t *Table, err error) {
	defer recovered(&err)
	f, err := elffile.Open(r)
	if err != nil {
		return nil, fmt.Errorf("read symbols: %w", err)
	}
	for _, s := range f.Sections {
		switch s.Name {
		case ".symtab", ".strtab", ".dynsym", ".dynstr":
			if s.FileSize > MaxTable || s.Size > MaxTable {
				return nil, fmt.Errorf("read symbols: offset %#x: %s of %d bytes is too large", s.Offset, s.Name, s.Size)
			}
		}
	}
	t = &Table{}
	seen := false
	add := func(s *elf.Symbol, name []byte) {
		seen = true
		if s.Section == elf.SHN_UNDEF || s.Size == 0 || len(name) == 0 || s.Value+s.Size < s.Value {
			return
		}
		switch typ := elf.ST_TYPE(s.Info); {
		case typ == elf.STT_OBJECT:
			t.syms = append(t.syms, symbol{s.Value, s.Size, string(name)})
		case typ == elf.STT_FUNC && keep != nil && keep(name):
			t.funcs = append(t.funcs, symbol{s.Value, s.Size, string(name)})
		}
	}
	if err := elffile.EachSymbol(f, elf.SHT_SYMTAB, add); err != nil || !seen {
		t.exported = true
		if err := elffile.EachSymbol(f, elf.SHT_DYNSYM, add); err != nil {
			if errors.Is(err, elf.ErrNoSymbols) {
				return nil, ErrNoSymbols
			}
			return nil, fmt.Errorf("read symbols: %w", err)
		}
	}
	sort(t.syms)
	sort(t.funcs)
	return t, nil
}

// sort orders symbols by address. Lookups search backwards: of several names for one
// address the largest comes first, so that it is used only where the smaller ones end.
// Of equal sizes the shortest name comes last.
func sort(syms []symbol) {
	slices.SortFunc(syms, func(a, b symbol) int {
		return cmp.Or(cmp.Compare(a.vaddr, b.vaddr), cmp.Compare(b.size, a.size), cmp.Compare(len(b.name), len(a.name)))
	})
}

// recovered turns a panic over a damaged file into an error.
func recovered(err *error) {
	if x := recover(); x != nil {
		*err = fmt.Errorf("damaged ELF file: %v", x)
	}
}

// nested is how many variables before an address are checked for one that extends to
// it: names for parts of a larger variable are rare.
const nested = 16

// Lookup returns the variable that contains vaddr: its name as in the file, and the
// offset of vaddr in it. A nil Table has no variables.
func (t *Table) Lookup(vaddr uint64) (name string, offset uint64, ok bool) {
	if t == nil {
		return "", 0, false
	}
	return find(t.syms, vaddr)
}

// Function returns the function that contains vaddr, if Read kept it, by its name as in
// the file. A nil Table has no functions.
func (t *Table) Function(vaddr uint64) (name string, ok bool) {
	if t == nil {
		return "", false
	}
	name, _, ok = find(t.funcs, vaddr)
	return name, ok
}

func find(syms []symbol, vaddr uint64) (name string, offset uint64, ok bool) {
	i, _ := slices.BinarySearchFunc(syms, vaddr, func(s symbol, v uint64) int {
		if s.vaddr <= v {
			return -1
		}
		return 1
	})
	for j := i - 1; j >= 0 && j >= i-nested; j-- {
		if s := &syms[j]; vaddr-s.vaddr < s.size {
			return s.name, vaddr - s.vaddr, true
		}
	}
	return "", 0, false
}

// Load describes how a file is mapped into memory.
type Load struct {
	segs []seg
}

type seg struct {
	off, vaddr, filesz, memsz uint64
	code                      bool
}

// ReadLoad reads the program headers of the ELF file in r.
func ReadLoad(r io.ReaderAt) (l *Load, err error) {
	defer recovered(&err)
	f, err := elffile.Open(r)
	if err != nil {
		return nil, fmt.Errorf("read program headers: %w", err)
	}
	l = &Load{}
	for i, p := range f.Progs {
		if i == maxProgs {
			break
		}
		if p.Type == elf.PT_LOAD {
			l.segs = append(l.segs, seg{p.Off, p.Vaddr, p.Filesz, p.Memsz, p.Flags&elf.PF_X != 0})
		}
	}
	return l, nil
}

// page is the smallest unit of a mapping: a segment is mapped from the start of its first page.
const page = 4096

// Bias returns the difference between run-time addresses and the file's vaddrs, given
// that the byte at offset off is mapped at addr as code. A page of a file may also be
// mapped as data of two segments, at two places. ok is false if off is not in code.
func (l *Load) Bias(off, addr uint64) (bias uint64, ok bool) {
	for _, s := range l.segs {
		if lo := s.off &^ (page - 1); s.code && off >= lo && off < s.off+s.filesz {
			return addr - (s.vaddr + (off - s.off)), true
		}
	}
	return 0, false
}

// Spans reports whether vaddr is in a page of the file's memory, zeroed memory
// included.
func (l *Load) Spans(vaddr uint64) bool {
	for _, s := range l.segs {
		if lo := s.vaddr &^ (page - 1); vaddr-lo < s.vaddr-lo+s.memsz {
			return true
		}
	}
	return false
}
