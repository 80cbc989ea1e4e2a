package caps

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setAll sets the capabilities of all threads that the Go runtime knows, as capset(2) is per
// thread.
func setAll(s *sets) error {
	h := header()
	_, _, no := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&s[0])), 0)
	runtime.KeepAlive(&h)
	runtime.KeepAlive(s)
	if no != 0 {
		return no
	}
	if os.Geteuid() == 0 {
		return nil
	}
	// The set that child programs would inherit.
	_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0)
	return nil
}
