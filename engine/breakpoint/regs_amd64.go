package breakpoint

import (
	"math/bits"

	"github.com/sliverprof/sliver/calls"
)

// Numbers of registers (arch/x86/include/uapi/asm/perf_regs.h).
const (
	regSP  = 7
	regR8  = 16
	regR14 = 22
	regR15 = 23
	// general are the registers from RAX to RSP and from R8 to R15.
	general = 1<<(regSP+1) - 1 | 1<<(regR15+1) - 1<<regR8
)

const (
	maxRegs      = 16
	wordsOfStack = 1 // at a function's first instruction, and at its exits, the return address is on top
)

func regsMask(p *Probe) uint64 {
	switch {
	case p.All:
		return general
	case p.Go:
		return 1<<regSP | 1<<regR14
	}
	return 1 << regSP
}

// fill completes a hit. At the first instruction and at a return, the return address is on top of
// the stack, so the frame is at SP+8. Go keeps the goroutine in R14 (cmd/compile/abi-internal.md).
func fill(h *calls.Hit, p *Probe, regs *[maxRegs]uint64, top uint64) {
	reg := func(n int) uint64 { return regs[bits.OnesCount64(regsMask(p)&(1<<n-1))] } // records have them by number
	h.CFA, h.Ret = reg(regSP)+8, top
	if p.Go {
		h.Task, h.Moves = reg(regR14), true
	}
}
