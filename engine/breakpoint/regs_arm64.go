package breakpoint

import (
	"math/bits"

	"github.com/sliverprof/sliver/calls"
)

// Numbers of registers (arch/arm64/include/uapi/asm/perf_regs.h).
const (
	regX28 = 28
	regLR  = 30
	regSP  = 31
)

const (
	maxRegs      = regSP + 1
	wordsOfStack = 0
)

func regsMask(p *Probe) uint64 {
	switch {
	case p.All:
		return 1<<maxRegs - 1
	case p.Go:
		return 1<<regX28 | 1<<regLR | 1<<regSP
	}
	return 1<<regLR | 1<<regSP
}

// fill completes a hit. At the first instruction and at a return, SP is as the caller had it. Go
// keeps the goroutine in R28 (cmd/compile/abi-internal.md).
func fill(h *calls.Hit, p *Probe, regs *[maxRegs]uint64, _ uint64) {
	reg := func(n int) uint64 { return regs[bits.OnesCount64(regsMask(p)&(1<<n-1))] } // records have them by number
	h.CFA = reg(regSP)
	if p.Go {
		h.Task, h.Moves = reg(regX28), true
	}
	if p.Where == calls.Enter || p.Go {
		h.Ret = reg(regLR)
	}
}
