package gopcln

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// SignalContext replaces regs by the registers that a signal interrupted. cfa is the SP above the
// handler's return address, where the kernel put its frame: on amd64 a ucontext, on arm64 a siginfo
// followed by it. If memory holds no such frame, the result is false and regs are unchanged. The
// thread pointer is kept.
//
// Layouts: arch/x86/include/uapi/asm/sigcontext.h and ucontext.h,
// arch/arm64/include/uapi/asm/sigcontext.h and kernel/signal.c of Linux 6.12.
func SignalContext(arch rule.Arch, cfa uint64, mem rule.Words, regs *stack.Regs) bool {
	n := *regs
	n.Known = 0
	switch {
	case cfa < minPointer || cfa%8 != 0:
		return false
	case arch == rule.ARM64:
		if !contextARM64(cfa, mem, &n) {
			return false
		}
	case !contextAMD64(cfa, mem, &n):
		return false
	}
	if n.PC == 0 && n.R[arch.SP()] == 0 {
		return false
	}
	*regs = n
	return true
}

const (
	gregs = 40 // amd64: uc_mcontext

	mcontext = 128 + 176    // arm64: of the ucontext after the siginfo
	xregs    = mcontext + 8 // after fault_address
	records  = mcontext + 288
)

// contextSP returns the offset of the interrupted SP from the CFA.
func contextSP(arch rule.Arch) uint64 {
	if arch == rule.ARM64 {
		return xregs + 31*8
	}
	return gregs + 15*8
}

func contextAMD64(ctx uint64, mem rule.Words, n *stack.Regs) bool {
	const (
		link     = 8   // uc_link, which the kernel sets to 0
		rip      = 16  // index of gregs
		selector = 18  // cs, gs, fs, ss
		user     = 0x3 // privilege of user code
	)
	if w, ok := mem.Word(ctx + link); !ok || w != 0 {
		return false
	}
	if w, ok := mem.Word(ctx + gregs + 8*selector); !ok || w&3 != user {
		return false
	}
	// DWARF numbers of r8 … r15, di, si, bp, bx, dx, ax, cx, sp, ip.
	for i, reg := range [...]int{8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, rip} {
		w, ok := mem.Word(ctx + gregs + 8*uint64(i))
		if !ok {
			return false
		}
		if reg == rip {
			n.PC = w
		} else {
			n.Set(reg, w)
		}
	}
	return true
}

func contextARM64(frame uint64, mem rule.Words, n *stack.Regs) bool {
	const fpsimd = 0x46508001 // FPSIMD_MAGIC, the first record
	if w, ok := mem.Word(frame + records); !ok || uint32(w) != fpsimd {
		return false
	}
	for i := 0; i <= 31; i++ { // x0 … x30, sp
		w, ok := mem.Word(frame + xregs + 8*uint64(i))
		if !ok {
			return false
		}
		n.Set(i, w)
	}
	w, ok := mem.Word(frame + xregs + 32*8)
	n.PC = w
	return ok
}
