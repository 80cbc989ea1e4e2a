package target

import (
	"syscall"

	"github.com/sliverprof/sliver/stack"
)

const (
	regWords        = amdWords
	nativeSP        = 7 // DWARF
	nativeKeepsMask = true
	nativePollNr    = 271 // ppoll
)

func nativeKind(nr int32) kind { return kindAMD64(nr) }

// nativeRA fills the return address column, which is the PC itself.
func nativeRA(r *stack.Regs, pc uint64) { r.Set(16, pc) }

//go:nosplit
//go:norace
func nativeStackPointer(r *[regWords]uint64) uint64 { return r[amdRSP] }

// prepare does nothing: the registers at the stop are sufficient.
func (t *Thread) prepare(*Window) error { return nil }

// putBack writes one register: the result.
//
//go:nosplit
//go:norace
func (w *Window) putBack(tid uintptr) int {
	k, cut := cutAMD64(w.raw.regs[amdRAX], w.raw.regs[amdOrigRAX])
	if !cut {
		return putNothing
	}
	if !k.putBackable() {
		return putLost
	}
	_, errno := raw6(syscall.SYS_PTRACE, ptracePokeUser, tid, amdRAX*8, uintptr(minusERESTARTNOHAND), 0, 0)
	if errno != 0 {
		return putLost
	}
	return putDone
}

// fill translates the registers after the thread was released.
func (w *Window) fill() {
	RegsAMD64(regBytes(&w.raw.regs), &w.Regs, &w.Call)
}

// perfRegsMask selects the registers of a perf sample (arch/x86/include/uapi/asm/perf_regs.h):
// ax, bx, cx, dx, si, di, bp, sp, ip, and, from 16 on, r8 to r15.
const (
	perfRegsMask = 0x1ff | 0xff<<16
	perfRegsLen  = 17
)

// perfRegs fills in the registers of a perf sample.
func perfRegs(p *[perfRegsLen]uint64, r *stack.Regs) {
	for i, dwarf := range [...]int{0, 3, 2, 1, 4, 5, 6, 7} {
		r.Set(dwarf, p[i])
	}
	for i := range 8 {
		r.Set(8+i, p[9+i])
	}
	r.PC = p[8]
	nativeRA(r, r.PC)
}

// nativeCut reports whether the stop interrupted a system call: its result is EINTR, or one of
// the kernel's ERESTART codes, 512 to 516 (include/linux/errno.h).
//
//go:nosplit
//go:norace
func nativeCut(r *[regWords]uint64) bool {
	code := -r[amdRAX]
	return r[amdOrigRAX] <= maxCall && (r[amdRAX] == minusEINTR || code >= 512 && code <= 516)
}

// nativeResult returns the number of the system call at whose end the thread stopped (-1: none)
// and its result.
func nativeResult(r *[regWords]uint64) (nr int32, result int64) {
	if r[amdOrigRAX] > maxCall {
		return -1, 0
	}
	return int32(r[amdOrigRAX]), int64(r[amdRAX])
}

// Numbers of system calls that sleep until a time.
const (
	nativeNanosleep      = 35
	nativeClockNanosleep = 230
	nativePoll           = 7
	nativeFutex          = 202
)
