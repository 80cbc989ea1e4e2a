package kernel

import "golang.org/x/sys/unix"

// regBlock is how much of struct pt_regs is read (arch/arm64/include/asm/ptrace.h): up to orig_x0,
// since x0 has the result when a call ends.
const regBlock = 280

// regArgs are the offsets of a system call's arguments.
var regArgs = [6]int32{272, 8, 16, 24, 32, 40}

// In struct bpf_perf_event_data: bytes of registers, and the address of a page fault. regResult is the
// offset of a call's result, which is argument 0 where the two have one register.
const (
	eventRegs = 272
	eventAddr = 280
	regResult = 0
)

// taskTLSPath is empty: TPIDR_EL0 is saved only when another thread runs.
var taskTLSPath []string

var ioCallsArch = []ioCall{
	{unix.SYS_FSTATAT, "newfstatat", classCall | classPath1},
}
