package cfi

import (
	"errors"
	"fmt"
)

// Errors of Eval that a caller branches on.
var (
	ErrRegister = errors.New("expression needs a register that is not known")
	ErrMemory   = errors.New("expression needs memory that could not be read")
	errExpr     = errors.New("damaged expression")
)

// Bounds of an evaluation. Expressions in real files take a dozen steps.
const (
	maxExprSteps = 4096
	maxExprStack = 64
)

// State is the input of an expression.
type State interface {
	// Register returns the value of a register by its DWARF number.
	Register(n uint64) (uint64, bool)
	// Read returns size (1, 2, 4 or 8) bytes at an address of the target.
	Read(addr uint64, size int) (uint64, bool)
}

// DWARF 5, table 7.9.
const (
	opAddr       = 0x03
	opDeref      = 0x06
	opConst1u    = 0x08
	opConst1s    = 0x09
	opConst2u    = 0x0a
	opConst2s    = 0x0b
	opConst4u    = 0x0c
	opConst4s    = 0x0d
	opConst8u    = 0x0e
	opConst8s    = 0x0f
	opConstu     = 0x10
	opConsts     = 0x11
	opDup        = 0x12
	opDrop       = 0x13
	opOver       = 0x14
	opPick       = 0x15
	opSwap       = 0x16
	opRot        = 0x17
	opAbs        = 0x19
	opAnd        = 0x1a
	opDiv        = 0x1b
	opMinus      = 0x1c
	opMod        = 0x1d
	opMul        = 0x1e
	opNeg        = 0x1f
	opNot        = 0x20
	opOr         = 0x21
	opPlus       = 0x22
	opPlusUconst = 0x23
	opShl        = 0x24
	opShr        = 0x25
	opShra       = 0x26
	opXor        = 0x27
	opBra        = 0x28
	opEq         = 0x29
	opGe         = 0x2a
	opGt         = 0x2b
	opLe         = 0x2c
	opLt         = 0x2d
	opNe         = 0x2e
	opSkip       = 0x2f
	opLit0       = 0x30
	opLit31      = 0x4f
	opReg0       = 0x50
	opReg31      = 0x6f
	opBreg0      = 0x70
	opBreg31     = 0x8f
	opRegx       = 0x90
	opBregx      = 0x92
	opDerefSize  = 0x94
	opNop        = 0x96
)

// A Linear is an expression as in signal frames' tables: a register plus an offset, or the word in
// memory at that address.
type Linear struct {
	Reg   uint8
	Deref bool
	Off   int64
}

// LinearOf recognizes a Linear. ok is false for any other expression.
func LinearOf(expr []byte) (l Linear, ok bool) {
	c := cursor{b: expr}
	op := c.u8()
	if op < opBreg0 || op > opBreg31 {
		return l, false
	}
	l.Reg, l.Off = op-opBreg0, c.sleb()
	if c.rest() == 1 {
		l.Deref = c.u8() == opDeref
		return l, c.err == nil && l.Deref
	}
	return l, c.err == nil && c.rest() == 0
}

// Eval evaluates a DWARF expression of call frame information. push is the initial stack: the CFA,
// except for an expression that computes the CFA. bias is added to addresses of the file. Eval
// allocates only for an error about damage. The error is ErrRegister, ErrMemory, or names the byte
// at which the expression is damaged.
func Eval(expr []byte, s State, bias uint64, push ...uint64) (uint64, error) {
	var st [maxExprStack]uint64
	n := copy(st[:], push)
	c := cursor{b: expr}
	bad := func() error { return fmt.Errorf("%w: at byte %d of %x", errExpr, c.pos, expr) }
	for step := 0; c.rest() > 0; step++ {
		if step == maxExprSteps {
			return 0, fmt.Errorf("%w: more than %d steps", errExpr, maxExprSteps)
		}
		op := c.u8()
		if n < needs(op) || n == maxExprStack {
			return 0, bad()
		}
		var v uint64 // the value to push, if push is set
		push := true
		switch {
		case op >= opLit0 && op <= opLit31:
			v = uint64(op - opLit0)
		case op >= opBreg0 && op <= opBreg31, op == opBregx:
			reg := uint64(op - opBreg0)
			if op == opBregx {
				reg = c.uleb()
			}
			off := c.sleb()
			r, ok := s.Register(reg)
			if c.err == nil && !ok {
				return 0, ErrRegister
			}
			v = r + uint64(off)
		case op >= opReg0 && op <= opReg31, op == opRegx:
			// DWARF forbids this in these expressions; libgcc uses the register's value.
			reg := uint64(op - opReg0)
			if op == opRegx {
				reg = c.uleb()
			}
			r, ok := s.Register(reg)
			if c.err == nil && !ok {
				return 0, ErrRegister
			}
			v = r
		case op >= opAnd && op <= opOr && op != opNeg && op != opNot, op == opPlus,
			op >= opShl && op <= opXor, op >= opEq && op <= opNe:
			var ok bool
			if v, ok = apply(op, st[n-2], st[n-1]); !ok {
				return 0, bad()
			}
			n -= 2
		default:
			switch op {
			case opAddr:
				v = c.u64() + bias
			case opConst1u:
				v = uint64(c.u8())
			case opConst1s:
				v = uint64(int8(c.u8()))
			case opConst2u:
				v = uint64(c.u16())
			case opConst2s:
				v = uint64(int16(c.u16()))
			case opConst4u:
				v = uint64(c.u32())
			case opConst4s:
				v = uint64(int32(c.u32()))
			case opConst8u, opConst8s:
				v = c.u64()
			case opConstu:
				v = c.uleb()
			case opConsts:
				v = uint64(c.sleb())
			case opDup:
				v = st[n-1]
			case opOver:
				v = st[n-2]
			case opPick:
				i := int(c.u8())
				if i >= n {
					return 0, bad()
				}
				v = st[n-1-i]
			case opDrop:
				n--
				push = false
			case opSwap:
				st[n-1], st[n-2] = st[n-2], st[n-1]
				push = false
			case opRot:
				st[n-1], st[n-2], st[n-3] = st[n-2], st[n-3], st[n-1]
				push = false
			case opAbs:
				n--
				if v = st[n]; int64(v) < 0 {
					v = -v
				}
			case opNeg:
				n--
				v = -st[n]
			case opNot:
				n--
				v = ^st[n]
			case opPlusUconst:
				n--
				v = st[n] + c.uleb()
			case opDeref, opDerefSize:
				size := 8
				if op == opDerefSize {
					size = int(c.u8())
				}
				if c.err == nil && size != 1 && size != 2 && size != 4 && size != 8 {
					return 0, bad()
				}
				if c.err != nil {
					break
				}
				n--
				var ok bool
				if v, ok = s.Read(st[n], size); !ok {
					return 0, ErrMemory
				}
			case opSkip, opBra:
				push = false
				d := int(int16(c.u16()))
				if op == opBra {
					if n--; st[n] == 0 {
						break
					}
				}
				if to := c.pos + d; to < 0 || to > len(expr) {
					return 0, bad()
				} else {
					c.pos = to
				}
			case opNop:
				push = false
			default:
				return 0, bad()
			}
		}
		if c.err != nil {
			return 0, bad()
		}
		if push {
			st[n] = v
			n++
		}
	}
	if n == 0 {
		return 0, bad()
	}
	return st[n-1], nil
}

// needs returns the number of stack values that op reads.
func needs(op byte) int {
	switch op {
	case opDup, opDrop, opDeref, opDerefSize, opAbs, opNeg, opNot, opPlusUconst, opBra:
		return 1
	case opRot:
		return 3
	case opPick, opSkip:
		return 0
	}
	if op >= opOver && op <= opNe {
		return 2
	}
	return 0
}

// apply computes an operation on two values.
func apply(op byte, a, b uint64) (uint64, bool) {
	truth := func(v bool) (uint64, bool) {
		if v {
			return 1, true
		}
		return 0, true
	}
	switch op {
	case opAnd:
		return a & b, true
	case opDiv: // signed, unlike the others
		if b == 0 || (b == ^uint64(0) && a == 1<<63) {
			return 0, false
		}
		return uint64(int64(a) / int64(b)), true
	case opMinus:
		return a - b, true
	case opMod:
		if b == 0 {
			return 0, false
		}
		return a % b, true
	case opMul:
		return a * b, true
	case opOr:
		return a | b, true
	case opPlus:
		return a + b, true
	case opShl:
		return a << b, true
	case opShr:
		return a >> b, true
	case opShra:
		return uint64(int64(a) >> b), true
	case opXor:
		return a ^ b, true
	case opEq:
		return truth(a == b)
	case opGe:
		return truth(int64(a) >= int64(b))
	case opGt:
		return truth(int64(a) > int64(b))
	case opLe:
		return truth(int64(a) <= int64(b))
	case opLt:
		return truth(int64(a) < int64(b))
	case opNe:
		return truth(a != b)
	}
	return 0, false
}
