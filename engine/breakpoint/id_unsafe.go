package breakpoint

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// eventID is the kernel's number of an event, which its records carry.
func eventID(fd int) (id uint64, err error) {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_ID, uintptr(unsafe.Pointer(&id))); errno != 0 {
		return 0, errno
	}
	return id, nil
}
