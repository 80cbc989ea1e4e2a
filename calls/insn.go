package calls

import (
	"encoding/binary"
	"errors"
)

// An insn is as much of an x86-64 instruction as Scan asks for. The decoder knows lengths of all
// instructions of the legacy, VEX, EVEX and XOP maps (Intel SDM volume 2, chapter 2 and appendix A), since
// the functions of ordinary libraries are full of those that golang.org/x/arch/x86/x86asm refuses.
type insn struct {
	size  int
	op    byte // opcode in its map
	space byte // map: 0 one-byte, 1 0F, 2 0F38, 3 0F3A; 0x80 and above: VEX or EVEX
	rex   byte
	modrm byte
	sib   byte
	// track is the 3E prefix, which an indirect jump through a table carries in code built for
	// indirect branch tracking.
	notrack bool
	rep     bool  // F3
	rel     int64 // displacement of a relative branch, from the instruction's end
	branch  bool  // rel is set
	opsize  bool  // 66
}

var (
	errShort  = errors.New("the instruction goes on behind the end of the code")
	errOpcode = errors.New("unknown instruction")
)

const (
	maxInsn   = 15
	spaceVEX  = 0x80
	spaceLast = 3
)

// decode reads the instruction that b begins with.
func decode(b []byte) (insn, error) {
	d := decoder{b: b[:min(len(b), maxInsn)]}
	c := d.prefixes()
	if err := d.opcode(c); err != nil {
		return d.insn, err
	}
	if d.hasModRM {
		d.operand()
	}
	at := d.i
	d.i += d.imm
	if d.i > len(d.b) {
		if len(d.b) == maxInsn {
			return d.insn, errOpcode
		}
		return d.insn, errShort
	}
	d.size = d.i
	if d.isBranch() {
		d.branch = true
		if d.imm == 1 {
			d.rel = int64(int8(d.b[at]))
		} else {
			d.rel = int64(int32(binary.LittleEndian.Uint32(d.b[at:])))
		}
	}
	return d.insn, nil
}

// decoder reads an instruction's parts in their order.
type decoder struct {
	insn
	b        []byte
	i        int  // offset of the next part, also behind the end of b
	addr32   bool // 67
	hasModRM bool
	imm      int // bytes of the immediate
}

// next returns the next byte, 0 behind the end.
func (d *decoder) next() (c byte) {
	if d.i < len(d.b) {
		c = d.b[d.i]
	}
	d.i++
	return c
}

// prefixes reads the prefixes, and returns the first byte of the opcode.
func (d *decoder) prefixes() (c byte) {
	c = d.next()
legacy:
	for ; d.i <= len(d.b); c = d.next() {
		switch c {
		case 0x66:
			d.opsize = true
		case 0x67:
			d.addr32 = true
		case 0xf3:
			d.rep = true
		case 0x3e:
			d.notrack = true
		case 0xf0, 0xf2, 0x2e, 0x36, 0x26, 0x64, 0x65:
		default:
			break legacy
		}
	}
	if c&0xf0 == 0x40 {
		d.rex, c = c, d.next()
	}
	return c
}

// opcode reads the opcode that begins with c, and sets what follows it.
func (d *decoder) opcode(c byte) (err error) {
	if d.rex == 0 {
		switch {
		case c == 0xc5:
			d.next()
			d.vex(1)
			return nil
		case c == 0xc4:
			m := d.next() & 0x1f
			d.next()
			if m == 0 || m > spaceLast {
				return errOpcode
			}
			d.vex(m)
			return nil
		case c == 0x62: // EVEX
			m := d.next() & 7
			d.next()
			d.next()
			if m == 0 || m == 4 || m == 7 {
				return errOpcode
			}
			d.vex(m)
			return nil
		case c == 0x8f && d.i < len(d.b) && d.b[d.i]&0x1f >= 8:
			return d.xop()
		}
	}
	if c == 0x0f {
		return d.escape()
	}
	d.op = c
	d.hasModRM, d.imm, err = form1(c, &d.insn, d.addr32)
	return err
}

// vex reads the opcode of a VEX or EVEX map.
func (d *decoder) vex(m byte) {
	d.space, d.op = spaceVEX|m, d.next()
	d.hasModRM, d.imm = vexForm(m, d.op)
}

// xop reads the map and opcode after 8F (AMD64 manual volume 4, 1.7).
func (d *decoder) xop() error {
	m := d.next() & 0x1f
	d.next()
	d.space, d.op, d.hasModRM = spaceVEX|m, d.next(), true
	switch m {
	case 8:
		d.imm = 1
	case 9:
	case 10:
		d.imm = 4
	default:
		return errOpcode
	}
	return nil
}

// escape reads the opcode after 0F.
func (d *decoder) escape() (err error) {
	switch c := d.next(); c {
	case 0x38:
		d.space, d.op, d.hasModRM = 2, d.next(), true
	case 0x3a:
		d.space, d.op, d.hasModRM, d.imm = 3, d.next(), true, 1
	default:
		d.space, d.op = 1, c
		d.hasModRM, d.imm, err = form0F(c)
	}
	return err
}

// operand reads ModRM, SIB and the displacement.
func (d *decoder) operand() {
	d.modrm = d.next()
	mod, rm := d.modrm>>6, d.modrm&7
	if mod != 3 && rm == 4 {
		d.sib = d.next()
	}
	switch {
	case mod == 1:
		d.i++
	case mod == 2, mod == 0 && rm == 5, mod == 0 && rm == 4 && d.sib&7 == 5:
		d.i += 4
	}
	if d.space == 0 && d.modrm>>3&7 < 2 { // of this group, only test has an immediate
		switch {
		case d.op == 0xf6:
			d.imm = 1
		case d.op == 0xf7 && d.opsize:
			d.imm = 2
		case d.op == 0xf7:
			d.imm = 4
		}
	}
}

// isBranch reports a relative jump or call.
func (x *insn) isBranch() bool {
	return x.space == 0 && (x.op&0xf0 == 0x70 || x.op >= 0xe0 && x.op <= 0xe3 || x.op == 0xe8 || x.op == 0xe9 || x.op == 0xeb) ||
		x.space == 1 && x.op&0xf0 == 0x80
}

// form1 says what follows an opcode of the one-byte map.
func form1(c byte, x *insn, addr32 bool) (modrm bool, imm int, err error) {
	word := 4 // an immediate of the operand's size
	if x.opsize {
		word = 2
	}
	switch {
	case c < 0x40:
		switch c & 7 {
		case 0, 1, 2, 3:
			return true, 0, nil
		case 4:
			return false, 1, nil
		case 5:
			return false, word, nil
		}
		return false, 0, errOpcode // push and pop of segments, and BCD: not in 64-bit mode
	case c < 0x60: // 40..4f are REX
		return false, 0, nil
	case c == 0x63, c >= 0x84 && c <= 0x8f, c >= 0xd0 && c <= 0xd3, c >= 0xd8 && c <= 0xdf, c >= 0xf6 && c <= 0xf7, c >= 0xfe:
		return true, 0, nil
	case c == 0x68, c == 0xa9:
		return false, word, nil
	case c == 0x69, c == 0x81, c == 0xc7:
		return true, word, nil
	case c == 0x6a, c >= 0x70 && c <= 0x7f, c == 0xa8, c >= 0xb0 && c <= 0xb7, c == 0xcd, c >= 0xe0 && c <= 0xe7, c == 0xeb:
		return false, 1, nil
	case c == 0x6b, c == 0x80, c == 0x83, c == 0xc0, c == 0xc1, c == 0xc6:
		return true, 1, nil
	case c >= 0xa0 && c <= 0xa3:
		if addr32 {
			return false, 4, nil
		}
		return false, 8, nil
	case c >= 0xb8 && c <= 0xbf:
		if x.rex&8 != 0 {
			return false, 8, nil
		}
		return false, word, nil
	case c == 0xe8, c == 0xe9:
		return false, 4, nil
	case c == 0xc2, c == 0xca:
		return false, 2, nil
	case c == 0xc8:
		return false, 3, nil
	case c == 0x60, c == 0x61, c == 0x62, c == 0x82, c == 0x9a, c == 0xc4, c == 0xc5, c == 0xce, c == 0xd4, c == 0xd5, c == 0xd6, c == 0xea:
		return false, 0, errOpcode
	}
	return false, 0, nil
}

// form0F says what follows an opcode of the 0F map.
func form0F(c byte) (modrm bool, imm int, err error) {
	switch {
	case c == 0x04, c == 0x0a, c == 0x0c, c >= 0x24 && c <= 0x27, c == 0x36, c >= 0x39 && c <= 0x3f, c == 0xa6, c == 0xa7:
		return false, 0, errOpcode
	case c == 0x05, c == 0x06, c == 0x07, c == 0x08, c == 0x09, c == 0x0b, c == 0x0e, c >= 0x30 && c <= 0x37, c == 0x77,
		c >= 0xa0 && c <= 0xa2, c >= 0xa8 && c <= 0xaa, c >= 0xc8 && c <= 0xcf:
		return false, 0, nil
	case c >= 0x80 && c <= 0x8f:
		return false, 4, nil
	case c == 0x0f, c >= 0x70 && c <= 0x73, c == 0xa4, c == 0xac, c == 0xba, c == 0xc2, c >= 0xc4 && c <= 0xc6:
		return true, 1, nil
	}
	return true, 0, nil
}

// vexForm says what follows an opcode behind a VEX or EVEX prefix.
func vexForm(m, c byte) (modrm bool, imm int) {
	switch {
	case m == 1 && c == 0x77: // vzeroupper
		return false, 0
	case m == 3, m == 1 && (c >= 0x70 && c <= 0x73 || c == 0xc2 || c >= 0xc4 && c <= 0xc6):
		return true, 1
	}
	return true, 0
}
