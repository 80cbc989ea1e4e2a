//go:build race

package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sleep and wait are those of block_unsafe.go with plain system calls. The race detector tracks
// calls through the P of the Go scheduler, which the brackets there give up.

func sleep(fd *unix.PollFd, fds int, ts *[2]int64) (n uintptr, errno syscall.Errno) {
	n, _, errno = syscall.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(fd)), uintptr(fds), uintptr(unsafe.Pointer(ts)), 0, 0, 0)
	return n, errno
}

func wait(futex *uint32, v uint32, ts *[2]int64) {
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(futex)), futexWait, uintptr(v), uintptr(unsafe.Pointer(ts)), 0, 0)
}

// awake has nothing to count: see anchor_unsafe.go.
func awake() {}
