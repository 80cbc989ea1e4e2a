package target

import (
	"syscall"
	"testing"
	"unsafe"
)

func readAction(t *testing.T, sig syscall.Signal, sa *sigaction) {
	t.Helper()
	*sa = sigaction{}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(sa)), 8, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
}
