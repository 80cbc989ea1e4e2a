package target

import (
	"syscall"
	"unsafe"
)

// Requests of ptrace(2) that only the keeper makes (linux/ptrace.h).
const (
	ptraceCont          = 7
	ptraceSyscall       = 24
	ptraceSetOptions    = 0x4200
	ptraceGetEventMsg   = 0x4201
	ptraceGetSigMask    = 0x420a
	ptraceSetSigMask    = 0x420b
	ptraceGetRseqConfig = 0x420f
)

// traceCall is ptrace(2).
func traceCall(request, tid, addr, data uintptr) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, request, tid, addr, data, 0, 0)
	return errno
}

// setFair undoes setFIFO for the calling thread.
func setFair() {
	const other = 0 // SCHED_OTHER
	priority := int32(0)
	syscall.RawSyscall6(syscall.SYS_SCHED_SETSCHEDULER, 0, other, uintptr(unsafe.Pointer(&priority)), 0, 0, 0)
}

// getBlock reads the registers of a stopped thread, setBlock writes them.
func getBlock(tid int, r *[regWords]uint64) syscall.Errno {
	v := ownVec{uintptr(unsafe.Pointer(r)), regWords * 8}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, ptraceGetRegSet, uintptr(tid), ntPRStatus, uintptr(unsafe.Pointer(&v)), 0, 0)
	if errno == 0 && v.len != regWords*8 {
		return syscall.EPROTO // a 32-bit thread
	}
	return errno
}

func setBlock(tid int, r *[regWords]uint64) syscall.Errno {
	v := ownVec{uintptr(unsafe.Pointer(r)), regWords * 8}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, ptraceSetRegSet, uintptr(tid), ntPRStatus, uintptr(unsafe.Pointer(&v)), 0, 0)
	return errno
}

// getBlocked reads the signal mask of a stopped thread (bit n-1: signal n), setBlocked
// writes it.
func getBlocked(tid int) (mask uint64, errno syscall.Errno) {
	_, _, errno = syscall.RawSyscall6(syscall.SYS_PTRACE, ptraceGetSigMask, uintptr(tid), 8, uintptr(unsafe.Pointer(&mask)), 0, 0)
	return mask, errno
}

func setBlocked(tid int, mask uint64) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, ptraceSetSigMask, uintptr(tid), 8, uintptr(unsafe.Pointer(&mask)), 0, 0)
	return errno
}

// eventMessage reads what an event stop is about: of a clone the new number.
func eventMessage(tid int) (msg uint64, errno syscall.Errno) {
	_, _, errno = syscall.RawSyscall6(syscall.SYS_PTRACE, ptraceGetEventMsg, uintptr(tid), 0, uintptr(unsafe.Pointer(&msg)), 0, 0)
	return msg, errno
}

// rseqArea returns where the thread's restartable sequences are announced, 0 if it has
// none (linux/rseq.h, struct rseq; since Linux 5.13).
func rseqArea(tid int) (addr uint64, errno syscall.Errno) {
	var c struct {
		addr             uint64
		size, sig, flags uint32
		pad              uint32
	}
	_, _, errno = syscall.RawSyscall6(syscall.SYS_PTRACE, ptraceGetRseqConfig, uintptr(tid), unsafe.Sizeof(c), uintptr(unsafe.Pointer(&c)), 0, 0)
	return c.addr, errno
}

// signalCode returns si_code of the signal at which the thread has stopped: above 0 where
// the kernel sent it for what the thread did. 0: unknown.
func signalCode(tid int) int32 {
	const getSigInfo = 0x4202
	var info [16]uint64
	if traceCall(getSigInfo, uintptr(tid), 0, uintptr(unsafe.Pointer(&info))) != 0 {
		return 0
	}
	return int32(info[1])
}
