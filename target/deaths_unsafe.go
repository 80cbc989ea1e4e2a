package target

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// setFilter limits an event to records whose fields satisfy a condition.
func setFilter(fd int, condition string) error {
	b, err := unix.BytePtrFromString(condition)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_SET_FILTER, uintptr(unsafe.Pointer(b))); errno != 0 {
		return errno
	}
	return nil
}
