package target

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/stack"
)

// The register blocks of NT_PRSTATUS as both machines define them, read by pure functions so
// that each is tested on the other. Words are 8 bytes, little endian.

// amd64: struct user_regs_struct (arch/x86/include/asm/user_64.h).
const (
	amdWords   = 27
	amdR10     = 7
	amdRAX     = 10
	amdOrigRAX = 15
	amdRIP     = 16
	amdRSP     = 19
	amdFSBase  = 21
)

// amdDWARF gives the word of DWARF register i (System V ABI AMD64, figure 3.36: rax rdx rcx rbx
// rsi rdi rbp rsp r8 … r15, return address).
var amdDWARF = [17]int{10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, amdRIP}

// amdArgs gives the words of a call's arguments: rdi rsi rdx r10 r8 r9.
var amdArgs = [6]int{14, 13, 12, amdR10, 9, 8}

// RegsAMD64 parses an amd64 register block of at least 27 words.
func RegsAMD64(b []byte, r *stack.Regs, c *stack.Call) bool {
	if len(b) < amdWords*8 {
		return false
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[i*8:]) }
	r.Known = 0
	for i, w := range amdDWARF {
		r.Set(i, word(w))
	}
	r.PC, r.TLS = word(amdRIP), word(amdFSBase)
	*c = stack.Call{Nr: -1}
	if nr := int64(word(amdOrigRAX)); nr >= 0 && nr <= maxCall {
		c.Nr = int32(nr)
		for i, w := range amdArgs {
			c.Args[i] = word(w)
		}
	}
	return true
}

// maxCall is above every system call number, and below x32's.
const maxCall = 1<<16 - 1

// arm64: struct user_pt_regs (arch/arm64/include/uapi/asm/ptrace.h): x0 … x30, sp, pc, pstate.
const (
	armWords = 34
	armSP    = 31
	armPC    = 32
)

// RegsARM64 parses an arm64 register block of at least 34 words. The block does not show whether
// the thread was in a system call: see callARM64.
func RegsARM64(b []byte, r *stack.Regs) bool {
	if len(b) < armWords*8 {
		return false
	}
	r.Known = 0
	for i := range armSP + 1 {
		r.Set(i, binary.LittleEndian.Uint64(b[i*8:]))
	}
	r.PC = binary.LittleEndian.Uint64(b[armPC*8:])
	return true
}

// callARM64 returns the call that the thread was in, given its /proc entry just before: the same
// call, if number, stack and place agree. At the stop the PC is after the svc instruction, or on
// it if the kernel has already decided to restart.
func callARM64(r *stack.Regs, b *callBefore) stack.Call {
	if b.call.Nr >= 0 && r.R[8] == uint64(b.call.Nr) && r.R[armSP] == b.sp && (r.PC == b.pc || r.PC == b.pc-4) {
		return b.call
	}
	return stack.Call{Nr: -1}
}
