package jvm

import "golang.org/x/arch/x86/x86asm"

const (
	// maxAhead bounds the instructions that are followed from a place. maxPrologue bounds those from
	// a method's entry to a place.
	maxAhead    = 32
	maxPrologue = 64
	// maxRestored bounds the instructions that restore registers after a call on a slow path: 16
	// integer registers, 32 vectors, 8 masks.
	maxRestored = 80
	// maxInst bounds the length of an instruction, in bytes (Intel SDM volume 2, 2.3.11).
	maxInst = 15
)

// vex returns the length of an instruction with a VEX or EVEX prefix (Intel SDM volume 2, 2.3 and
// 2.7), which x86asm does not decode. It returns 0 for other or truncated instructions. None of
// these instructions moves the stack pointer.
func vex(code []byte) int {
	var opcodes byte // which table the opcode is of: 1 for 0F, 3 for 0F 3A
	at := 0
	switch {
	case len(code) > 4 && code[0] == 0xc4:
		opcodes, at = code[1]&31, 3
	case len(code) > 2 && code[0] == 0xc5:
		opcodes, at = 1, 2
	case len(code) > 5 && code[0] == 0x62:
		opcodes, at = code[1]&7, 4
	default:
		return 0
	}
	op := code[at]
	if at++; opcodes == 1 && op == 0x77 {
		return at // vzeroupper and vzeroall end here
	}
	if at >= len(code) {
		return 0
	}
	m := code[at]
	mod, rm := m>>6, m&7
	if at++; mod != 3 && rm == 4 {
		if at >= len(code) {
			return 0
		}
		if code[at]&7 == 5 && mod == 0 {
			at += 4
		}
		at++
	}
	switch {
	case mod == 0 && rm == 5, mod == 2:
		at += 4
	case mod == 1:
		at++
	}
	if opcodes == 3 || opcodes == 1 && (op >= 0x70 && op <= 0x73 || op == 0xc2 || op >= 0xc4 && op <= 0xc6) {
		at++
	}
	if at > len(code) {
		return 0
	}
	return at
}

// ending is how a piece of code ends.
type ending uint8

const (
	endsUnknown ending = iota
	endsReturn
	endsJump   // to way.target
	endsBranch // to an address in a register or memory
)

// way is the effect of code up to its end, if no conditional jump is taken.
type way struct {
	end    ending
	rise   int64  // of the stack pointer
	popped int64  // rise up to the last pop; -1: none
	target uint64 // of endsJump
}

// follow follows the code at pc to its end. If through is true, it assumes that calls return with
// an unchanged stack pointer, and it follows forward jumps within the code.
func follow(code []byte, pc uint64, limit int, through bool) way {
	w := way{popped: -1}
	for range limit {
		if n := vex(code); n > 0 {
			code, pc = code[n:], pc+uint64(n)
			continue
		}
		in, err := x86asm.Decode(code, 64)
		if err != nil || in.Len == 0 || in.Op == 0 {
			return w
		}
		switch in.Op {
		case x86asm.RET:
			if in.Args[0] == nil {
				w.end = endsReturn
			}
			return w
		case x86asm.JMP:
			rel, direct := in.Args[0].(x86asm.Rel)
			if !direct {
				w.end = endsBranch
				return w
			}
			if through && rel >= 0 && int(rel) < len(code)-in.Len {
				skip := in.Len + int(rel)
				code, pc = code[skip:], pc+uint64(skip)
				continue
			}
			w.end, w.target = endsJump, pc+uint64(in.Len)+uint64(int64(rel))
			return w
		case x86asm.CALL:
			if !through {
				return w
			}
		case x86asm.LEAVE, x86asm.INT, x86asm.UD2, x86asm.HLT, x86asm.ENTER:
			return w
		default:
			n, known := moves(&in)
			if !known {
				return w
			}
			if in.Op == x86asm.POP {
				w.popped = w.rise
			}
			w.rise += n
		}
		code, pc = code[in.Len:], pc+uint64(in.Len)
	}
	return w
}

// popped returns the distance from the stack pointer up to the return address if code leads to a
// return without a jump: an epilogue, or the code right before one. ok is false otherwise.
func popped(code []byte) (depth uint64, ok bool) {
	w := follow(code, 0, maxAhead, false)
	if w.end != endsReturn || w.rise < 0 {
		return 0, false
	}
	return uint64(w.rise), true
}

// pushed returns the distance from the stack pointer up to the return address at the end of code,
// which begins at a function's entry. ok is false if it cannot be computed, for which a jump is enough
// unless past is set.
func pushed(code []byte, past bool) (depth uint64, ok bool) {
	var d int64
	for n := 0; len(code) > 0; n++ {
		if k := vex(code); k > 0 {
			code = code[k:]
			continue
		}
		in, err := x86asm.Decode(code, 64)
		if err != nil || in.Len == 0 || in.Op == 0 || in.Len > len(code) || n == maxPrologue {
			return 0, false
		}
		switch in.Op {
		case x86asm.CALL, x86asm.RET, x86asm.LEAVE, x86asm.ENTER:
			return 0, false
		}
		if _, jump := in.Args[0].(x86asm.Rel); jump && !past {
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

// keeps reports whether code, which begins at a function's entry, has stored rbp.
func keeps(code []byte) bool {
	for len(code) > 0 {
		in, err := x86asm.Decode(code, 64)
		if err != nil || in.Len == 0 || in.Len > len(code) {
			return true
		}
		switch m, mem := in.Args[0].(x86asm.Mem); {
		case in.Op == x86asm.PUSH && in.Args[0] == x86asm.RBP:
			return true
		case in.Op == x86asm.MOV && mem && m.Base == x86asm.RSP && in.Args[1] == x86asm.RBP:
			return true
		}
		code = code[in.Len:]
	}
	return false
}

// moves returns by how much an instruction raises the stack pointer. known is false if it sets the
// stack pointer to another value.
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

// afterCall reports whether code, which ends at a return address, may end with a call.
func afterCall(code []byte) bool {
	n := len(code)
	if n >= 5 && code[n-5] == 0xe8 {
		return true // call rel32
	}
	// call r/m: FF /2 with up to 5 bytes of address, and at most a REX prefix.
	for _, k := range [...]int{2, 3, 4, 6, 7} {
		if n >= k && code[n-k] == 0xff && code[n-k+1]>>3&7 == 2 {
			if in, err := x86asm.Decode(code[n-k:], 64); err == nil && in.Len == k && in.Op == x86asm.CALL {
				return true
			}
		}
	}
	return false
}
