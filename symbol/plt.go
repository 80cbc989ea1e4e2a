package symbol

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"sort"
	"strings"
)

const (
	maxPLT    = 16 << 20 // bytes of one section of stubs
	maxRelocs = 1 << 22
	maxStubs  = 64 << 20 // bytes of all stub names
)

// stub is one entry of a procedure linkage table.
type stub struct {
	lo, hi uint64
	name   string // "malloc@plt"
}

// readStubs names the entries of the PLT sections. The target of an entry is known from
// the GOT slot that it jumps through, or from the relocation number that it pushes.
func readStubs(m *image, t *symtab) ([]stub, error) {
	var out []stub
	var rel *relocs
	for _, s := range m.f.Sections {
		if !hasStubs(s) {
			continue
		}
		b, err := m.sectionBytes(s)
		if err != nil {
			return out, err
		}
		if rel == nil {
			if rel, err = readRelocs(m, t); err != nil {
				return nil, err
			}
		}
		from := len(out)
		switch m.f.Machine {
		case elf.EM_X86_64:
			out = rel.stubsAMD64(out, b, s.Addr, s.Entsize)
		case elf.EM_AARCH64:
			out = rel.stubsARM64(out, b, s.Addr)
		}
		// The code before the first entry resolves a function at its first call.
		if len(out) > from && out[from].lo > s.Addr {
			out = append(out, stub{s.Addr, out[from].lo, "[resolve]@plt"})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].lo < out[j].lo })
	return out, nil
}

// hasStubs reports whether s is one of the PLT sections.
func hasStubs(s *elf.Section) bool {
	return s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_EXECINSTR != 0 && s.FileSize <= maxPLT &&
		(s.Name == ".iplt" || s.Name == ".plt" || strings.HasPrefix(s.Name, ".plt."))
}

// stubAt returns the stub that covers vaddr, nil for none. The stubs are read for the first vaddr in a PLT section:
// their names are in the dynamic symbols and in all relocations of the file.
func (f *File) stubAt(vaddr uint64) *stub {
	if !f.haveStubs {
		if !slices.ContainsFunc(f.main.f.Sections, func(s *elf.Section) bool { return vaddr-s.Addr < s.Size && hasStubs(s) }) {
			return nil
		}
		f.haveStubs = true
		f.loadSymbols()
		var err error
		func() {
			defer recovered(&err, "PLT")
			f.plt, err = readStubs(f.main, f.syms)
		}()
		f.problem("PLT", err)
	}
	return findStub(f.plt, vaddr)
}

func findStub(stubs []stub, vaddr uint64) *stub {
	i := sort.Search(len(stubs), func(i int) bool { return stubs[i].lo > vaddr }) - 1
	if i < 0 || vaddr >= stubs[i].hi {
		return nil
	}
	return &stubs[i]
}

// relocs maps GOT slots to names.
type relocs struct {
	slots map[uint64]target
	order []target // of .rela.plt
	names symtab   // the dynamic string table
	syms  *symtab  // for functions that have no dynamic name
	bytes int      // of the names built so far
}

// target is the function that a slot refers to.
type target struct {
	name uint32 // offset in the string table; 0 none
	addr uint64 // of the function that selects one when the program starts; 0 none
}

// stub names the stub of a target, "" if unknown.
func (r *relocs) stub(t target) string {
	name := ""
	if t.addr != 0 {
		if n, start, ok := r.syms.find(t.addr); ok && start == t.addr {
			name = n
		}
	} else if t.name != 0 {
		name = r.names.name(&sym{name: t.name})
	}
	if r.bytes += len(name); name == "" || r.bytes > maxStubs {
		return ""
	}
	return name + "@plt"
}

// Relocation types that fill a slot for a stub.
const (
	amd64GlobDat   = 6
	amd64JumpSlot  = 7
	amd64IRelative = 37
	arm64GlobDat   = 1025
	arm64JumpSlot  = 1026
	arm64IRelative = 1032
)

func readRelocs(m *image, t *symtab) (*relocs, error) {
	r := &relocs{slots: make(map[uint64]target), syms: t}
	var syms, str []byte
	if s := m.section(".dynsym"); s != nil && int(s.Link) < len(m.f.Sections) {
		syms, _ = m.sectionBytes(s)
		str, _ = m.sectionBytes(m.f.Sections[s.Link])
		r.names.names = [][]byte{str}
	}
	le := binary.LittleEndian
	for _, s := range m.f.Sections {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		b, err := m.sectionBytes(s)
		if err != nil {
			return nil, err
		}
		inOrder := s.Name == ".rela.plt" || s.Name == ".rela.iplt"
		for n := 0; len(b) >= 24 && n < maxRelocs; n++ {
			slot, info, addend := le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
			b = b[24:]
			var to target
			switch uint32(info) {
			case amd64GlobDat, amd64JumpSlot, arm64GlobDat, arm64JumpSlot:
				if i := info >> 32 * symSize; i+symSize <= uint64(len(syms)) {
					if at := le.Uint32(syms[i:]); uint64(at) < uint64(len(str)) {
						to.name = at
					}
				}
			case amd64IRelative, arm64IRelative:
				to.addr = addend
			}
			if inOrder {
				r.order = append(r.order, to)
			}
			if to != (target{}) {
				r.slots[slot] = to
			}
		}
	}
	return r, nil
}

// stubsAMD64 reads entries of size bytes: [endbr64] [bnd] jmp *slot(%rip), or
// [endbr64] push $number, [bnd] jmp (the System V ABI for AMD64, section 5.2,
// and the linkers' variants of it).
func (r *relocs) stubsAMD64(out []stub, b []byte, addr, size uint64) []stub {
	if size != 8 && size != 16 {
		size = 16
	}
	le := binary.LittleEndian
	for at := uint64(0); at+size <= uint64(len(b)); at += size {
		e := b[at : at+size]
		p := 0
		if len(e) >= 12 && string(e[:4]) == "\xf3\x0f\x1e\xfa" {
			p = 4
		}
		if e[p] == 0xf2 {
			p++
		}
		name := ""
		switch {
		case p+6 <= len(e) && e[p] == 0xff && e[p+1] == 0x25:
			slot := addr + at + uint64(p) + 6 + uint64(int64(int32(le.Uint32(e[p+2:]))))
			name = r.stub(r.slots[slot])
		case p+5 <= len(e) && e[p] == 0x68:
			if n := le.Uint32(e[p+1:]); uint64(n) < uint64(len(r.order)) {
				name = r.stub(r.order[n])
			}
		}
		if name != "" {
			out = append(out, stub{addr + at, addr + at + size, name})
		}
	}
	return out
}

// stubsARM64 reads entries [bti c] adrp x16, page; ldr x17, [x16, #off]; …
func (r *relocs) stubsARM64(out []stub, b []byte, addr uint64) []stub {
	le := binary.LittleEndian
	word := func(i int) uint32 { return le.Uint32(b[i:]) }
	for i := 0; i+16 <= len(b); i += 4 {
		adrp, ldr := word(i), word(i+4)
		if adrp&0x9f00001f != 0x90000010 || ldr&0xffc003ff != 0xf9400211 {
			continue
		}
		imm := int64(int32(adrp>>5&0x7ffff<<13|adrp>>29&3<<11)) >> 11 // 21 bits, signed
		pc := addr + uint64(i)
		slot := pc&^0xfff + uint64(imm<<12) + uint64(ldr>>10&0xfff)*8
		name := r.stub(r.slots[slot])
		if name == "" {
			continue
		}
		lo, hi := pc, pc+16
		if i >= 4 && word(i-4) == 0xd503245f { // bti c
			lo -= 4
		}
		for j := i + 16; j+4 <= len(b) && j < i+24 && word(j) == 0xd503201f; j += 4 { // nop
			hi += 4
		}
		out = append(out, stub{lo, hi, name})
	}
	return out
}
