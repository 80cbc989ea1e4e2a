package target

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Tracer stops threads. The kernel ties tracing to an OS thread: NewTracer and every method
// except Wake must be called by one goroutine that is locked to its OS thread
// (runtime.LockOSThread) until Close.
type Tracer struct {
	osThread int
	mask     uint64  // of the OS thread before NewTracer
	inner    bool    // the OS thread already has another Tracer, which is closed later
	wake     int     // eventfd
	self     uintptr // see resumed_unsafe.go
	timer    int32
	late     []late
	spare    *Window

	resting *stopper   // ready for the next stop; nil: not started yet
	spares  []*stopper // further idle stoppers
	keeping []*stopper // each with a thread that has not stopped
	herd    *herd      // nil: not needed yet
	noHerd  bool       // no herd can be started
	alone   bool       // no stopper can be used: this OS thread makes the stops
	proved  bool       // stoppers are permitted to trace
	cpu     atomic.Int64
	spins   spins
	ahead   []*Window // for GoAhead
	taken   []*Window // of the last run
	arrived []Arrival
	used    []*Window // windows that Arrived returned
	windows []*Window // windows for late stops

	// guard reaps late threads that die while this OS thread may be waiting for the exec that
	// waits for them.
	guard struct {
		sync.Mutex
		tids    []int
		running bool
	}
	closed atomic.Bool
}

// late is a thread that is attached and has not stopped yet.
type late struct {
	tid    int
	pid    int
	child  bool       // of a child process of this program
	thread *Thread    // nil for a thread renumbered by exec
	before callBefore // see raw
}

// status reports whether the exit status must be left to os.Process.Wait, because the thread is a
// child process of this program.
func (l *late) status() bool { return l.child && l.tid == l.pid }

// NewTracer prepares the calling OS thread for short windows. It masks all signals there except
// those of the thread's own faults, including the Go runtime's preemption signal (SIGURG), and
// makes its sleeps exact. From then on, stops of child processes do not send SIGCHLD to this
// process. An OS thread may have several Tracers: the first one is closed last.
func NewTracer() (*Tracer, error) {
	tr := &Tracer{osThread: unix.Gettid(), spare: NewWindow(1)}
	var err error
	if tr.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	if tr.timer, err = newTimer(tr.osThread, alarmSignal); err != nil {
		unix.Close(tr.wake)
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	tr.spare.raw.timer = tr.timer
	tr.self = openWaited("/proc/thread-self/schedstat")
	if tr.mask, err = setMask(maskInWindow); err != nil {
		deleteTimer(tr.timer)
		unix.Close(tr.wake)
		tr.closeSelf()
		return nil, fmt.Errorf("mask signals: %w", err)
	}
	// Two signals cannot be masked, and the returned mask lacks them.
	const never = 1<<(unix.SIGKILL-1) | 1<<(unix.SIGSTOP-1)
	if tr.inner = tr.mask|never == maskInWindow|never; tr.inner {
		return tr, nil
	}
	setSlice(shortSlice)
	if err := errors.Join(
		changeAction(unix.SIGCHLD, saNoCldStop, 0),
		changeAction(alarmSignal, 0, saRestart),
		unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)); err != nil {
		tr.Close()
		return nil, fmt.Errorf("set up signals and timer slack: %w", err)
	}
	return tr, nil
}

// shortSlice is about the duration of one sample, in ns. A stopper inherits it.
const shortSlice = 100_000

// alarmSignal ends a sleep at its deadline: the last realtime signal, sent to the sleeping OS
// thread. The Go runtime's handler ignores it; without SA_RESTART, its delivery is sufficient.
const alarmSignal = unix.Signal(64)

// maskInWindow is every signal except those that the thread causes itself (faults, abort) and the
// three that libc and the Go runtime use to make a system call in all threads.
const maskInWindow = math.MaxUint64 &^ (1<<(unix.SIGILL-1) | 1<<(unix.SIGTRAP-1) | 1<<(unix.SIGABRT-1) |
	1<<(unix.SIGBUS-1) | 1<<(unix.SIGFPE-1) | 1<<(unix.SIGSEGV-1) | 1<<(32-1) | 1<<(33-1) | 1<<(34-1) |
	1<<(alarmSignal-1))

// Capture takes one sample of t by stopping it: attach, stop, registers, memory, release. When it
// returns, the thread runs and is not traced, with one exception: after ErrTimeout it is still
// attached, and released once it stops. After ErrLater, Arrived then returns its sample, or an
// error. Errors: ErrTimeout, ErrGone, ErrTraced (another tracer has it), ErrDenied; any other
// error is unexpected and describes the failure. A short read of memory is not an error: see
// Window.
func (tr *Tracer) Capture(t *Thread, w *Window) error {
	w.reset()
	tr.recall()
	if t.late.Load() || len(tr.late) > 0 && tr.holds(int(t.tid)) {
		return ErrTimeout
	}
	if err := t.prepare(w); err != nil {
		return err
	}
	// More is Go code, which a stopper cannot run. Targets that need it are Go programs, whose
	// runtime repeats a call that ended with EINTR.
	if w.More == nil {
		s := tr.stopper()
		if s == nil && !tr.alone {
			return ErrTimeout // all of them keep threads that do not stop
		}
		if s != nil {
			if w.Later && (tr.proved || !t.child) { // see captureBy
				if !tr.herds(t, w) {
					tr.captureLater(s, t, w)
				}
				return ErrLater
			}
			if err, ok := tr.captureBy(s, t, w); ok {
				return err
			}
		}
	}
	tid := int(t.tid)
	if !w.lookBefore(uintptr(t.schedstat), uintptr(t.syscall), 0) && w.Check {
		return w.asleep()
	}
	for try := 1; ; try++ {
		errno := seize(tid)
		if errno == 0 {
			break
		}
		if err := t.refused(errno); err != ErrDenied || try == seizeTries {
			return err
		}
	}
	// Attached: from now on the number is reserved. If the thread's own file still answers, the
	// number belongs to this thread and not to a newer one.
	if err := t.Counters(&w.Counters); err != nil {
		tr.abandon(t)
		return err
	}
	w.raw.found.check()
	w.raw.timer, w.raw.self = tr.timer, tr.self
	w.raw.wantTLS, w.raw.gotTLS = !t.hasTLS, false
	end := w.stop(uintptr(tid))
	if end == endLate {
		end = w.wait(uintptr(tid))
	}
	if w.raw.armed {
		w.alarm(0)
	}
	switch end {
	case endDone:
		tr.done(t, w)
		return nil
	case endLate:
		t.late.Store(true)
		tr.keep(late{tid: tid, pid: t.pid, child: t.child, thread: t, before: w.raw.before})
		return ErrTimeout
	case endDead:
		tr.bury(late{tid: tid, pid: t.pid, child: t.child, thread: t, before: w.raw.before})
		return ErrGone
	case endGone:
		// This thread's exec changed its number: it now has the process's number and is still
		// attached.
		if tid != t.pid {
			tr.bury(late{tid: t.pid, pid: t.pid, child: t.child, before: noCall})
		}
		return ErrGone
	}
	if w.raw.errno == unix.ESRCH {
		return ErrGone
	}
	return fmt.Errorf("sample thread %d: %w", tid, w.raw.errno)
}

// done converts the data of a window.
func (tr *Tracer) done(t *Thread, w *Window) {
	w.fill()
	w.Found = w.found(&t.wakes)
	t.want = w.want
	if w.raw.gotTLS {
		t.tls, t.hasTLS = w.raw.tls, true
	}
	if w.Regs.TLS == 0 {
		w.Regs.TLS = t.tls
	}
}

// wait continues after stop has given up, now with notification of the Go scheduler.
func (w *Window) wait(tid uintptr) int {
	for {
		left := int64(w.Asked) + w.Deadline - w.clock()
		if left <= 0 {
			return endLate
		}
		w.alarm(min(left, recheckEach))
		switch w.blockKnown(tid) {
		case lookStopped:
			return w.finish(tid)
		case lookDead:
			return endDead
		case lookNoThread:
			return endGone
		}
		if !attached(tid) {
			return endGone
		}
	}
}

// recheckEach is how often, in ns, a wait checks that the thread can still stop.
const recheckEach = 2_000_000

// holds reports whether the thread is still attached after an attempt to release it.
func (tr *Tracer) holds(tid int) bool {
	tr.Reap()
	return slices.ContainsFunc(tr.late, func(l late) bool { return l.tid == tid })
}

// seizeTries is how often an unexplained refusal is tried again: while a thread takes over its
// process by exec, the number first belongs to the dead first thread (refused) and then to the
// new one.
const seizeTries = 4

// try looks once, and does the rest of the window if the thread has stopped.
func (w *Window) try(tid uintptr) (end int, over bool) {
	switch w.look(tid) {
	case lookStopped:
		return w.finish(tid), true
	case lookDead:
		return endDead, true
	case lookNoThread:
		return endGone, true
	}
	if !attached(tid) {
		return endGone, true
	}
	return endLate, false
}

// refused determines the reason for a refusal.
func (t *Thread) refused(errno unix.Errno) error {
	if errno == unix.ESRCH {
		return ErrGone
	}
	if errno != unix.EPERM {
		return fmt.Errorf("attach to thread %d: %w", t.tid, errno)
	}
	if s, err := t.State(); err != nil || s == stack.StateDead {
		return ErrGone
	}
	p := &Process{pid: t.pid}
	if dir, err := unix.Open(fmt.Sprintf("/proc/%d/task/%d", t.pid, t.tid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		defer unix.Close(dir)
		p.dir = dir
		if _, status, err := p.status(""); err == nil && status.TracerPid != 0 {
			if ownThread(status.TracerPid) {
				return ErrTimeout // late, for another Tracer of this program
			}
			return ErrTraced
		}
	}
	return ErrDenied
}

// abandon releases a thread that was attached by mistake: a newer one with the same number.
func (tr *Tracer) abandon(t *Thread) {
	tid := int(t.tid)
	w := tr.spare
	w.Spans, w.StackDefault = nil, 1
	w.reset()
	w.raw.before = noCall
	end := w.stop(uintptr(tid))
	if w.raw.armed {
		w.alarm(0)
	}
	if end == endLate || end == endDead {
		tr.keep(late{tid: tid, pid: t.pid, child: t.child, before: noCall})
	}
}

// keep adds a thread to be released later.
func (tr *Tracer) keep(l late) {
	tr.late = append(tr.late, l)
	g := &tr.guard
	g.Lock()
	defer g.Unlock()
	if !l.status() {
		g.tids = append(g.tids, l.tid)
	}
	if !g.running && len(g.tids) > 0 {
		g.running = true
		go tr.watch()
	}
}

// noCall is the callBefore of an unknown call.
var noCall = callBefore{call: stack.Call{Nr: -1}}

// guardEvery is how often the guard looks for dead late threads.
const guardEvery = 50 * time.Millisecond

// watch reaps late threads that die. A thread that calls exec waits until every other thread of
// its process is reaped, and holds a lock that attaching to any of them waits for. Without
// another OS thread, which may reap for its whole process, the three would wait for each other.
func (tr *Tracer) watch() {
	g := &tr.guard
	for {
		time.Sleep(guardEvery)
		g.Lock()
		for i := 0; i < len(g.tids); {
			if err := reap(g.tids[i]); err == nil || err == unix.ECHILD {
				g.tids = append(g.tids[:i], g.tids[i+1:]...)
			} else {
				i++
			}
		}
		if len(g.tids) == 0 {
			g.running = false
			g.Unlock()
			return
		}
		g.Unlock()
	}
}

// forget removes a released thread from the guard.
func (tr *Tracer) forget(tid int) {
	g := &tr.guard
	g.Lock()
	defer g.Unlock()
	for i, x := range g.tids {
		if x == tid {
			g.tids = append(g.tids[:i], g.tids[i+1:]...)
			return
		}
	}
}

// bury reaps a dead thread now, if possible, or later.
func (tr *Tracer) bury(l late) {
	if !tr.release(&l) {
		tr.keep(l)
	}
}

// Reap releases every late thread that has stopped since. It costs one system call for each
// thread kept by this OS thread, and none for threads kept by stoppers, which release them. Call
// it at each tick.
func (tr *Tracer) Reap() {
	tr.settle()
	tr.recall()
	for i := 0; i < len(tr.late); {
		if !tr.release(&tr.late[i]) {
			i++
			continue
		}
		tr.forget(tr.late[i].tid)
		last := len(tr.late) - 1
		tr.late[i] = tr.late[last]
		tr.late[last] = late{}
		tr.late = tr.late[:last]
	}
}

// Rest prepares the Tracer for the threads of another process, and drops windows of more than most bytes. It returns
// false if the Tracer has to be closed: a thread has not stopped yet.
func (tr *Tracer) Rest(most int) bool {
	if tr.Reap(); tr.Late() > 0 || tr.closed.Load() {
		return false
	}
	tr.arrived, tr.used, tr.taken = nil, nil, nil
	large := func(w *Window) bool { return len(w.buf) > most }
	tr.ahead, tr.windows = slices.DeleteFunc(tr.ahead, large), slices.DeleteFunc(tr.windows, large)
	return true
}

// OSThread returns the number of the calling OS thread.
func OSThread() int { return unix.Gettid() }

// CPU returns the CPU time in ns that stops have used in stoppers, which SelfCPU does not
// include. It may be called from any goroutine.
func (tr *Tracer) CPU() int64 { return tr.cpu.Load() }

// Spent returns the CPU time in ns of the calling OS thread, which is the Tracer's (0: unknown), and of its
// stoppers.
func (tr *Tracer) Spent() (thread, stoppers int64) {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0, tr.CPU()
	}
	return ts.Nano(), tr.CPU()
}

// Late returns how many threads are still attached because they did not stop.
func (tr *Tracer) Late() int {
	n := len(tr.late) + len(tr.keeping)
	if tr.herd != nil {
		n += tr.herd.held
	}
	return n
}

// release reports whether l is finished.
func (tr *Tracer) release(l *late) bool {
	w := tr.spare
	w.Spans, w.StackDefault = nil, 1
	w.reset()
	w.raw.before = l.before
	end, over := w.try(uintptr(l.tid))
	if !over {
		return false
	}
	switch end {
	case endDead:
		if !l.status() {
			if err := reap(l.tid); errors.Is(err, unix.EAGAIN) {
				return false // killed, and still exiting
			}
		} else if w.look(uintptr(l.tid)) == lookStopped {
			return false
		}
	case endGone:
		if l.tid != l.pid {
			// See Capture: exec may have moved it.
			l.tid, l.before = l.pid, noCall
			if l.thread != nil {
				l.thread.late.Store(false)
				l.thread = nil
			}
			return tr.release(l)
		}
	}
	if l.thread != nil {
		l.thread.late.Store(false)
	}
	return true
}

// closeLimit bounds how long Close waits for late threads, in ns.
const closeLimit = 100_000_000

// Close releases all threads and restores the OS thread's signals. A thread that sleeps
// uninterruptibly and does not stop within 100 ms can only be released by the end of the calling
// OS thread. Then Close returns ErrTimeout, and the caller should let its goroutine end without
// unlocking it, which also ends the OS thread.
func (tr *Tracer) Close() error {
	if tr.closed.Swap(true) {
		return nil
	}
	end := monotonic() + closeLimit
	for tr.Reap(); tr.Late() > 0 && monotonic() < end; tr.Reap() {
		ts := unix.NsecToTimespec(closeLimit / 100)
		_ = unix.Nanosleep(&ts, nil)
	}
	if tr.resting != nil {
		tr.resting.close()
		tr.resting = nil
	}
	for _, s := range append(tr.keeping, tr.spares...) {
		s.close()
	}
	tr.keeping, tr.spares = nil, nil
	if tr.herd != nil {
		tr.herd.close()
		tr.herd = nil
	}
	unix.Close(tr.wake)
	tr.closeSelf()
	deleteTimer(tr.timer)
	if !tr.inner {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // 0: back to the default
		setSlice(0)
		if _, err := setMask(tr.mask); err != nil {
			return fmt.Errorf("unmask signals: %w", err)
		}
	}
	if len(tr.late) > 0 {
		return ErrTimeout
	}
	return nil
}

func (tr *Tracer) closeSelf() {
	if tr.self != 0 {
		unix.Close(int(tr.self))
		tr.self = 0
	}
}

// SleepUntil sleeps until t. It returns earlier, with true, if Wake was called since the last
// SleepUntil that returned true.
func (tr *Tracer) SleepUntil(t stack.Time) (woken bool) {
	tr.Ask()
	fd := unix.PollFd{Fd: int32(tr.wake), Events: unix.POLLIN}
	for {
		left := max(int64(t-monotonic()), 0)
		if left == 0 {
			return tr.woken()
		}
		ts := [2]int64{left / 1e9, left % 1e9}
		n, errno := sleep(&fd, 1, &ts)
		awake()
		if n > 0 && errno == 0 {
			return tr.woken()
		}
		if errno == 0 && monotonic() >= t || errno != 0 && errno != unix.EINTR {
			return false
		}
	}
}

// woken consumes all wakes since the last call.
func (tr *Tracer) woken() bool {
	var b [8]byte
	n, err := unix.Read(tr.wake, b[:])
	return n == len(b) && err == nil
}

// Wake ends the current or the next SleepUntil. It may be called from any goroutine until Close
// begins.
func (tr *Tracer) Wake() {
	if tr.closed.Load() {
		return
	}
	_, _ = unix.Write(tr.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // full: it is awake
	runtime.KeepAlive(tr)
}

// Now reads CLOCK_MONOTONIC, the clock of all times in this package.
func Now() stack.Time { return monotonic() }

func monotonic() stack.Time { return stack.Time(nanotime()) }
