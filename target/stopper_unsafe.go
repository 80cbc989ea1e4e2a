package target

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// What runs in a stopper: see stopper.go. There is no Go runtime there, so the
// rules of raw_unsafe.go hold for all of it, and one more: no pointer may be
// written, for the write barrier needs the runtime.

// stopBlock is what a stopper and its Tracer share. They take turns with it:
// the Tracer writes while done is 1, the stopper while it is 0.
type stopBlock struct {
	cmd    uint32 // atomic: what to do
	done   uint32 // atomic, a futex: the command was carried out
	late   uint32 // atomic: a thread is held that has not stopped yet
	quit   uint32 // atomic: there will be no further command
	parent uintptr
	self   uintptr // its schedstat, see resumed_unsafe.go; 0: it is not to be read

	tid, pid  uintptr // of the thread, and its process
	schedstat uintptr // the thread's file
	syscall   uintptr // another one
	check     bool    // do not stop a blocked thread
	since     int64   // when the tick began that the sample is of (clock_gettime, monotonic); 0: not known
	w         *Window
	spare     *Window // for the late thread: w is the Tracer's again by then

	end   int
	errno syscall.Errno // of the attaching
	cpu   [2]int64      // s and ns that the stopper has used
	ahead ahead
	// coming: the thread that is held is to be sampled when it stops; arrived: it was.
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
	callSignal  = syscall.SIGUSR1 // there is a command
	deathSignal = syscall.SIGUSR2 // the Tracer's OS thread has ended
	stopperSet  = 1<<(callSignal-1) | 1<<(deathSignal-1) | 1<<(syscall.SIGCHLD-1)

	clockProcess   = 2 // CLOCK_PROCESS_CPUTIME_ID
	prSetPDeathSig = 1
	prSetName      = 15
	futexWait      = 0x80 // private
	futexWake      = 0x81 // private

	// orphanFor is how long, in ns, a stopper whose program has ended waits for
	// a thread that does not stop.
	orphanFor = 10_000_000_000
	// holdEach is how often, in ns, it makes sure that the thread is still there.
	holdEach = 50_000_000
)

// cloneStopper makes the process, which begins in main: the address of stopperMain
// itself. What the compiler puts before a Go function that assembly names tells the
// race detector that the caller's thread is there, beside that thread. The thread pointer is one of its own: compiled
// Go reads the current goroutine by it, now and then, and the one of the thread
// that called may be unmapped when that thread has ended. There is no goroutine.
func cloneStopper(flags, stack, tls, main uintptr, b *stopBlock) (pid uintptr)

// load32 and store32 are atomic, like those of sync/atomic, which call into the
// runtime where the race detector is built in.
//
//go:noescape
func load32(p *uint32) uint32

//go:noescape
func store32(p *uint32, v uint32)

// stopperEntry is the address of stopperMain.
func stopperEntry() uintptr {
	f := stopperMain
	return **(**uintptr)(unsafe.Pointer(&f))
}

// stopperMain is the life of a stopper. All signals are masked.
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

// defaultAction gives a signal its default: masked, it is then kept for rest.
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

// rest sleeps until there is a command, a thread has stopped or ended, the
// program has ended, or ns are over (0: no matter how long). It returns the signal
// that says so, if one does.
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

// capture is one sample from attaching to letting go.
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
	// Attached: from here on the number is held. If the thread's own file
	// still answers, the number is its, and not that of a newer thread.
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

// hold waits for the thread to stop, and lets it go. It goes on to do so when
// the program has ended, for a while.
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
				// The program's files were shared: whoever waits for their end
				// need not wait for this.
				raw6(unix.SYS_CLOSE_RANGE, 0, 1<<31-1, 0, 0, 0, 0)
			}
			if now > until {
				return
			}
		}
		b.rest(holdEach)
	}
}

// sample is the end of a capture whose thread was late, if it has stopped.
//
//go:nosplit
//go:norace
func (b *stopBlock) sample(w *Window) {
	switch w.look(b.tid) {
	case lookStopped:
		// Else it was killed while it stood, or let go without a sample.
		b.arrived = w.finish(b.tid) == endDone
	case lookNothing:
		if b.attached() {
			return
		}
	}
	b.coming = false
}

// step tries to let the thread go, and reports whether nothing more is to be
// done for it.
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
			continue // killed while it stood: look again
		case lookDead:
			return b.bury()
		case lookNothing:
			if b.attached() {
				return false
			}
		}
		// It is gone by this number. If it went with an exec of its own, it is
		// attached still, and goes by the process's.
		if b.tid == b.pid {
			return true
		}
		b.tid = b.pid
		w.raw.before.call.Nr = -1
	}
}

// bury takes the status of a thread that ended. It looks before it takes: a
// stop that is taken here would be one that nobody sees.
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

// stackTop is the end of a stopper's stack, and where its thread pointer points:
// in the zeroes above that.
func stackTop(mem []byte) (top, tls uintptr) {
	end := uintptr(unsafe.Pointer(&mem[len(mem)-1])) &^ 15
	return end - 256, end - 128
}

// await sleeps until the command was carried out, for at most ns.
func (b *stopBlock) await(ns int64) bool {
	ts := [2]int64{ns / 1e9, ns % 1e9}
	if atomic.LoadUint32(&b.done) == 0 {
		wait(&b.done, 0, &ts)
	}
	return atomic.LoadUint32(&b.done) == 1
}
