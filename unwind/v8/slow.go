package v8

import (
	"encoding/binary"

	"golang.org/x/arch/x86/x86asm"
)

// Where there is no room for an object, optimized code calls a builtin out of line. What
// stands there has no position of its own, so that the table of positions gives it that of
// the code in front of it, which may be of another function. It goes back to the middle of
// the allocation, which has one (AssembleCode of AllocateRaw in V8's
// src/compiler/memory-lowering.cc of 10.2 to 12.4; the size is in rdx by AllocateDescriptor
// in src/codegen/x64/interface-descriptors-x64-inl.h).

const (
	// allocCall is the bytes of mov edx, imm32 and call rel32.
	allocCall = 10
	// maxObject bounds the size of an object that code has room for at once, in bytes.
	maxObject = 128 << 10
	// afterAlloc is how many bytes are looked at behind the call, and maxAfter how many
	// instructions: registers are taken back, and it goes on.
	afterAlloc = 96
	maxAfter   = 16
)

// place is where in c's instructions p is, in bytes, for its table of positions.
func (w *Walker) place(p *Place, c *code) int {
	off := int(p.PC - behind(p) - c.start)
	if p.Exact || p.PC-c.start < allocCall || p.PC >= c.end {
		return off
	}
	buf := w.h.buf[:allocCall+min(afterAlloc, c.end-p.PC)]
	if w.h.read(buf, p.PC-allocCall) != nil {
		return off
	}
	if to, ok := afterSlowAlloc(buf, p.PC-c.start); ok {
		return to
	}
	return off
}

// afterSlowAlloc tells where code goes on, in bytes from its beginning, after the call of
// the builtin for an allocation that returns to pc. b is the code from allocCall bytes
// before that on; ok is false where that is no such call.
func afterSlowAlloc(b []byte, pc uint64) (to int, ok bool) {
	const movEDX, call = 0xba, 0xe8
	if len(b) < allocCall || b[0] != movEDX || b[5] != call {
		return 0, false
	}
	if size := binary.LittleEndian.Uint32(b[1:]); size == 0 || size%8 != 0 || size > maxObject {
		return 0, false
	}
	b = b[allocCall:]
	at := int64(pc)
	for range maxAfter {
		inst, err := x86asm.Decode(b, 64)
		if err != nil {
			return 0, false
		}
		b, at = b[inst.Len:], at+int64(inst.Len)
		switch inst.Op {
		case x86asm.JMP:
			rel, is := inst.Args[0].(x86asm.Rel)
			if at += int64(rel); !is || at < 0 || at >= int64(pc) {
				return 0, false
			}
			return int(at), true
		case x86asm.MOV, x86asm.LEA, x86asm.ADD, x86asm.MOVSD_XMM, x86asm.MOVUPS, x86asm.MOVAPS:
		default:
			return 0, false
		}
	}
	return 0, false
}
