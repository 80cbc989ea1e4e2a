package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
)

// JITObject is an ELF file in a program's memory that describes generated code to
// debuggers: GDB's JIT interface (the manual's chapter "JIT Compilation Interface";
// gdb/jit.c). Its addresses are those of the target. It is for one goroutine.
type JITObject struct {
	f *File
}

// OpenJITObject reads one. Compilers provide unlinked files whose sections contain
// their addresses. OpenJITObject uses these, in a copy of b, to compute the values of
// symbols and to apply the relocations of the debug information.
func OpenJITObject(b []byte, fullNames bool) (o *JITObject, err error) {
	defer recovered(&err, "an ELF file in memory")
	b = slices.Clone(b)
	m, err := openImage("JIT code", bytes.NewReader(b), newBudget("JIT code"))
	if err != nil {
		return nil, err
	}
	if m.f.Type == elf.ET_REL {
		for _, s := range m.f.Sections {
			if s.Flags&elf.SHF_ALLOC != 0 && s.Flags&elf.SHF_EXECINSTR != 0 && s.Addr != 0 && s.Size > 0 && s.Addr+s.Size > s.Addr {
				m.text = append(m.text, segment{s.Addr, s.Addr + s.Size})
			}
		}
		slices.SortFunc(m.text, func(a, b segment) int {
			if a.lo < b.lo {
				return -1
			}
			return 1
		})
		link(b, m.f)
	}
	if len(m.text) == 0 {
		return nil, fmt.Errorf("an ELF file in memory: it has no code")
	}
	return &JITObject{&File{o: Options{Path: "JIT code", FullNames: fullNames}, main: m, names: map[string]string{}, haveGo: true}}, nil
}

// link relocates an unlinked file to its sections' addresses: it sets the values of
// symbols, and applies the absolute relocations of sections that are not loaded.
func link(b []byte, f *elf.File) {
	le := binary.LittleEndian
	part := func(s *elf.Section) []byte {
		if s.Type == elf.SHT_NOBITS || s.Offset > uint64(len(b)) || s.FileSize > uint64(len(b))-s.Offset || s.Flags&elf.SHF_COMPRESSED != 0 {
			return nil
		}
		return b[s.Offset:][:s.FileSize]
	}
	done := map[uint64]bool{} // tables by offset: sections may share one
	for _, s := range f.Sections {
		if s.Type != elf.SHT_SYMTAB || done[s.Offset] {
			continue
		}
		done[s.Offset] = true
		for t := part(s); len(t) >= symSize; t = t[symSize:] {
			if i := int(le.Uint16(t[6:])); i > 0 && i < len(f.Sections) {
				le.PutUint64(t[8:], le.Uint64(t[8:])+f.Sections[i].Addr)
			}
		}
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_RELA || int(s.Info) >= len(f.Sections) || int(s.Link) >= len(f.Sections) {
			continue
		}
		to, syms := f.Sections[s.Info], part(f.Sections[s.Link])
		into := part(to)
		if to.Flags&elf.SHF_ALLOC != 0 {
			continue
		}
		const relaSize = 24
		for r := part(s); len(r) >= relaSize; r = r[relaSize:] {
			off, info, v := le.Uint64(r), le.Uint64(r[8:]), le.Uint64(r[16:])
			at := info >> 32 * symSize
			if at >= uint64(len(syms)) || uint64(len(syms))-at < symSize || off >= uint64(len(into)) {
				continue
			}
			v += le.Uint64(syms[at+8:])
			switch into := into[off:]; {
			case len(into) >= 8 && wide(f.Machine, uint32(info)):
				le.PutUint64(into, v)
			case len(into) >= 4 && narrow(f.Machine, uint32(info)):
				le.PutUint32(into, uint32(v))
			}
		}
	}
}

// wide and narrow report relocations of a 64-bit and a 32-bit address.
func wide(m elf.Machine, typ uint32) bool {
	return m == elf.EM_X86_64 && typ == uint32(elf.R_X86_64_64) || m == elf.EM_AARCH64 && typ == uint32(elf.R_AARCH64_ABS64)
}

func narrow(m elf.Machine, typ uint32) bool {
	return m == elf.EM_X86_64 && typ == uint32(elf.R_X86_64_32) || m == elf.EM_AARCH64 && typ == uint32(elf.R_AARCH64_ABS32)
}

// Covers reports whether addr, in the target, is in the file's code.
func (o *JITObject) Covers(addr uint64) bool { return o.f.main.isText(addr) }

// Code calls yield with the start and end of each range of the file's code.
func (o *JITObject) Code(yield func(lo, hi uint64)) {
	for _, s := range o.f.main.text {
		yield(s.lo, s.hi)
	}
}

// Frames is File.Frames for an address in the target.
func (o *JITObject) Frames(addr uint64, buf []Frame) []Frame { return o.f.Frames(addr, buf) }

// Variable returns the vaddr of a symbol of an ELF file, from its symbol table or its
// exported symbols.
func Variable(r io.ReaderAt, name string) (vaddr uint64, ok bool) {
	var err error
	defer recovered(&err, "symbols") // treated as missing
	m, err := openImage("", r, newBudget("JIT code"))
	if err != nil {
		return 0, false
	}
	le := binary.LittleEndian
	rare := []byte(strings.TrimLeft(name, "_") + "\x00") // each mangled name begins with "_": looking for that is slow
	for _, s := range m.f.Sections {
		if s.Type != elf.SHT_DYNSYM && s.Type != elf.SHT_SYMTAB || int(s.Link) >= len(m.f.Sections) {
			continue
		}
		if !m.holds(m.f.Sections[s.Link], rare) {
			continue
		}
		names, _ := m.sectionBytes(m.f.Sections[s.Link]) // the readable part
		syms, _ := m.sectionBytes(s)
		for ; len(syms) >= symSize; syms = syms[symSize:] {
			at := uint64(le.Uint32(syms))
			if at < uint64(len(names)) && elf.SectionIndex(le.Uint16(syms[6:])) != elf.SHN_UNDEF &&
				bytes.HasPrefix(names[at:], []byte(name+"\x00")) {
				return le.Uint64(syms[8:]), true
			}
		}
	}
	return 0, false
}

// maxSearched bounds the bytes of a section that are searched: names of symbols, of which Chromium has a third.
const maxSearched = 512 << 20

// holds reports whether a section contains a text of at most some hundred bytes. It has one part of the section in
// memory at a time: names of symbols take megabytes, and few files have the variable that is looked for.
func (m *image) holds(s *elf.Section, text []byte) bool {
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		b, _ := m.sectionBytes(s)
		return bytes.Contains(b, text)
	}
	r := io.NewSectionReader(m.r, int64(s.Offset), int64(min(s.FileSize, maxSearched)))
	buf := make([]byte, min(256<<10, r.Size()+1))
	kept := 0 // bytes before the next part, as the text may begin in one and end in another
	for {
		n, err := r.Read(buf[kept:])
		if bytes.Contains(buf[:kept+n], text) {
			return true
		}
		if err != nil {
			return false
		}
		kept = copy(buf, buf[max(0, kept+n-len(text)+1):kept+n])
	}
}
