package target

import "github.com/sliverprof/sliver/stack"

const (
	regWords        = armWords
	nativeSP        = armSP // DWARF
	nativeKeepsMask = false
	nativePollNr    = 73    // ppoll
	ntTLS           = 0x401 // NT_ARM_TLS
)

func nativeKind(nr int32) kind { return kindARM64(nr) }

// nativeRA does nothing: the machine lacks a return address column.
func nativeRA(*stack.Regs, uint64) {}

//go:nosplit
//go:norace
func nativeStackPointer(r *[regWords]uint64) uint64 { return r[armSP] }

// prepare records the call that the thread is blocked in: the registers at the stop lack the
// call's first argument, which is required to restart it.
func (t *Thread) prepare(w *Window) error {
	b := &w.raw.before
	_, pc, sp, err := t.Syscall(&b.call)
	b.pc, b.sp = pc, sp
	return err
}

// putBack writes the registers so that the call is made again.
//
//go:nosplit
//go:norace
func (w *Window) putBack(tid uintptr) int {
	if w.raw.wantTLS {
		w.getTLS(tid)
	}
	if w.raw.regs[0] != minusEINTR {
		return putNothing
	}
	// The sample shows the thread as it was found, so the change is undone in the copy.
	x0, pc := w.raw.regs[0], w.raw.regs[armPC]
	how := rewindARM64(&w.raw.regs, &w.raw.before)
	if how == putDone && w.setRegs(tid) != 0 {
		how = putLost
	}
	w.raw.regs[0], w.raw.regs[armPC] = x0, pc
	return how
}

// fill translates the registers after the thread was released.
func (w *Window) fill() {
	RegsARM64(regBytes(&w.raw.regs), &w.Regs)
	w.Call = callARM64(&w.Regs, &w.raw.before)
}

// perfRegsMask selects the registers of a perf sample (arch/arm64/include/uapi/asm/perf_regs.h):
// x0 to x30, sp, pc.
const (
	perfRegsMask = 1<<33 - 1
	perfRegsLen  = 33
)

// perfRegs fills in the registers of a perf sample.
func perfRegs(p *[perfRegsLen]uint64, r *stack.Regs) {
	for i := range armSP + 1 {
		r.Set(i, p[i])
	}
	r.PC = p[armPC]
}

// nativeCut reports whether the stop interrupted a system call. It misses a call that the kernel
// restarts: the program counter is back at the call before the stop.
//
//go:nosplit
//go:norace
func nativeCut(r *[regWords]uint64) bool { return r[0] == minusEINTR }

// nativeResult returns the number of the system call at whose end the thread may have stopped, as
// in x8, and its result.
func nativeResult(r *[regWords]uint64) (nr int32, result int64) {
	if r[8] > maxCall {
		return -1, 0
	}
	return int32(r[8]), int64(r[0])
}

// Numbers of system calls that sleep until a time. This machine lacks poll(2).
const (
	nativeNanosleep      = 101
	nativeClockNanosleep = 115
	nativePoll           = -2
	nativeFutex          = 98
)
