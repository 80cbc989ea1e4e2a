package cfi

import (
	"errors"
	"fmt"

	"github.com/sliverprof/sliver/unwind/rule"
)

var (
	errEncoding = errors.New("pointer encoding that is not known")
	errOpcode   = errors.New("instruction that is not known")
	errStack    = errors.New("remembered states run over or under")
	errCFA      = errors.New("an offset without a register for the CFA")
	errRange    = errors.New("offset of more than 32 bits")
	errNoRA     = errors.New("no return address")
)

// Call frame instructions: DWARF 5, table 7.29, with GNU's and Arm's additions.
const (
	cfaAdvance       = 0x40
	cfaOffset        = 0x80
	cfaRestore       = 0xc0
	cfaNop           = 0x00
	cfaSetLoc        = 0x01
	cfaAdvance1      = 0x02
	cfaAdvance2      = 0x03
	cfaAdvance4      = 0x04
	cfaOffsetExt     = 0x05
	cfaRestoreExt    = 0x06
	cfaUndefined     = 0x07
	cfaSame          = 0x08
	cfaRegister      = 0x09
	cfaRemember      = 0x0a
	cfaRestoreState  = 0x0b
	cfaDef           = 0x0c
	cfaDefRegister   = 0x0d
	cfaDefOffset     = 0x0e
	cfaDefExpr       = 0x0f
	cfaExpr          = 0x10
	cfaOffsetExtSF   = 0x11
	cfaDefSF         = 0x12
	cfaDefOffsetSF   = 0x13
	cfaValOffset     = 0x14
	cfaValOffsetSF   = 0x15
	cfaValExpr       = 0x16
	cfaMIPSAdvance8  = 0x1d
	cfaNegateRAPC    = 0x2c
	cfaNegateRA      = 0x2d // on arm64; GNU_window_save on SPARC
	cfaGNUArgsSize   = 0x2e
	cfaGNUNegOffsExt = 0x2f
)

const (
	regs      = 33 // tracked registers; a walk does not need the others (vectors, flags)
	maxStates = 64 // depth of DW_CFA_remember_state
)

// A col is a row's entry for one register.
type col struct {
	kind uint8 // rule.Same … rule.Undef
	off  int64
	expr []byte
}

// A row is one row of the table that an FDE's instructions define.
type row struct {
	cfaReg  uint64
	cfaOff  int64
	cfaExpr []byte // instead of register and offset, if not nil
	set     uint64 // bit i: regs[i] is not "same"
	regs    [regs]col
}

func (r *row) put(reg uint64, c col) {
	if reg >= regs {
		return
	}
	r.regs[reg] = c
	if r.set |= 1 << reg; c.kind == rule.Same {
		r.set &^= 1 << reg
	}
}

// A machine executes instructions until it has the row for one address.
type machine struct {
	row     row
	initial row // after the CIE's instructions
	cie     *cie
	b       *bases
	lo, hi  uint64 // the row's range so far; lo is its start
	pc      uint64 // the address to look up
	states  []row
}

// run executes instr, whose first byte is at vaddr at. done reports that the row for m.pc is
// complete and ends at m.hi.
func (m *machine) run(instr []byte, at uint64, inCIE bool) (done bool, pos int, err error) {
	c := cursor{b: instr}
	r := &m.row
	for c.rest() > 0 {
		start := c.pos
		op := c.u8()
		next := m.lo
		switch op & 0xc0 {
		case cfaAdvance:
			next += uint64(op&0x3f) * m.cie.codeAlign
		case cfaOffset:
			r.put(uint64(op&0x3f), col{kind: rule.Offset, off: int64(c.uleb()) * m.cie.dataAlign})
		case cfaRestore:
			m.restore(uint64(op & 0x3f))
		default:
			switch op {
			case cfaNop:
			case cfaSetLoc:
				next = c.pointer(m.cie.enc, at, m.b)
			case cfaAdvance1:
				next += uint64(c.u8()) * m.cie.codeAlign
			case cfaAdvance2:
				next += uint64(c.u16()) * m.cie.codeAlign
			case cfaAdvance4:
				next += uint64(c.u32()) * m.cie.codeAlign
			case cfaMIPSAdvance8:
				next += c.u64() * m.cie.codeAlign
			case cfaOffsetExt:
				reg := c.uleb()
				r.put(reg, col{kind: rule.Offset, off: int64(c.uleb()) * m.cie.dataAlign})
			case cfaOffsetExtSF:
				reg := c.uleb()
				r.put(reg, col{kind: rule.Offset, off: c.sleb() * m.cie.dataAlign})
			case cfaGNUNegOffsExt:
				reg := c.uleb()
				r.put(reg, col{kind: rule.Offset, off: -int64(c.uleb()) * m.cie.dataAlign})
			case cfaValOffset:
				reg := c.uleb()
				r.put(reg, col{kind: rule.ValOff, off: int64(c.uleb()) * m.cie.dataAlign})
			case cfaValOffsetSF:
				reg := c.uleb()
				r.put(reg, col{kind: rule.ValOff, off: c.sleb() * m.cie.dataAlign})
			case cfaRestoreExt:
				m.restore(c.uleb())
			case cfaUndefined:
				r.put(c.uleb(), col{kind: rule.Undef})
			case cfaSame:
				r.put(c.uleb(), col{kind: rule.Same})
			case cfaRegister:
				reg := c.uleb()
				r.put(reg, col{kind: rule.Register, off: int64(c.uleb())})
			case cfaExpr:
				reg := c.uleb()
				r.put(reg, col{kind: rule.Expr, expr: c.take(c.uleb())})
			case cfaValExpr:
				reg := c.uleb()
				r.put(reg, col{kind: rule.ValExpr, expr: c.take(c.uleb())})
			case cfaRemember:
				if len(m.states) == maxStates {
					return false, start, errStack
				}
				m.states = append(m.states, *r)
			case cfaRestoreState:
				// The CFA is restored too: DWARF 5, section 6.4.2.4, says "the set of rules for every
				// register", and compilers rely on it.
				if len(m.states) == 0 {
					return false, start, errStack
				}
				*r = m.states[len(m.states)-1]
				m.states = m.states[:len(m.states)-1]
			case cfaDef, cfaDefSF, cfaDefRegister, cfaDefOffset, cfaDefOffsetSF, cfaDefExpr:
				if !m.defineCFA(op, &c) {
					return false, start, errCFA
				}
			case cfaNegateRA, cfaNegateRAPC:
				// Whether return addresses are signed. Ignore it: the signature is always removed.
			case cfaGNUArgsSize:
				c.uleb() // for landing pads only
			default:
				return false, start, errOpcode
			}
		}
		if c.err != nil {
			return false, start, c.err
		}
		if next != m.lo {
			if inCIE {
				continue // a CIE has no locations
			}
			// Accept a location that goes back, as binutils and libgcc do; hi bounds the row in any
			// case.
			if next > m.pc {
				m.hi = min(m.hi, next)
				return true, c.pos, nil
			}
			m.lo = next
		}
	}
	return false, c.pos, nil
}

// defineCFA executes an instruction that changes how the CFA is computed. ok is false if it changes
// the register or the offset, and the CFA is an expression.
func (m *machine) defineCFA(op byte, c *cursor) (ok bool) {
	r := &m.row
	switch op {
	case cfaDef:
		r.cfaReg, r.cfaExpr = c.uleb(), nil
		r.cfaOff = int64(c.uleb())
		return true
	case cfaDefSF:
		r.cfaReg, r.cfaExpr = c.uleb(), nil
		r.cfaOff = c.sleb() * m.cie.dataAlign
		return true
	case cfaDefExpr:
		if r.cfaExpr = c.take(c.uleb()); r.cfaExpr == nil {
			r.cfaExpr = []byte{} // an error, or an expression without a result
		}
		return true
	}
	if r.cfaExpr != nil {
		return false
	}
	switch op {
	case cfaDefRegister:
		r.cfaReg = c.uleb()
	case cfaDefOffset:
		r.cfaOff = int64(c.uleb())
	case cfaDefOffsetSF:
		r.cfaOff = c.sleb() * m.cie.dataAlign
	}
	return true
}

func (m *machine) restore(reg uint64) {
	if reg < regs {
		m.row.put(reg, m.initial.regs[reg])
	}
}

// rule writes the machine's row to out.
func (m *machine) rule(out *rule.Rule, arch rule.Arch) error {
	r := &m.row
	out.CFAIsExpr = r.cfaExpr != nil
	if out.CFAIsExpr {
		out.CFAReg, out.CFAOff = 0, 0
		out.Exprs = append(out.Exprs, r.cfaExpr)
	} else {
		if r.cfaReg >= regs {
			return fmt.Errorf("CFA from register %d", r.cfaReg)
		}
		out.CFAReg, out.CFAOff = uint8(r.cfaReg), int32(r.cfaOff)
		if int64(out.CFAOff) != r.cfaOff {
			return errRange
		}
	}
	for i, set := 0, r.set; set != 0; i, set = i+1, set>>1 {
		if set&1 == 0 || uint64(i) == m.cie.ra {
			continue
		}
		l, err := loc(uint8(i), &r.regs[i], out)
		if err != nil {
			return err
		}
		if int(out.NSaved) == len(out.Saved) {
			return fmt.Errorf("more than %d registers", len(out.Saved))
		}
		out.Saved[out.NSaved] = l
		out.NSaved++
	}
	ra := m.cie.ra
	if ra >= regs {
		return fmt.Errorf("return address in register %d", ra)
	}
	l, err := loc(uint8(ra), &r.regs[ra], out)
	if err != nil {
		return err
	}
	if l.Kind == rule.Same {
		if arch == rule.AMD64 && ra == rule.AMD64RA {
			return errNoRA // a column beyond the registers cannot hold it
		}
		l.Kind, l.Off = rule.Register, int32(ra)
	}
	out.RA = l
	if arch == rule.ARM64 && l.Kind != rule.Undef && l.Kind != rule.Register {
		// Also restore the link register: a caller that returns by it (one interrupted by a signal,
		// for example) needs its value.
		if int(out.NSaved) < len(out.Saved) {
			out.Saved[out.NSaved] = l
			out.NSaved++
		}
	}
	return nil
}

func loc(reg uint8, c *col, out *rule.Rule) (rule.Loc, error) {
	l := rule.Loc{Reg: reg, Kind: c.kind}
	switch c.kind {
	case rule.Offset, rule.ValOff:
		l.Off = int32(c.off)
		if int64(l.Off) != c.off {
			return l, errRange
		}
	case rule.Register:
		if c.off < 0 || c.off >= regs { // for example, in a vector register
			l.Kind = rule.Undef
			return l, nil
		}
		l.Off = int32(c.off)
	case rule.Expr, rule.ValExpr:
		l.Off = int32(len(out.Exprs))
		out.Exprs = append(out.Exprs, c.expr)
	}
	return l, nil
}
