package target

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/limits/atstart"
)

// A command is started here and not by package os, because the tracer of a process that asks to be traced is its parent
// at that time. If this program is killed just before, that is init, which lets nothing go on that it did not expect to stop.
// So the process has a death signal until it is traced. It runs without the Go runtime, in this program's memory, until
// it is another program: the rules of stopper_unsafe.go apply.

// startBlock is what the new process needs.
type startBlock struct {
	path       uintptr // C strings, and arrays of them
	argv, envp uintptr
	parent     uintptr
	mask       uint64        // of signals, for the program
	files      [2]uint64     // the soft and the hard limit of descriptors; zero: unknown
	errno      syscall.Errno // of the call that failed; 0: none
	action     [4]uint64     // struct sigaction of the kernel
}

const (
	ptraceTraceMe = 0
	startStack    = 64 << 10
	lastSignal    = 64
	cantExec      = 127
)

// startTraced starts a program that this OS thread traces from its first instruction on. file is its path; the rest is as for
// execve(2).
func startTraced(file string, argv, env []string) (pid int, err error) {
	mem, err := unix.Mmap(-1, 0, startStack, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(mem)
	path, err := unix.BytePtrFromString(file)
	if err != nil {
		return 0, err
	}
	args, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return 0, err
	}
	vars, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return 0, err
	}
	b := &startBlock{path: uintptr(unsafe.Pointer(path)), argv: uintptr(unsafe.Pointer(&args[0])), envp: uintptr(unsafe.Pointer(&vars[0])),
		parent: uintptr(os.Getpid()), files: atstart.Files}
	syscall.ForkLock.Lock() // no descriptor of another goroutine is half made
	defer syscall.ForkLock.Unlock()
	if b.mask, err = setMask(^uint64(0)); err != nil {
		return 0, err
	}
	top, tls := stackTop(mem)
	entry := starterMain
	proc := cloneStopper(unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_SETTLS|uintptr(unix.SIGCHLD), top, tls,
		**(**uintptr)(unsafe.Pointer(&entry)), (*stopBlock)(unsafe.Pointer(b)))
	_, _ = setMask(b.mask)
	runtime.KeepAlive(path)
	runtime.KeepAlive(args)
	runtime.KeepAlive(vars)
	if pid = int(proc); pid < 0 {
		return 0, syscall.Errno(-pid)
	}
	if b.errno != 0 {
		awaitEnd(pid)
		return 0, b.errno
	}
	return pid, nil
}

// starterMain is the new process until it is another program.
//
//go:nosplit
//go:norace
func starterMain(b *startBlock) {
	raw6(syscall.SYS_PRCTL, prSetPDeathSig, uintptr(syscall.SIGKILL), 0, 0, 0, 0)
	if parent, _ := raw6(syscall.SYS_GETPPID, 0, 0, 0, 0, 0, 0); parent != b.parent {
		return // killed before the signal was set
	}
	if _, b.errno = raw6(syscall.SYS_PTRACE, ptraceTraceMe, 0, 0, 0, 0, 0); b.errno != 0 {
		return
	}
	// If the parent is killed from now on, the kernel lets the program run.
	raw6(syscall.SYS_PRCTL, prSetPDeathSig, 0, 0, 0, 0, 0)
	for sig := uintptr(1); sig <= lastSignal; sig++ { // no handler of this program may run here
		_, errno := raw6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&b.action)), 8, 0, 0)
		if errno == 0 && b.action[0] > 1 { // neither the default nor ignored
			b.action = [4]uint64{}
			raw6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&b.action)), 0, 8, 0, 0)
		}
	}
	if b.files[1] != 0 {
		raw6(syscall.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&b.files)), 0, 0, 0)
	}
	raw6(syscall.SYS_RT_SIGPROCMASK, 2, uintptr(unsafe.Pointer(&b.mask)), 0, 8, 0, 0)
	_, b.errno = raw6(syscall.SYS_EXECVE, b.path, b.argv, b.envp, 0, 0, 0)
	raw6(syscall.SYS_EXIT_GROUP, cantExec, 0, 0, 0, 0, 0)
}
