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

// setPeriod starts a new period of an event, in units of what it counts.
func setPeriod(fd int, period uint64) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_PERIOD, uintptr(unsafe.Pointer(&period))); errno != 0 {
		return errno
	}
	return nil
}
