//go:build arm64

package target

import (
	"syscall"
	"unsafe"
)

// setRegs writes the whole register block.
//
//go:nosplit
//go:norace
func (w *Window) setRegs(tid uintptr) syscall.Errno {
	w.raw.regVec.base = uintptr(unsafe.Pointer(&w.raw.regs))
	w.raw.regVec.len = regWords * 8
	_, errno := raw6(syscall.SYS_PTRACE, ptraceSetRegSet, tid, ntPRStatus, uintptr(unsafe.Pointer(&w.raw.regVec)), 0, 0)
	return errno
}

// getTLS reads TPIDR_EL0, which is constant for the thread's life, so only the first window reads
// it.
//
//go:nosplit
//go:norace
func (w *Window) getTLS(tid uintptr) {
	w.raw.regVec.base = uintptr(unsafe.Pointer(&w.raw.tls))
	w.raw.regVec.len = 8
	_, errno := raw6(syscall.SYS_PTRACE, ptraceGetRegSet, tid, ntTLS, uintptr(unsafe.Pointer(&w.raw.regVec)), 0, 0)
	w.raw.gotTLS = errno == 0
	w.raw.wantTLS = false
}
