package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// enterBlocking and exitBlocking bracket a system call that is sure to sleep:
// the goroutine gives up its place in the Go scheduler (its P) at once. A plain
// system call keeps it until the runtime's monitor takes it away, after ten
// milliseconds in a program at rest, and until then that monitor wakes every 20
// to 70 µs. With a sleep between any two samples that was most of what a sample
// cost. They are the runtime's own (entersyscallblock and exitsyscall in
// runtime/proc.go), open to linknames since others have long used them.
//
//go:linkname enterBlocking runtime.entersyscallblock
func enterBlocking()

//go:linkname exitBlocking runtime.exitsyscall
func exitBlocking()

// nanotime is CLOCK_MONOTONIC without a system call (the vDSO's way), also open to
// linknames for being used by others.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

// sleep waits until there is something to read in the file, or for ns. The
// runtime wants the two brackets called from one frame that does not move.
//
//go:nosplit
//go:norace
func sleep(fd *unix.PollFd, ts *[2]int64) (n uintptr, errno syscall.Errno) {
	enterBlocking()
	n, errno = raw6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(fd)), 1, uintptr(unsafe.Pointer(ts)), 0, 0, 0)
	exitBlocking()
	return n, errno
}

// wait sleeps until a futex has another value than v, for at most ns.
//
//go:nosplit
//go:norace
func wait(futex *uint32, v uint32, ts *[2]int64) {
	enterBlocking()
	raw6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(futex)), futexWait, uintptr(v), uintptr(unsafe.Pointer(ts)), 0, 0)
	exitBlocking()
}

// preadNow reads what is in memory already and never waits for a disk: without
// the Go scheduler's knowledge.
func preadNow(fd int, b []byte) (int, syscall.Errno) {
	n, errno := raw6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
