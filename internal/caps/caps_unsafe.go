package caps

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropAll clears the sets of all threads that the Go runtime knows, as capset(2) is per
// thread.
func dropAll() error {
	h := header()
	var none sets
	_, _, no := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&none[0])), 0)
	runtime.KeepAlive(&h)
	runtime.KeepAlive(&none)
	if no != 0 {
		return no
	}
	// The set that child programs would inherit.
	_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0)
	return nil
}
