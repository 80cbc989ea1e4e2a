package jvm

import "golang.org/x/arch/x86/x86asm"

const (
	// maxAhead bounds the instructions that are followed from a place on, and
	// maxPrologue those from a method's entry to a place.
	maxAhead    = 32
	maxPrologue = 64
	// maxInst is the most bytes of an instruction (Intel SDM volume 2, 2.3.11).
	maxInst = 15
)

// popped tells how far above the stack pointer the return address is, where the code
// at its argument leads to a return without a jump: an epilogue, or what stands right
// before one. ok is false where it does not.
func popped(code []byte) (depth uint64, ok bool) {
	var d int64
	for range maxAhead {
		if len(code) >= 3 && code[0] == 0xc5 && code[1] == 0xf8 && code[2] == 0x77 {
			code = code[3:] // vzeroupper, which the decoder does not know
		}
		in, err := x86asm.Decode(code, 64)
		if err != nil || in.Len == 0 || in.Op == 0 {
			return 0, false
		}
		switch in.Op {
		case x86asm.RET:
			if d < 0 || in.Args[0] != nil {
				return 0, false
			}
			return uint64(d), true
		case x86asm.JMP, x86asm.CALL, x86asm.LEAVE, x86asm.INT, x86asm.UD2, x86asm.HLT, x86asm.ENTER:
			return 0, false
		}
		n, known := moves(&in)
		if !known {
			return 0, false
		}
		d += n
		code = code[in.Len:]
	}
	return 0, false
}

// pushed tells how far above the stack pointer the return address is at the end of
// code, which begins where a function is entered. ok is false where that cannot be
// told.
func pushed(code []byte) (depth uint64, ok bool) {
	var d int64
	for n := 0; len(code) > 0; n++ {
		in, err := x86asm.Decode(code, 64)
		if err != nil || in.Len == 0 || in.Op == 0 || in.Len > len(code) || n == maxPrologue {
			return 0, false
		}
		switch in.Op {
		case x86asm.CALL, x86asm.RET, x86asm.LEAVE, x86asm.ENTER:
			return 0, false
		}
		by, known := moves(&in)
		if !known {
			return 0, false
		}
		d -= by
		code = code[in.Len:]
	}
	if d < 0 || d > 8*maxFrameWords {
		return 0, false
	}
	return uint64(d), true
}

// moves is by how much an instruction raises the stack pointer; known is false where
// it sets it to something else.
func moves(in *x86asm.Inst) (by int64, known bool) {
	switch in.Op {
	case x86asm.PUSH, x86asm.PUSHFQ:
		return -8, true
	case x86asm.POP:
		return 8, in.Args[0] != x86asm.RSP
	case x86asm.POPFQ:
		return 8, true
	}
	if in.Args[0] != x86asm.RSP {
		return 0, true
	}
	n, imm := in.Args[1].(x86asm.Imm)
	switch {
	case in.Op == x86asm.CMP, in.Op == x86asm.TEST:
		return 0, true
	case in.Op == x86asm.ADD && imm:
		return int64(n), true
	case in.Op == x86asm.SUB && imm:
		return -int64(n), true
	case in.Op == x86asm.LEA:
		if m, ok := in.Args[1].(x86asm.Mem); ok && m.Base == x86asm.RSP && m.Index == 0 {
			return m.Disp, true
		}
	}
	return 0, false
}

// afterCall reports whether code, which ends where a return address points to, may
// end with a call.
func afterCall(code []byte) bool {
	n := len(code)
	if n >= 5 && code[n-5] == 0xe8 {
		return true // call rel32
	}
	// call r/m: FF /2 with up to 5 bytes of address, a REX prefix before it at most.
	for _, k := range [...]int{2, 3, 4, 6, 7} {
		if n >= k && code[n-k] == 0xff && code[n-k+1]>>3&7 == 2 {
			if in, err := x86asm.Decode(code[n-k:], 64); err == nil && in.Len == k && in.Op == x86asm.CALL {
				return true
			}
		}
	}
	return false
}
