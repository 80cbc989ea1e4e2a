package calls

import (
	"encoding/binary"
	"slices"
)

// second returns Code.Second for an entry in p.
func second(arch Arch, p *Part, entry uint64) uint64 {
	if entry < p.Vaddr || entry-p.Vaddr >= uint64(len(p.Code)) {
		return 0
	}
	code := p.Code[entry-p.Vaddr:]
	size := 4
	if arch == ARM64 {
		if len(code) < size || !plainARM64(binary.LittleEndian.Uint32(code)) {
			return 0
		}
	} else {
		x, err := decode(code)
		if err != nil || !x.plain() {
			return 0
		}
		size = x.size
	}
	if size >= len(code) {
		return 0
	}
	return entry + uint64(size)
}

// plain reports an instruction that neither branches nor faults: a push, or one that moves or computes with registers
// and the stack. It knows those that compilers begin functions with.
func (x *insn) plain() bool {
	stack := x.modrm>>6 == 3 || x.modrm&7 == 4 && x.rex&3 == 0 && x.sib&0x3f == 0x24 // a register, or behind SP
	switch x.space {
	case 0:
		switch c := x.op; {
		case c < 0x40 && c&7 < 4, c == 0x63, c == 0x81, c == 0x83, c >= 0x84 && c <= 0x85, c >= 0x88 && c <= 0x8b, c == 0xc7:
			return stack
		case c < 0x40 && c&7 < 6, c >= 0x50 && c < 0x58, c == 0x8d, c == 0x90, c >= 0xb8 && c <= 0xbf:
			return true // with a constant, push, lea, nop
		}
	case 1:
		switch c := x.op; {
		case c == 0x1e, c == 0x1f: // endbr64, nop
			return true
		case slices.Contains([]byte{0x10, 0x11, 0x2a, 0x57, 0x6e, 0x7e, 0xaf, 0xb6, 0xb7, 0xbe, 0xbf, 0xef}, c):
			return stack // moves of floating-point numbers and small ones, and imul
		}
	}
	return false
}

// plainARM64 is insn.plain for a word of A64 (Arm ARM C4.1).
func plainARM64(w uint32) bool {
	const sp = 31
	switch group := w >> 25 & 15; {
	case group>>1 == 4, group&7 == 5: // computes with a constant, or with registers
		return true
	case group&5 == 4: // loads and stores
		return w>>27&7 == 5 && w>>5&31 == sp || w>>27&7 == 7 && w>>5&31 == sp // of pairs, or of one register, behind SP
	}
	return false
}
