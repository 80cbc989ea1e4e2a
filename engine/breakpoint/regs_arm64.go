package breakpoint

import "github.com/sliverprof/sliver/calls"

// Numbers of registers (arch/arm64/include/uapi/asm/perf_regs.h).
const (
	regX28 = 28
	regLR  = 30
	regSP  = 31
)

const (
	maxRegs      = 3
	wordsOfStack = 0
)

func regsMask(goCode bool) uint64 {
	if goCode {
		return 1<<regX28 | 1<<regLR | 1<<regSP
	}
	return 1<<regLR | 1<<regSP
}

func countRegs(goCode bool) int {
	if goCode {
		return 3
	}
	return 2
}

// fill completes a hit. At the first instruction and at a return, SP is as the caller had it. Go
// keeps the goroutine in R28 (cmd/compile/abi-internal.md).
func fill(h *calls.Hit, regs *[maxRegs]uint64, _ uint64, goCode bool) {
	i := 0
	if goCode {
		h.Task, h.Moves = regs[0], true
		i = 1
	}
	h.CFA = regs[i+1]
	if h.Where == calls.Enter {
		h.Ret = regs[i]
	}
}
