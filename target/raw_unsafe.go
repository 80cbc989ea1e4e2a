package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Everything between the request to stop and the resume is in this file, in
// blocks_unsafe.go and in the functions of regs_*.go that they call. Such code may not allocate,
// lock, call through an interface, grow the stack or tell the Go scheduler of
// a system call: each of these can park the goroutine while a target stands
// still. Hence nosplit (which also keeps preemption points out), RawSyscall6,
// and one block of memory made beforehand.

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

// Signals whose default is to stop the process.
const (
	sigTrap = 5
	sigStop = 19
	sigTstp = 20
	sigTtin = 21
	sigTtou = 22
)

// Phases of the wait, beyond the spin: a thread that has not stopped by its
// end waits for a CPU, perhaps for this one, so that only sleep helps. A sleep
// that the Go scheduler does not know of keeps its P, but comes back at once
// when the thread stops; so the first one is of that kind, and bounded.
const (
	blockFor  = 300_000   // ns after the request that are slept behind the scheduler's back
	alarmEach = 1_000_000 // ns between alarms once the first has gone off, lest one that came too early be the last
)

// What a look at a thread that was asked to stop gives.
const (
	lookNothing  = iota // not stopped yet
	lookStopped         // stopped; w.raw.code, w.raw.status
	lookDead            // ended, and not reaped yet
	lookNoThread        // no such tracee
)

// How a window ends.
const (
	endDone    = iota // sampled and let go
	endLate           // not stopped within the spin
	endDead           // ended, and not reaped yet
	endGone           // no such tracee
	endError          // w.raw.errno says what failed; the thread was let go if it could be
	endRefused        // it could not be attached
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
	before callBefore // of the call, where the machine needs it to put the call back
	// The thread pointer, where the register block lacks it.
	tls     uint64
	wantTLS bool
	gotTLS  bool
	timer   int32    // the tracer's
	armed   bool     // it will go off
	alarm   [4]int64 // struct itimerspec
	code    int32    // CLD_*
	status  int32    // signal and event of the stop
	errno   syscall.Errno
	line    [128]byte // schedstat right after a stopper has attached
	lineLen int
	// The schedstat of whoever makes the stop, if it is to be read (see waited), and what
	// that said. 0: it is not.
	self  uintptr
	own   [64]byte
	found found
}

// ownVec is an iovec whose memory somebody else keeps: writing a pointer could
// need the runtime.
type ownVec struct {
	base uintptr
	len  uint64
}

// remoteVec is an iovec whose address is the target's: no pointer for us.
type remoteVec struct {
	addr uint64
	len  uint64
}

// callBefore is what a blocked thread's call was before it was asked to stop.
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

// clock reads CLOCK_MONOTONIC by a real system call: the vDSO's way needs
// more stack than a nosplit function has.
//
//go:nosplit
//go:norace
func (w *Window) clock() int64 {
	raw6(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&w.raw.ts)), 0, 0, 0, 0)
	return w.raw.ts[0]*1e9 + w.raw.ts[1]
}

// look asks whether the thread has stopped, and leaves the answer where it is
// (WNOWAIT): the exit status of our own child is not ours to take.
//
//go:nosplit
//go:norace
func (w *Window) look(tid uintptr) int {
	_, errno := raw6(syscall.SYS_WAITID, pPID, tid, uintptr(unsafe.Pointer(&w.raw.info)), waitFlags|wNoHang, 0, 0)
	return w.seen(errno)
}

// block is look, but sleeps until there is something to see or an alarm goes off.
//
//go:nosplit
//go:norace
func (w *Window) block(tid uintptr) int {
	_, errno := raw6(syscall.SYS_WAITID, pPID, tid, uintptr(unsafe.Pointer(&w.raw.info)), waitFlags, 0, 0)
	return w.seen(errno)
}

// blockKnown is block with the Go scheduler's knowledge.
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
	w.raw.code = int32(w.raw.info[1])   // si_code, behind si_signo and si_errno
	w.raw.status = int32(w.raw.info[3]) // si_status, behind si_pid and si_uid
	if w.raw.code == cldTrapped || w.raw.code == cldStopped {
		return lookStopped
	}
	return lookDead
}

// stop asks the thread, attached already, to stop, waits for that by
// spinning, and does the rest of the window.
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

// alarm makes the tracer's timer go off after ns, and then again and again;
// 0 silences it. Its signal does nothing but end a sleep.
//
//go:nosplit
//go:norace
func (w *Window) alarm(ns int64) {
	w.raw.alarm = [4]int64{0, alarmEach, ns / 1e9, ns % 1e9}
	w.raw.armed = ns > 0
	raw6(syscall.SYS_TIMER_SETTIME, uintptr(w.raw.timer), 0, uintptr(unsafe.Pointer(&w.raw.alarm)), 0, 0, 0)
}

// finish reads the stopped thread and lets it go.
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

// restore puts back the call that the stop cut short, if there is one. A stop
// by a signal that stops the process ends such a call by itself, tracer or
// not, so that is left alone; any other signal on its way in ends it only if
// it has a handler, and the kernel sees to that (restart.go).
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

// What putBack did.
const (
	putNothing = iota // nothing was cut short
	putDone           // the call goes on
	putLost           // it was cut short, and the target sees it
)

// release detaches the stopped thread, passing on the signal that was on its
// way in, if any. The kernel keeps that signal's siginfo as long as the
// number stays the same (kernel/signal.c, ptrace_signal).
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
		// Killed while it stood: it is on its way out, and ours to reap.
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

// readRaw copies memory of a thread behind the scheduler's back.
func readRaw(tid uintptr, b []byte, addr uint64) (int, syscall.Errno) {
	local := syscall.Iovec{Base: &b[0], Len: uint64(len(b))}
	remote := remoteVec{addr, uint64(len(b))}
	n, errno := raw6(unix.SYS_PROCESS_VM_READV, tid, uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	return int(n), errno
}

// reap takes the status of a thread that ended, EAGAIN if it has not. It looks
// before it takes: for a thread that is traced the kernel hands out stops too,
// asked for or not (kernel/exit.c, wait_task_stopped), and a stop that is taken
// here is one that its own Tracer never sees.
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

// attached reports whether the thread is still our tracee. Asking it to stop
// once more changes nothing, and fails with ESRCH exactly when it is not: a
// first thread whose process was taken over by exec is gone without a word,
// and if the process is our own child, waiting for the number goes on being
// allowed.
func attached(tid uintptr) bool {
	_, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, ptraceInterrupt, tid, 0, 0, 0, 0)
	return errno != syscall.ESRCH
}

// seize attaches. It can wait on a lock that exec holds, so the Go scheduler
// is told.
func seize(tid int) syscall.Errno {
	_, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, ptraceSeize, uintptr(tid), 0, 0, 0, 0)
	return errno
}

// readSpans reads spans, at most stack.MaxSpans and not empty ones, into b, one after the
// other: until the first byte that cannot be read.
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

// changeAction sets and clears flags of what this process does at a signal,
// and touches nothing else of what the Go runtime has set up.
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

// newTimer makes a timer that sends sig to one of our OS threads.
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

// setSlice asks the scheduler to let the calling thread run for no longer than
// ns at a time, and in return to let it run soon after it wakes (Linux 6.12 and
// newer; older ones take no notice). 0: the scheduler's own choice. It leaves a
// thread alone that somebody has given another scheduling policy.
func setSlice(ns uint64) {
	a := schedAttr{size: uint32(unsafe.Sizeof(schedAttr{}))}
	if _, _, errno := syscall.RawSyscall6(unix.SYS_SCHED_GETATTR, 0, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a), 0, 0, 0); errno != 0 || a.policy != 0 {
		return
	}
	a.runtime = ns
	syscall.RawSyscall6(unix.SYS_SCHED_SETATTR, 0, uintptr(unsafe.Pointer(&a)), 0, 0, 0, 0)
}

// setFIFO puts another process before all that share the CPUs fairly, if we have
// the right to (CAP_SYS_NICE): it runs at once when it wakes.
func setFIFO(pid int) error {
	const fifo = 1 // SCHED_FIFO
	priority := int32(1)
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_SCHED_SETSCHEDULER, uintptr(pid), fifo, uintptr(unsafe.Pointer(&priority)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// regBytes views a register block as the bytes that the kernel wrote.
func regBytes(r *[regWords]uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), len(r)*8)
}
