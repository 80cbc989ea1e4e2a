package kernel

import "github.com/cilium/ebpf/asm"

const supported = true

// Offsets in struct pt_regs (arch/x86/include/asm/ptrace.h).
const (
	regG  = 8   // R14: the goroutine
	regPC = 128 // RIP
	regSP = 152 // RSP
)

// pushed is how far the frame's address is above SP at an entry or exit: the return address.
const pushed = 8

// returnAddress reads the word on top of the stack, R8; it stays 0 if that cannot be read.
func returnAddress() asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, atRet),
		asm.Mov.Imm(asm.R2, 8),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.FnProbeReadUser.Call(),
	}
}

// regKept are R12 and RBX, in which Go's functions that call the vDSO keep the stack pointer (gopcln's keptSP).
var regKept = [2]int32{24, 40}
