package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nanotime is CLOCK_MONOTONIC without a system call (by the vDSO), also accessible by linkname
// because other modules use it.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

// preadNow reads data that is already in memory and never waits for a disk, without notifying the
// Go scheduler.
func preadNow(fd int, b []byte) (int, syscall.Errno) {
	n, errno := raw6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// fstatNow is fstat of a file of /proc, in the same way.
func fstatNow(fd int, st *unix.Stat_t) syscall.Errno {
	_, errno := raw6(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(st)), 0, 0, 0, 0)
	return errno
}
