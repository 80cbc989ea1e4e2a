package kernel

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// testRun is the argument of bpf(2) for BPF_PROG_TEST_RUN (union bpf_attr, test).
type testRun struct {
	prog, result     uint32
	dataIn, dataOut  uint32
	data, to         uint64
	repeat, duration uint32
	size, sizeOut    uint32
	context, contOut uint64
	flags, cpu       uint32
	batch, _         uint32
}

// call runs a program of type BPF_PROG_TYPE_SYSCALL with an argument, which it may change.
func call(prog int, argument []byte) error {
	a := testRun{prog: uint32(prog), size: uint32(len(argument)), context: uint64(uintptr(unsafe.Pointer(&argument[0])))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a))
	runtime.KeepAlive(argument)
	if errno != 0 {
		return errno
	}
	return nil
}
