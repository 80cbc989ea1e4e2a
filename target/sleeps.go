package target

import (
	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Sleeps reports whether a thread that is blocked in this call is in an interruptible sleep: the
// call waits for time, for other threads, or for a descriptor, and not for a disk. Its state in
// /proc/PID/stat is then S, unless a signal has stopped the process.
func Sleeps(c *stack.Call) bool {
	switch c.Nr {
	case unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_FUTEX, unix.SYS_PPOLL, unix.SYS_PSELECT6,
		unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_RT_SIGSUSPEND,
		unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_WAIT4, unix.SYS_WAITID:
		return true
	}
	return sleepsHere(c.Nr)
}
