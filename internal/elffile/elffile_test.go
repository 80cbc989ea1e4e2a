package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sparse is a file of any size; offsets outside its parts read as zero.
type sparse struct {
	parts map[int64][]byte
	read  int64 // bytes
}

func (s *sparse) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	s.read += int64(len(b))
	for at, p := range s.parts {
		for i := range p {
			if k := at + int64(i) - off; k >= 0 && k < int64(len(b)) {
				b[k] = p[i]
			}
		}
	}
	return len(b), nil
}

func header(set func(h []byte)) []byte {
	h := make([]byte, 64)
	copy(h, elf.ELFMAG)
	h[elf.EI_CLASS], h[elf.EI_DATA], h[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	le := binary.LittleEndian
	le.PutUint16(h[16:], uint16(elf.ET_EXEC))
	le.PutUint16(h[18:], uint16(elf.EM_X86_64))
	le.PutUint32(h[20:], 1)
	le.PutUint16(h[54:], 56) // phentsize
	le.PutUint16(h[58:], 64) // shentsize
	set(h)
	return h
}

func section(kind elf.SectionType, flags elf.SectionFlag, off, size uint64, link uint32) []byte {
	s := make([]byte, 64)
	le := binary.LittleEndian
	le.PutUint32(s[4:], uint32(kind))
	le.PutUint64(s[8:], uint64(flags))
	le.PutUint64(s[24:], off)
	le.PutUint64(s[32:], size)
	le.PutUint32(s[40:], link)
	return s
}

// Headers that claim gigabytes cost an error and a few hundred bytes of reading.
func TestHostileHeaders(t *testing.T) {
	le := binary.LittleEndian
	for name, f := range map[string]*sparse{
		// The first section header claims two billion sections.
		"sections": {parts: map[int64][]byte{0: header(func(h []byte) { le.PutUint64(h[40:], 64) }), 64: section(elf.SHT_NULL, 0, 0, 1<<31, 0)}},
		"names": {parts: map[int64][]byte{
			0:   header(func(h []byte) { le.PutUint64(h[40:], 64); le.PutUint16(h[60:], 2); le.PutUint16(h[62:], 1) }),
			128: section(elf.SHT_STRTAB, 0, 1<<20, 1<<40, 0)}},
		"packed names": {parts: map[int64][]byte{
			0:   header(func(h []byte) { le.PutUint64(h[40:], 64); le.PutUint16(h[60:], 2); le.PutUint16(h[62:], 1) }),
			128: section(elf.SHT_STRTAB, elf.SHF_COMPRESSED, 1<<20, 100, 0)}},
	} {
		if _, err := Open(f); err == nil || f.read > 4096 {
			t.Errorf("%s: %v, %d bytes read", name, err, f.read)
		}
	}
}

func TestHostileSymbols(t *testing.T) {
	le := binary.LittleEndian
	for name, sections := range map[string][][]byte{
		"symbols":        {section(elf.SHT_SYMTAB, 0, 1<<20, 1<<36, 2), section(elf.SHT_STRTAB, 0, 512, 16, 0)},
		"strings":        {section(elf.SHT_SYMTAB, 0, 1<<20, 48, 2), section(elf.SHT_STRTAB, 0, 512, 1<<36, 0)},
		"packed symbols": {section(elf.SHT_SYMTAB, elf.SHF_COMPRESSED, 1<<20, 48, 2), section(elf.SHT_STRTAB, 0, 512, 16, 0)},
	} {
		var tab []byte
		for _, s := range append([][]byte{section(elf.SHT_NULL, 0, 0, 0, 0)}, sections...) {
			tab = append(tab, s...)
		}
		file := &sparse{parts: map[int64][]byte{0: header(func(h []byte) { le.PutUint64(h[40:], 64); le.PutUint16(h[60:], uint16(len(tab)/64)) }), 64: tab}}
		f, err := Open(file)
		if err != nil {
			if !strings.Contains(name, "packed") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		_, err = Symbols(f)
		for _, err := range []error{err, EachSymbol(f, elf.SHT_SYMTAB, func(*elf.Symbol, []byte) {})} {
			if err == nil || errors.Is(err, elf.ErrNoSymbols) || file.read > 1<<16 {
				t.Errorf("%s: %v, %d bytes read", name, err, file.read)
			}
		}
	}
}

func TestOpenReadsPrograms(t *testing.T) {
	self, err := os.Open("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	f, err := Open(self)
	if err != nil || len(f.Sections) == 0 {
		t.Fatal(err)
	}
	if syms, err := DynamicSymbols(f); err != nil || len(syms) == 0 {
		t.Errorf("%d symbols, %v", len(syms), err)
	}
	for _, b := range []string{"", "x", "\x7fELF", strings.Repeat("x", 100), "\x7fELF\x01\x01\x01" + strings.Repeat("\x00", 57)} {
		if _, err := Open(bytes.NewReader([]byte(b))); err == nil {
			t.Errorf("%q is opened", b)
		}
	}
}

// each returns what EachSymbol does.
func each(f *elf.File, kind elf.SectionType) (out []elf.Symbol, err error) {
	err = EachSymbol(f, kind, func(s *elf.Symbol, name []byte) {
		x := *s
		x.Name = string(name)
		out = append(out, x)
	})
	return out, err
}

// EachSymbol is held against debug/elf.
func TestEachSymbol(t *testing.T) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	paths, err := filepath.Glob("/lib/*/libc.so.6")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no C library: %v", err)
	}
	libc, err := os.Open(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer libc.Close()
	seen := 0
	for _, r := range []*os.File{self, libc} {
		f, err := Open(r)
		if err != nil {
			t.Fatal(err)
		}
		static, err1 := Symbols(f)
		dynamic, err2 := DynamicSymbols(f)
		for i := range dynamic {
			dynamic[i].HasVersion, dynamic[i].VersionIndex, dynamic[i].Version, dynamic[i].Library = false, 0, "", ""
		}
		for kind, want := range map[elf.SectionType][]elf.Symbol{elf.SHT_SYMTAB: static, elf.SHT_DYNSYM: dynamic} {
			got, err := each(f, kind)
			if wrong := map[elf.SectionType]error{elf.SHT_SYMTAB: err1, elf.SHT_DYNSYM: err2}[kind]; !errors.Is(err, wrong) {
				t.Errorf("%s, %v: %v, want %v", r.Name(), kind, err, wrong)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %v: %d symbols are not those of debug/elf, %d", r.Name(), kind, len(got), len(want))
			}
			seen += len(got)
		}
	}
	if seen < 1000 {
		t.Errorf("%d symbols", seen)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(header(func(h []byte) {}))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Open(bytes.NewReader(b))
		if err != nil {
			return
		}
		want, err := Symbols(x)
		if got, _ := each(x, elf.SHT_SYMTAB); err == nil && len(got) != len(want) {
			t.Errorf("%d symbols, want %d", len(got), len(want))
		}
		DynamicSymbols(x)
	})
}
