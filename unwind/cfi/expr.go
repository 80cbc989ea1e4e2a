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
	e := evaluation{c: cursor{b: expr}, s: s, bias: bias}
	e.n = copy(e.st[:], push)
	for step := 0; e.c.rest() > 0; step++ {
		if step == maxExprSteps {
			return 0, fmt.Errorf("%w: more than %d steps", errExpr, maxExprSteps)
		}
		op := e.c.u8()
		if e.n < needs(op) || e.n == maxExprStack {
			return 0, e.damaged()
		}
		switch err := e.step(op); {
		case err == errExpr || e.c.err != nil:
			return 0, e.damaged()
		case err != nil:
			return 0, err
		}
	}
	if e.n == 0 {
		return 0, e.damaged()
	}
	return e.st[e.n-1], nil
}

// An evaluation is the state between two operations. The functions of operations may use as many
// values of the stack as needs returns, and may push one more. After an error of the cursor they
// may push any value.
type evaluation struct {
	c    cursor
	s    State
	bias uint64
	st   [maxExprStack]uint64
	n    int // values in st
}

func (e *evaluation) damaged() error {
	return fmt.Errorf("%w: at byte %d of %x", errExpr, e.c.pos, e.c.b)
}

func (e *evaluation) push(v uint64) {
	e.st[e.n] = v
	e.n++
}

func (e *evaluation) pop() uint64 {
	e.n--
	return e.st[e.n]
}

// step executes the operation op, whose operands the cursor reads next. The error is errExpr,
// ErrRegister or ErrMemory.
func (e *evaluation) step(op byte) error {
	switch {
	case op >= opLit0 && op <= opLit31:
		e.push(uint64(op - opLit0))
	case op >= opReg0 && op <= opBreg31, op == opRegx, op == opBregx:
		return e.register(op)
	case op == opAddr, op >= opConst1u && op <= opConsts:
		e.push(e.constant(op))
	case op >= opDup && op <= opRot:
		return e.shuffle(op)
	case op == opAbs, op == opNeg, op == opNot, op == opPlusUconst:
		e.push(e.unary(op, e.pop()))
	case op == opDeref, op == opDerefSize:
		return e.deref(op)
	case op == opSkip, op == opBra:
		return e.jump(op)
	case op >= opAnd && op <= opNe:
		b := e.pop()
		v, ok := apply(op, e.pop(), b)
		if !ok {
			return errExpr
		}
		e.push(v)
	case op == opNop:
	default:
		return errExpr
	}
	return nil
}

// register pushes the value of a register, with an offset for the breg operations.
func (e *evaluation) register(op byte) error {
	var reg, off uint64
	switch {
	case op == opBregx:
		reg, off = e.c.uleb(), uint64(e.c.sleb())
	case op >= opBreg0 && op <= opBreg31:
		reg, off = uint64(op-opBreg0), uint64(e.c.sleb())
	// DWARF forbids the others in these expressions; libgcc uses the register's value.
	case op == opRegx:
		reg = e.c.uleb()
	default:
		reg = uint64(op - opReg0)
	}
	v, ok := e.s.Register(reg)
	if !ok {
		return ErrRegister
	}
	e.push(v + off)
	return nil
}

// constant returns the operand of an operation that pushes it.
func (e *evaluation) constant(op byte) uint64 {
	switch op {
	case opAddr:
		return e.c.u64() + e.bias
	case opConst1u:
		return uint64(e.c.u8())
	case opConst1s:
		return uint64(int8(e.c.u8()))
	case opConst2u:
		return uint64(e.c.u16())
	case opConst2s:
		return uint64(int16(e.c.u16()))
	case opConst4u:
		return uint64(e.c.u32())
	case opConst4s:
		return uint64(int32(e.c.u32()))
	case opConst8u, opConst8s:
		return e.c.u64()
	case opConstu:
		return e.c.uleb()
	}
	return uint64(e.c.sleb()) // opConsts
}

// shuffle copies, drops or exchanges values of the stack.
func (e *evaluation) shuffle(op byte) error {
	st, n := &e.st, e.n
	switch op {
	case opDup:
		e.push(st[n-1])
	case opOver:
		e.push(st[n-2])
	case opPick:
		i := int(e.c.u8())
		if i >= n {
			return errExpr
		}
		e.push(st[n-1-i])
	case opDrop:
		e.n--
	case opSwap:
		st[n-1], st[n-2] = st[n-2], st[n-1]
	case opRot:
		st[n-1], st[n-2], st[n-3] = st[n-2], st[n-3], st[n-1]
	}
	return nil
}

// unary computes an operation on one value.
func (e *evaluation) unary(op byte, v uint64) uint64 {
	switch {
	case op == opPlusUconst:
		return v + e.c.uleb()
	case op == opNot:
		return ^v
	case op == opAbs && int64(v) >= 0:
		return v
	}
	return -v
}

// deref replaces an address by the number in memory there.
func (e *evaluation) deref(op byte) error {
	size := 8
	if op == opDerefSize {
		size = int(e.c.u8())
	}
	if size != 1 && size != 2 && size != 4 && size != 8 {
		return errExpr
	}
	v, ok := e.s.Read(e.pop(), size)
	if !ok {
		return ErrMemory
	}
	e.push(v)
	return nil
}

// jump moves the cursor, for opBra only if the value on top is not 0.
func (e *evaluation) jump(op byte) error {
	d := int(int16(e.c.u16()))
	if op == opBra && e.pop() == 0 {
		return nil
	}
	to := e.c.pos + d
	if to < 0 || to > len(e.c.b) {
		return errExpr
	}
	e.c.pos = to
	return nil
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
