package breakpoint

import "github.com/sliverprof/sliver/calls"

// Numbers of registers (arch/x86/include/uapi/asm/perf_regs.h).
const (
	regSP  = 7
	regR14 = 22
)

const (
	maxRegs      = 2
	wordsOfStack = 1 // at a function's first instruction the return address is on top
)

func regsMask(goCode bool) uint64 {
	if goCode {
		return 1<<regSP | 1<<regR14
	}
	return 1 << regSP
}

func countRegs(goCode bool) int {
	if goCode {
		return 2
	}
	return 1
}

// fill completes a hit. At the first instruction and at a return, the return address is on top of
// the stack, so the frame is at SP+8. Go keeps the goroutine in R14 (cmd/compile/abi-internal.md).
func fill(h *calls.Hit, regs *[maxRegs]uint64, top uint64, goCode bool) {
	h.CFA = regs[0] + 8
	if h.Where == calls.Enter {
		h.Ret = top
	}
	if goCode {
		h.Task, h.Moves = regs[1], true
	}
}
