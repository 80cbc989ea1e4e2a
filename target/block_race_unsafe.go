//go:build race

package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sleep and wait as in block_unsafe.go, by plain system calls: the race detector
// follows calls by what belongs to the place in the Go scheduler that they give
// up there.

func sleep(fd *unix.PollFd, ts *[2]int64) (n uintptr, errno syscall.Errno) {
	n, _, errno = syscall.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(fd)), 1, uintptr(unsafe.Pointer(ts)), 0, 0, 0)
	return n, errno
}

func wait(futex *uint32, v uint32, ts *[2]int64) {
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(futex)), futexWait, uintptr(v), uintptr(unsafe.Pointer(ts)), 0, 0)
}
