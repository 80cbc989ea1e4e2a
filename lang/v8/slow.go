package v8

import (
	"encoding/binary"

	"golang.org/x/arch/x86/x86asm"
)

// If the heap has too little room for an object, optimized code calls a builtin out of line. This
// code has no position of its own, so the position table gives it the position of the code before
// it, which may belong to another function. It jumps back into the middle of the allocation, which
// has a position (AssembleCode of AllocateRaw in V8's src/compiler/memory-lowering.cc of 10.2 to
// 12.4; the size is in rdx by AllocateDescriptor in
// src/codegen/x64/interface-descriptors-x64-inl.h).

const (
	// allocCall is the size of mov edx, imm32 and call rel32, in bytes.
	allocCall = 10
	// maxObject bounds the size of an object that code allocates inline, in bytes.
	maxObject = 128 << 10
	// afterAlloc bounds the bytes that are read after the call, and maxAfter the instructions: they
	// restore registers and jump back.
	afterAlloc = 96
	maxAfter   = 16
)

// place returns the offset of p in c's instructions, in bytes, for the position table.
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

// afterSlowAlloc returns the offset at which code continues, in bytes from its beginning, after a
// call of the allocation builtin that returns to pc. b is the code from allocCall bytes before pc
// on. ok is false for other code.
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
