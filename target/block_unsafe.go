//go:build !race

package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// enterBlocking and exitBlocking bracket a system call that is sure to sleep: the goroutine gives
// up its place in the Go scheduler (its P) at once. A plain system call keeps it until the
// runtime's monitor takes it away, which in a program at rest happens after ten milliseconds, and
// until then the monitor wakes every 20 to 70 µs. With a sleep between any two samples, that was
// most of the cost of a sample. The two functions are the runtime's own (entersyscallblock and
// exitsyscall in runtime/proc.go), accessible by linkname because other modules have long used
// them.
//
//go:linkname enterBlocking runtime.entersyscallblock
func enterBlocking()

//go:linkname exitBlocking runtime.exitsyscall
func exitBlocking()

// sleep waits until one of the files, of which fd is the first, is readable, or for ts; nil: without end. The runtime requires both brackets to be
// called from one frame that does not move.
//
//go:nosplit
//go:norace
func sleep(fd *unix.PollFd, fds int, ts *[2]int64) (n uintptr, errno syscall.Errno) {
	enterBlocking()
	n, errno = raw6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(fd)), uintptr(fds), uintptr(unsafe.Pointer(ts)), 0, 0, 0)
	exitBlocking()
	return n, errno
}

// wait sleeps while the futex has the value v, for at most ts.
//
//go:nosplit
//go:norace
func wait(futex *uint32, v uint32, ts *[2]int64) {
	enterBlocking()
	raw6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(futex)), futexWait, uintptr(v), uintptr(unsafe.Pointer(ts)), 0, 0)
	exitBlocking()
}
