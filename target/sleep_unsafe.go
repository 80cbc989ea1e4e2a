package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nanotime is CLOCK_MONOTONIC without a system call (the vDSO's way), also open to
// linknames for being used by others.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

// preadNow reads what is in memory already and never waits for a disk: without
// the Go scheduler's knowledge.
func preadNow(fd int, b []byte) (int, syscall.Errno) {
	n, errno := raw6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
