package kernel

import "github.com/cilium/ebpf/asm"

const supported = true

// Offsets in struct user_pt_regs (arch/arm64/include/uapi/asm/ptrace.h).
const (
	regG  = 28 * 8 // X28: the goroutine
	regLR = 30 * 8
	regSP = 31 * 8
	regPC = 32 * 8
)

// pushed is how far the frame's address is above SP at an entry or exit.
const pushed = 0

// returnAddress takes the link register.
func returnAddress() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R1, asm.R6, regLR, asm.DWord),
		asm.StoreMem(asm.RFP, atRet, asm.R1, asm.DWord),
	}
}

// regKept are X20 and X19, in which Go's functions that call the vDSO keep the stack pointer (gopcln's keptSP).
var regKept = [2]int32{20 * 8, 19 * 8}
