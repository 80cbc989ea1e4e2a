package target

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// The code that runs in a stopper: see stopper.go. It has no Go runtime, so the rules of
// raw_unsafe.go apply to all of it, and one more: no pointer may be written, because the write
// barrier needs the runtime.

// stopBlock is the memory that a stopper and its Tracer share. They take turns: the Tracer writes
// while done is 1, the stopper while it is 0.
type stopBlock struct {
	cmd    uint32 // atomic: the command
	done   uint32 // atomic, a futex: the command was executed
	late   uint32 // atomic: a thread is kept that has not stopped yet
	quit   uint32 // atomic: no further command will follow
	parent uintptr
	self   uintptr // its schedstat, see resumed_unsafe.go; 0: not read

	tid, pid  uintptr // of the thread, and its process
	schedstat uintptr // the thread's file of that name
	syscall   uintptr // likewise
	check     bool    // do not stop a blocked thread
	since     int64   // when the tick began that the sample is of (clock_gettime, monotonic); 0: not known
	w         *Window
	spare     *Window // for the late thread: w belongs to the Tracer again by then

	end   int
	errno syscall.Errno // of attaching
	cpu   [2]int64      // CPU time of the stopper: s and ns
	ahead ahead
	// coming: the kept thread must be sampled when it stops; arrived: it was.
	coming  bool
	arrived bool

	set  uint64
	ts   [2]int64
	info [16]uint64
	name [16]byte
}

// Commands.
const (
	stopRest = iota
	stopCapture
	stopAhead
)

const (
	callSignal  = syscall.SIGUSR1 // a command is ready
	deathSignal = syscall.SIGUSR2 // the Tracer's OS thread has ended
	stopperSet  = 1<<(callSignal-1) | 1<<(deathSignal-1) | 1<<(syscall.SIGCHLD-1)

	clockProcess   = 2 // CLOCK_PROCESS_CPUTIME_ID
	prSetPDeathSig = 1
	prSetName      = 15
	futexWait      = 0x80 // private
	futexWake      = 0x81 // private

	// orphanFor is how long, in ns, a stopper whose program has ended waits for a thread that
	// does not stop.
	orphanFor = 10_000_000_000
	// holdEach is how often, in ns, it checks that the thread still exists.
	holdEach = 50_000_000
)

// cloneStopper creates the process, which starts at main, the address of stopperMain itself. The
// compiler's wrapper of a Go function named in assembly would make the race detector see the
// caller's thread in both processes. The process has its own thread pointer: compiled Go
// occasionally reads the current goroutine through it, and that of the calling thread may be
// unmapped after the thread has ended. It runs no goroutine.
func cloneStopper(flags, stack, tls, main uintptr, b *stopBlock) (pid uintptr)

// load32 and store32 are atomic, like those of sync/atomic, which call the runtime in builds with
// the race detector.
//
//go:noescape
func load32(p *uint32) uint32

//go:noescape
func store32(p *uint32, v uint32)

// stopperEntry returns the address of stopperMain.
func stopperEntry() uintptr {
	f := stopperMain
	return **(**uintptr)(unsafe.Pointer(&f))
}

// stopperMain is the main loop of a stopper. All signals are masked.
//
//go:nosplit
//go:norace
func stopperMain(b *stopBlock) {
	raw6(syscall.SYS_PRCTL, prSetPDeathSig, uintptr(deathSignal), 0, 0, 0, 0)
	raw6(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&b.name)), 0, 0, 0, 0)
	b.defaultAction(syscall.SIGCHLD)
	for {
		cmd := load32(&b.cmd)
		switch cmd {
		case stopCapture, stopAhead:
			b.since = 0
			if cmd == stopCapture {
				b.end = b.capture(b.w)
			} else {
				b.end = endDone
				for b.end == endDone && b.next() {
					w := b.ahead.windows[b.ahead.stops]
					b.end = b.capture(w)
					b.took(w)
				}
			}
			held := false
			b.coming = false
			switch b.end {
			case endLate:
				held, b.coming = true, true
			case endDead, endGone:
				held = !b.step()
			}
			if held {
				store32(&b.late, 1)
			}
			raw6(syscall.SYS_CLOCK_GETTIME, clockProcess, uintptr(unsafe.Pointer(&b.cpu)), 0, 0, 0, 0)
			store32(&b.cmd, stopRest)
			store32(&b.done, 1)
			raw6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&b.done)), futexWake, 1, 0, 0, 0)
			if held {
				b.hold(cmd == stopAhead)
				store32(&b.late, 0)
			}
		default:
			if load32(&b.quit) == 1 || b.orphan() {
				return
			}
			b.rest(0)
		}
	}
}

// defaultAction resets a signal's action to its default: while masked, it is then queued for
// rest.
//
//go:nosplit
//go:norace
func (b *stopBlock) defaultAction(sig syscall.Signal) {
	b.info = [16]uint64{}
	raw6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&b.info)), 0, 8, 0, 0)
}

//go:nosplit
//go:norace
func (b *stopBlock) orphan() bool {
	ppid, _ := raw6(syscall.SYS_GETPPID, 0, 0, 0, 0, 0, 0)
	return ppid != b.parent
}

// rest sleeps until a command arrives, a thread stops or ends, the program ends, or ns have
// passed (0: no limit). It returns the signal that reported this, if any.
//
//go:nosplit
//go:norace
func (b *stopBlock) rest(ns int64) (sig uintptr) {
	b.set = stopperSet
	b.ts = [2]int64{ns / 1e9, ns % 1e9}
	ts := uintptr(unsafe.Pointer(&b.ts))
	if ns == 0 {
		ts = 0
	}
	sig, errno := raw6(syscall.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&b.set)), 0, ts, 8, 0, 0)
	if errno != 0 {
		return 0
	}
	return sig
}

// capture takes one sample, from attaching to releasing.
//
//go:nosplit
//go:norace
func (b *stopBlock) capture(w *Window) int {
	w.raw.lineLen, w.raw.self = 0, b.self
	if !w.lookBefore(b.schedstat, b.syscall, b.since) && b.check {
		return endAsleep
	}
	if _, b.errno = raw6(syscall.SYS_PTRACE, ptraceSeize, b.tid, 0, 0, 0, 0); b.errno != 0 {
		return endRefused
	}
	// Attached: from now on the number is reserved. If the thread's own file still answers, the
	// number belongs to this thread and not to a newer one.
	n, errno := raw6(syscall.SYS_PREAD64, b.schedstat, uintptr(unsafe.Pointer(&w.raw.line)), uintptr(len(w.raw.line)), 0, 0, 0)
	if errno != 0 || n == 0 {
		raw6(syscall.SYS_PTRACE, ptraceInterrupt, b.tid, 0, 0, 0, 0)
		return endGone
	}
	w.raw.lineLen = int(n)
	w.raw.found.check()
	b.spare.raw.before = w.raw.before
	asked := w.clock()
	w.Asked = stack.Time(asked)
	if _, errno := raw6(syscall.SYS_PTRACE, ptraceInterrupt, b.tid, 0, 0, 0, 0); errno != 0 {
		return endGone
	}
	checked := asked
	for {
		switch w.look(b.tid) {
		case lookStopped:
			return w.finish(b.tid)
		case lookDead:
			return endDead
		case lookNoThread:
			return endGone
		}
		now := w.clock()
		if w.Halted == 0 {
			w.Halted = stack.Time(now)
		}
		left := w.Deadline - (now - asked)
		if now-asked <= w.SpinFor {
			continue
		}
		if left <= 0 {
			return endLate
		}
		if now-checked > recheckEach {
			if !b.attached() {
				return endGone
			}
			checked = now
		}
		b.rest(min(left, recheckEach))
	}
}

// attached is the function of that name, for this process.
//
//go:nosplit
//go:norace
func (b *stopBlock) attached() bool {
	_, errno := raw6(syscall.SYS_PTRACE, ptraceInterrupt, b.tid, 0, 0, 0, 0)
	return errno != syscall.ESRCH
}

// hold waits for the thread to stop and releases it. After the program has ended it continues for
// orphanFor.
//
//go:nosplit
//go:norace
func (b *stopBlock) hold(ahead bool) {
	until := int64(0)
	for {
		if b.coming {
			w := b.w
			if ahead {
				w = b.ahead.windows[b.ahead.stops]
			}
			b.sample(w)
		}
		if !b.coming && (b.arrived || b.step()) {
			return
		}
		if b.orphan() {
			now := b.spare.clock()
			if until == 0 {
				until = now + orphanFor
				// The program's files are shared: close them, so that processes waiting for their
				// end do not wait for this one.
				raw6(unix.SYS_CLOSE_RANGE, 0, 1<<31-1, 0, 0, 0, 0)
			}
			if now > until {
				return
			}
		}
		b.rest(holdEach)
	}
}

// sample completes a capture whose thread was late, if it has stopped.
//
//go:nosplit
//go:norace
func (b *stopBlock) sample(w *Window) {
	switch w.look(b.tid) {
	case lookStopped:
		// Otherwise it was killed while it was stopped, or released without a sample.
		b.arrived = w.finish(b.tid) == endDone
	case lookNothing:
		if b.attached() {
			return
		}
	}
	b.coming = false
}

// step tries to release the thread, and reports whether it is finished.
//
//go:nosplit
//go:norace
func (b *stopBlock) step() bool {
	w := b.spare
	for {
		switch w.look(b.tid) {
		case lookStopped:
			if errno := w.getRegs(b.tid); errno == 0 {
				w.restore(b.tid)
			}
			if w.release(b.tid, 0) == endDone {
				return true
			}
			continue // killed while it was stopped: look again
		case lookDead:
			return b.bury()
		case lookNothing:
			if b.attached() {
				return false
			}
		}
		// It no longer has this number. If it called exec, it is still attached and has the
		// process's number.
		if b.tid == b.pid {
			return true
		}
		b.tid = b.pid
		w.raw.before.call.Nr = -1
	}
}

// bury takes the status of an ended thread. It looks before it takes, because its own Tracer
// would miss a stop consumed here.
//
//go:nosplit
//go:norace
func (b *stopBlock) bury() bool {
	const ended = wNoHang | wExited | wAll | wNoThread
	for i := range 2 {
		b.info = [16]uint64{}
		flags := uintptr(ended | wNoWait)
		if i == 1 {
			flags = ended
		}
		_, errno := raw6(syscall.SYS_WAITID, pPID, b.tid, uintptr(unsafe.Pointer(&b.info)), flags, 0, 0)
		if errno != 0 {
			return errno != syscall.EINTR
		}
		code := int32(b.info[1])
		if int32(b.info[0]) == 0 || code == cldTrapped || code == cldStopped {
			return false
		}
	}
	return true
}

// stackTop returns the end of a stopper's stack, and its thread pointer, which points into the
// zeroes above that.
func stackTop(mem []byte) (top, tls uintptr) {
	end := uintptr(unsafe.Pointer(&mem[len(mem)-1])) &^ 15
	return end - 256, end - 128
}

// await sleeps until the command was executed, for at most ns.
func (b *stopBlock) await(ns int64) bool {
	ts := [2]int64{ns / 1e9, ns % 1e9}
	if atomic.LoadUint32(&b.done) == 0 {
		wait(&b.done, 0, &ts)
		awake()
	}
	return atomic.LoadUint32(&b.done) == 1
}
