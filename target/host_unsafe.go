package target

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// setName sets the name of the calling OS thread from a zero-terminated b.
func setName(b []byte) {
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0) // a name only
}
