package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Everything between the request to stop and the resume is in this file, in blocks_unsafe.go and
// in the functions of regs_*.go that they call. Such code must not allocate, lock, call through
// an interface, grow the stack or notify the Go scheduler of a system call: each of these can
// park the goroutine while a thread of the target is stopped. Hence nosplit (which also excludes
// preemption points), RawSyscall6, and one block of memory allocated in advance.

// Requests and notes of ptrace(2) (linux/ptrace.h, linux/elf.h).
const (
	ptracePokeUser  = 6
	ptraceDetach    = 17
	ptraceGetRegSet = 0x4204
	ptraceSetRegSet = 0x4205
	ptraceSeize     = 0x4206
	ptraceInterrupt = 0x4207
	eventStop       = 128 // PTRACE_EVENT_STOP
	ntPRStatus      = 1
)

// waitid(2) (linux/wait.h, asm-generic/siginfo.h).
const (
	pPID      = 1
	waitFlags = wStopped | wExited | wNoWait | wAll | wNoThread
	wNoHang   = 1
	wStopped  = 2
	wExited   = 4
	wNoWait   = 0x01000000
	wNoThread = 0x20000000
	wAll      = 0x40000000

	cldStopped = 5
	cldTrapped = 4
)

// Signals whose default action stops the process.
const (
	sigTrap = 5
	sigStop = 19
	sigTstp = 20
	sigTtin = 21
	sigTtou = 22
)

// Phases of the wait, after the spin. A thread that has not stopped by the end of the spin waits
// for a CPU, perhaps for this one, so only sleeping helps. A sleep unknown to the Go scheduler
// keeps its P, but returns at once when the thread stops; so the first sleep is of that kind, and
// bounded.
const (
	blockFor  = 300_000   // ns after the request that are slept without notifying the scheduler
	alarmEach = 1_000_000 // ns between alarms after the first, in case that came too early
)

// Results of a look at a thread that was asked to stop.
const (
	lookNothing  = iota // not stopped yet
	lookStopped         // stopped; see w.raw.code and w.raw.status
	lookDead            // ended, and not reaped yet
	lookNoThread        // no such tracee
)

// Results of a window.
const (
	endDone    = iota // sampled and released
	endLate           // not stopped within the spin
	endDead           // ended, and not reaped yet
	endGone           // no such tracee
	endError          // w.raw.errno is the failure; the thread was released if possible
	endRefused        // attaching failed
	endAsleep         // it was blocked, and Window.Check is set: no request was made
)

// raw is the memory that the kernel writes to and reads from.
type raw struct {
	info   [16]uint64 // siginfo_t
	regs   [regWords]uint64
	regVec ownVec
	local  [3]ownVec
	remote [MaxSpans + 1]remoteVec
	ts     [2]int64
	before callBefore // the call before the stop, if the machine needs it to restart the call
	// The thread pointer, if the register block lacks it.
	tls     uint64
	wantTLS bool
	gotTLS  bool
	timer   int32    // the tracer's
	armed   bool     // it will expire
	alarm   [4]int64 // struct itimerspec
	code    int32    // CLD_*
	status  int32    // signal and event of the stop
	errno   syscall.Errno
	line    [128]byte // schedstat right after a stopper has attached
	lineLen int
	// self is the schedstat file of the process or thread that makes the stop, for waited; 0: not
	// read. own receives its content.
	self  uintptr
	own   [64]byte
	found found
}

// ownVec is an iovec whose memory another reference keeps alive: writing a pointer could require
// the runtime.
type ownVec struct {
	base uintptr
	len  uint64
}

// remoteVec is an iovec with an address of the target, which is not a pointer here.
type remoteVec struct {
	addr uint64
	len  uint64
}

// callBefore is a blocked thread's call before it was asked to stop.
type callBefore struct {
	call   stack.Call
	pc, sp uint64
}

//go:nosplit
//go:norace
func raw6(nr, a, b, c, d, e, f uintptr) (uintptr, syscall.Errno) {
	r, _, errno := syscall.RawSyscall6(nr, a, b, c, d, e, f)
	return r, errno
}

// clock reads CLOCK_MONOTONIC by a real system call: the vDSO needs more stack than a nosplit
// function has.
//
//go:nosplit
//go:norace
func (w *Window) clock() int64 {
	raw6(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&w.raw.ts)), 0, 0, 0, 0)
	return w.raw.ts[0]*1e9 + w.raw.ts[1]
}

// look checks whether the thread has stopped, and leaves the status in place (WNOWAIT): the exit
// status of a child process belongs to its waiter.
//
//go:nosplit
//go:norace
func (w *Window) look(tid uintptr) int {
	_, errno := raw6(syscall.SYS_WAITID, pPID, tid, uintptr(unsafe.Pointer(&w.raw.info)), waitFlags|wNoHang, 0, 0)
	return w.seen(errno)
}

// block is look, but sleeps until the thread's state changes or an alarm expires.
//
//go:nosplit
//go:norace
func (w *Window) block(tid uintptr) int {
	_, errno := raw6(syscall.SYS_WAITID, pPID, tid, uintptr(unsafe.Pointer(&w.raw.info)), waitFlags, 0, 0)
	return w.seen(errno)
}

// blockKnown is block with notification of the Go scheduler.
func (w *Window) blockKnown(tid uintptr) int {
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, tid, uintptr(unsafe.Pointer(&w.raw.info)), waitFlags, 0, 0)
	return w.seen(errno)
}

//go:nosplit
//go:norace
func (w *Window) seen(errno syscall.Errno) int {
	if errno == syscall.EINTR {
		return lookNothing
	}
	if errno != 0 {
		return lookNoThread
	}
	if int32(w.raw.info[0]) == 0 { // si_signo
		return lookNothing
	}
	w.raw.code = int32(w.raw.info[1])   // si_code, after si_signo and si_errno
	w.raw.status = int32(w.raw.info[3]) // si_status, after si_pid and si_uid
	if w.raw.code == cldTrapped || w.raw.code == cldStopped {
		return lookStopped
	}
	return lookDead
}

// stop asks the attached thread to stop, waits for it by spinning, and does the rest of the
// window.
//
//go:nosplit
//go:norace
func (w *Window) stop(tid uintptr) int {
	asked := w.clock()
	w.Asked = stack.Time(asked)
	if _, errno := raw6(syscall.SYS_PTRACE, ptraceInterrupt, tid, 0, 0, 0, 0); errno != 0 {
		w.raw.errno = errno
		if w.look(tid) == lookDead {
			return endDead
		}
		return endGone
	}
	seen := w.look(tid)
	for {
		switch seen {
		case lookStopped:
			return w.finish(tid)
		case lookDead:
			return endDead
		case lookNoThread:
			return endGone
		}
		passed := w.clock() - asked
		switch {
		case passed <= w.SpinFor:
			seen = w.look(tid)
		case passed >= w.SpinFor+blockFor || passed >= w.Deadline:
			return endLate
		default:
			w.alarm(min(w.SpinFor+blockFor, w.Deadline) - passed)
			seen = w.block(tid)
		}
	}
}

// alarm sets the tracer's timer to expire after ns and then periodically; 0 disarms it. Its
// signal only ends a sleep.
//
//go:nosplit
//go:norace
func (w *Window) alarm(ns int64) {
	w.raw.alarm = [4]int64{0, alarmEach, ns / 1e9, ns % 1e9}
	w.raw.armed = ns > 0
	raw6(syscall.SYS_TIMER_SETTIME, uintptr(w.raw.timer), 0, uintptr(unsafe.Pointer(&w.raw.alarm)), 0, 0, 0)
}

// finish reads the stopped thread and releases it.
//
//go:nosplit
//go:norace
func (w *Window) finish(tid uintptr) int {
	w.Stopped = stack.Time(w.clock())
	if errno := w.getRegs(tid); errno != 0 {
		return w.release(tid, errno)
	}
	w.lookAt()
	w.restore(tid)
	sp := nativeStackPointer(&w.raw.regs)
	errno := w.readBlocks(tid, sp)
	if errno == syscall.EFAULT {
		errno = 0 // a short read is an ordinary outcome
	}
	if w.More != nil && errno == 0 {
		w.readMore(tid)
	}
	return w.release(tid, errno)
}

//go:nosplit
//go:norace
func (w *Window) getRegs(tid uintptr) syscall.Errno {
	w.raw.regVec.base = uintptr(unsafe.Pointer(&w.raw.regs))
	w.raw.regVec.len = regWords * 8
	_, errno := raw6(syscall.SYS_PTRACE, ptraceGetRegSet, tid, ntPRStatus, uintptr(unsafe.Pointer(&w.raw.regVec)), 0, 0)
	if errno == 0 && w.raw.regVec.len != regWords*8 {
		return syscall.EPROTO // a 32-bit thread
	}
	return errno
}

// restore resumes the call that the stop interrupted, if there is one. A stop by a signal that
// stops the process ends such a call even without a tracer, so that is left alone. Any other
// pending signal ends it only if it has a handler, and the kernel takes care of that
// (restart.go).
//
//go:nosplit
//go:norace
func (w *Window) restore(tid uintptr) {
	sig, event := w.raw.status&0x7f, w.raw.status>>8
	switch {
	case event == eventStop && sig != sigTrap:
		w.Group = true
		return
	case event == 0 && (sig == sigStop || sig == sigTstp || sig == sigTtin || sig == sigTtou):
		return
	}
	switch w.putBack(tid) {
	case putDone:
		w.Restarted = true
	case putLost:
		w.Interrupt = true
	}
}

// Results of putBack.
const (
	putNothing = iota // no call was interrupted
	putDone           // the call continues
	putLost           // a call was interrupted, and the target sees it
)

// release detaches the stopped thread and passes on its pending signal, if any. The kernel keeps
// that signal's siginfo while the number does not change (kernel/signal.c, ptrace_signal).
//
//go:nosplit
//go:norace
func (w *Window) release(tid uintptr, why syscall.Errno) int {
	sig := uintptr(0)
	if w.raw.status>>8 == 0 {
		sig = uintptr(w.raw.status & 0x7f)
	}
	waited := w.waited()
	_, errno := raw6(syscall.SYS_PTRACE, ptraceDetach, tid, 0, sig, 0, 0)
	w.Resumed = stack.Time(w.clock())
	w.resumed(waited)
	if errno != 0 {
		// Killed while it was stopped: it is exiting, and this tracer must reap it.
		w.raw.errno = errno
		return endDead
	}
	w.Sig = int(sig)
	if why != 0 {
		w.raw.errno = why
		return endError
	}
	return endDone
}

// readRaw copies memory of a thread without notifying the scheduler.
func readRaw(tid uintptr, b []byte, addr uint64) (int, syscall.Errno) {
	local := syscall.Iovec{Base: &b[0], Len: uint64(len(b))}
	remote := remoteVec{addr, uint64(len(b))}
	n, errno := raw6(unix.SYS_PROCESS_VM_READV, tid, uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	return int(n), errno
}

// reap takes the status of an ended thread, or returns EAGAIN if it has not ended. It looks
// before it takes: for a traced thread the kernel also returns stops, requested or not
// (kernel/exit.c, wait_task_stopped), and the thread's own Tracer would miss a stop consumed
// here.
func reap(tid int) error {
	const ended = wNoHang | wExited | wAll
	var info [16]uint64
	for _, flags := range [2]uintptr{ended | wNoWait, ended} {
		info = [16]uint64{}
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(tid), uintptr(unsafe.Pointer(&info)), flags, 0, 0)
		if errno != 0 {
			return errno
		}
		code := int32(info[1])
		if int32(info[0]) == 0 || code == cldTrapped || code == cldStopped {
			return syscall.EAGAIN
		}
	}
	return nil
}

// attached reports whether the thread is still this tracer's. Asking it to stop once more has no
// effect, and fails with ESRCH exactly if it is not. A first thread whose process was taken over
// by exec is gone without notice, and if the process is a child of this program, waiting for the
// number remains allowed.
func attached(tid uintptr) bool {
	_, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, ptraceInterrupt, tid, 0, 0, 0, 0)
	return errno != syscall.ESRCH
}

// seize attaches. It can wait on a lock that exec holds, so the Go scheduler is notified.
func seize(tid int) syscall.Errno {
	_, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, ptraceSeize, uintptr(tid), 0, 0, 0, 0)
	return errno
}

// readSpans reads spans, at most stack.MaxSpans and none of them empty, into b one after the
// other, up to the first unreadable byte.
func readSpans(pid int, b []byte, spans []stack.Span) (int, error) {
	var remote [stack.MaxSpans]remoteVec
	for i, s := range spans {
		remote[i] = remoteVec{s.Addr, uint64(s.Len)}
	}
	local := syscall.Iovec{Base: &b[0], Len: uint64(len(b))}
	n, _, errno := syscall.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(&remote)), uintptr(len(spans)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func readMemory(pid int, b []byte, addr uint64) (int, error) {
	local := syscall.Iovec{Base: &b[0], Len: uint64(len(b))}
	remote := remoteVec{addr, uint64(len(b))}
	n, _, errno := syscall.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(&remote)), 1, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// sigaction is the kernel's struct (not libc's): the same on both machines.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

const (
	saNoCldStop = 1
	saRestart   = 0x10000000
)

// changeAction sets and clears flags of this process's action for a signal, and keeps all other
// settings of the Go runtime.
func changeAction(sig syscall.Signal, set, clear uint64) error {
	var sa sigaction
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&sa)), 8, 0, 0)
	if errno != 0 {
		return errno
	}
	flags := sa.flags&^clear | set
	if flags == sa.flags {
		return nil
	}
	sa.flags = flags
	_, _, errno = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&sa)), 0, 8, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// newTimer makes a timer that sends sig to one OS thread of this program.
func newTimer(osThread int, sig syscall.Signal) (int32, error) {
	const threadID = 4 // SIGEV_THREAD_ID
	// struct sigevent: value, signal, how, thread, and room up to 64 bytes.
	ev := [16]int32{2: int32(sig), 3: threadID, 4: int32(osThread)}
	var id int32
	_, _, errno := syscall.RawSyscall6(syscall.SYS_TIMER_CREATE, 1, uintptr(unsafe.Pointer(&ev)), uintptr(unsafe.Pointer(&id)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return id, nil
}

func deleteTimer(id int32) {
	syscall.RawSyscall6(syscall.SYS_TIMER_DELETE, uintptr(id), 0, 0, 0, 0, 0)
}

// setMask sets the calling thread's signal mask (bit n-1: signal n).
func setMask(mask uint64) (old uint64, err error) {
	const setmask = 2
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setmask, uintptr(unsafe.Pointer(&mask)),
		uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return old, nil
}

// schedAttr is struct sched_attr in its first published size (linux/sched/types.h).
type schedAttr struct {
	size, policy              uint32
	flags                     uint64
	nice                      int32
	priority                  uint32
	runtime, deadline, period uint64
}

// setSlice asks the scheduler to run the calling thread for at most ns at a time, and in return
// to run it soon after it wakes (Linux 6.12 and newer; older ones ignore it). 0: the scheduler's
// default. It does not change a thread with another scheduling policy.
func setSlice(ns uint64) {
	a := schedAttr{size: uint32(unsafe.Sizeof(schedAttr{}))}
	if _, _, errno := syscall.RawSyscall6(unix.SYS_SCHED_GETATTR, 0, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a), 0, 0, 0); errno != 0 || a.policy != 0 {
		return
	}
	a.runtime = ns
	syscall.RawSyscall6(unix.SYS_SCHED_SETATTR, 0, uintptr(unsafe.Pointer(&a)), 0, 0, 0, 0)
}

// setFIFO gives a process priority over all ordinary ones, if permitted (CAP_SYS_NICE): it runs
// at once when it wakes.
func setFIFO(pid int) error {
	const fifo = 1 // SCHED_FIFO
	priority := int32(1)
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_SCHED_SETSCHEDULER, uintptr(pid), fifo, uintptr(unsafe.Pointer(&priority)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// regBytes returns a register block as the bytes that the kernel wrote.
func regBytes(r *[regWords]uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), len(r)*8)
}
