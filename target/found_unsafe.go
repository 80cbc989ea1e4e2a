package target

import (
	"slices"
	"syscall"
	"unsafe"
)

// A sample's state is decided at one moment, right before the request to stop. CPU time is
// credited to samples that found the thread on a CPU, and two checks that must agree would miss
// the start of each burst of work between two sleeps. The evidence:
//
//	/proc/TID/syscall before the request   running (or runnable), or blocked
//	schedstat before it and at the stop    equal switch counts: the thread was on a CPU throughout
//
// A check before attaching avoids the stop of a blocked thread.

// Activity is a thread's activity right before it was asked to stop.
type Activity uint8

// Activities.
const (
	ActivityUnknown Activity = iota
	ActivityOnCPU            // it was on a CPU
	ActivityQueued           // it waited for a CPU
	ActivityAsleep           // it was blocked: the stop woke it
)

// found collects the evidence for an Activity.
type found struct {
	looks   bool      // evidence is being collected
	ran     bool      // the thread was not asleep before the request
	left    bool      // it fell asleep during the check, and was on a CPU before
	cut     bool      // the stop interrupted that call
	first   [64]byte  // schedstat before the request
	after   [64]byte  // schedstat at the stop
	call    [128]byte // /proc/TID/syscall before the request
	nfirst  int
	nafter  int
	since   int64   // when the stopper began this tick, or this look (clock_gettime, monotonic)
	counted uintptr // the thread's schedstat, open
	calls   uintptr // its syscall file, open
}

// lookBefore reports whether the thread runs or waits for a CPU. If it is blocked, left says
// whether it was on a CPU at the start of the check. since is when the tick began; 0: now.
//
//go:nosplit
//go:norace
func (w *Window) lookBefore(schedstat, call uintptr, since int64) bool {
	f := &w.raw.found
	if f.since = since; since == 0 {
		f.since = w.clock()
	}
	f.looks, f.counted, f.calls, f.nafter, f.cut = true, schedstat, call, 0, false
	n, errno := raw6(syscall.SYS_PREAD64, schedstat, uintptr(unsafe.Pointer(&f.first)), uintptr(len(f.first)), 0, 0, 0)
	if errno != 0 {
		n = 0
	}
	f.nfirst = int(n)
	f.check()
	f.left = false
	if !f.ran && f.nfirst > 0 {
		// The kernel sets the state of a thread before it gives up its CPU, and answers this file
		// after that. CPU time used since the first counters proves that it was still running
		// then.
		n, errno = raw6(syscall.SYS_PREAD64, schedstat, uintptr(unsafe.Pointer(&f.after)), uintptr(len(f.after)), 0, 0, 0)
		for i := 0; errno == 0 && i < int(n) && i < f.nfirst && f.first[i] != ' '; i++ {
			f.left = f.left || f.after[i] != f.first[i]
		}
	}
	return f.ran
}

// attached is for a thread that was seen running or waiting for a CPU and may stop at any later
// time. Its files may be closed by then. A read then fails or returns another file's content; at
// worst, one sample of an ended thread is wrong.
//
//go:nosplit
//go:norace
func (f *found) attached(schedstat uintptr, since int64) {
	f.looks, f.ran, f.counted, f.nafter, f.cut = true, true, schedstat, 0, false
	f.since = since
}

// check reads whether the thread runs or waits for a CPU. The last check before the request,
// after attaching, decides: this keeps the time between check and stop as short as possible.
//
//go:nosplit
//go:norace
func (f *found) check() {
	n, errno := raw6(syscall.SYS_PREAD64, f.calls, uintptr(unsafe.Pointer(&f.call)), uintptr(len(f.call)), 0, 0, 0)
	f.ran = errno != 0 || n == 0 || f.call[0] == 'r' // "running"; in doubt the stop decides
}

// lookAt reads the counters at the stop: the thread may have got a CPU only to stop. It costs one
// pread.
//
//go:nosplit
//go:norace
func (w *Window) lookAt() {
	f := &w.raw.found
	if !f.looks {
		return
	}
	f.cut = nativeCut(&w.raw.regs)
	n, errno := raw6(syscall.SYS_PREAD64, f.counted, uintptr(unsafe.Pointer(&f.after)), uintptr(len(f.after)), 0, 0, 0)
	if errno == 0 {
		f.nafter = int(n)
	}
}

// found evaluates the evidence of a stop. A thread that got a CPU after the check was waiting for one
// then. It counts as on a CPU if it lost that CPU to sliver's own stopper: see preempted. o is the
// thread's.
func (w *Window) found(o *wakes) Activity {
	f := &w.raw.found
	if !f.looks {
		if nr, result := nativeResult(&w.raw.regs); nr >= 0 && timedOut(nativeKind(nr), nr, result) {
			return ActivityQueued // it waited for a CPU to leave its call
		}
		return ActivityUnknown
	}
	if !f.ran {
		return ActivityAsleep
	}
	var after Counters
	if parseSchedstat(f.after[:f.nafter], &after) != nil {
		return ActivityUnknown
	}
	switch after.Switches - w.Counters.Switches {
	case 0:
		return ActivityOnCPU
	case 1:
		if f.cut || w.preempted(&after, o) { // cut: it fell asleep between the check and the stop
			return ActivityOnCPU
		}
	}
	return ActivityQueued
}

const (
	// preemptSlack is the error, in ns, of the moment since which a thread waited for a CPU: the
	// stopper's own wake-up, and the switch to it at the stop.
	preemptSlack = 30_000
	// outsideSlack is the same for a thread outside of system calls. It cannot have woken from one,
	// so it was preempted: by the stopper, or by the thread that woke the stopper a moment earlier.
	outsideSlack = 100_000
)

// preempted reports whether the thread lost its CPU to sliver at this tick. The time that it waited
// for a CPU ends when it got one to stop, so the difference of its counters says when that wait
// began. A sleep that a timer ended at the tick looks the same, since a timer interrupt expires all
// timers whose slack has begun; timedOut excludes it. wakes accounts for other wakes. On a single CPU,
// each sample of a running thread is of this kind.
func (w *Window) preempted(after *Counters, o *wakes) bool {
	at := int64(w.Stopped) - (after.CPU - w.Counters.CPU) - (after.Delay - w.Counters.Delay) - w.raw.found.since
	nr, result := nativeResult(&w.raw.regs)
	if nr < 0 {
		return at >= -outsideSlack
	}
	return !timedOut(nativeKind(nr), nr, result) && o.preempted(nr, at)
}

// wakes separates threads that were preempted at a tick from threads that woke from a call at that
// moment and wait for a CPU: the counters of both look alike. Wakes are independent of ticks, so as many
// fall into the time before preemptions can begin as into an equal time around the tick. Each wake
// in the former excludes one candidate in the latter.
type wakes struct {
	seen [6]seenWakes
	next uint8 // of seen, to be replaced by a call that is not there
}

type seenWakes struct {
	nr int32 // of the call, plus 1
	n  int8
}

const maxWakes = 16 // seen and not accounted for: a thread's habits change

// preempted decides for a thread in call nr that began to wait for a CPU at ns after the tick.
func (o *wakes) preempted(nr int32, at int64) bool {
	i := slices.IndexFunc(o.seen[:], func(s seenWakes) bool { return s.nr == nr+1 })
	if i < 0 {
		i = int(o.next)
		o.seen[i] = seenWakes{nr: nr + 1}
		o.next = uint8((i + 1) % len(o.seen))
	}
	s := &o.seen[i]
	const from, to = -preemptSlack, preemptSlack / 3 // to: the clocks of two CPUs
	switch {
	case at > to, at < from-(to-from):
		return false
	case at < from:
		s.n = min(s.n+1, maxWakes)
		return false
	case s.n > 0:
		s.n--
		return false
	}
	return true
}

// timedOut reports whether a call that ended with a result slept until a timer went off. Such sleeps
// end together with sliver's own: a timer interrupt expires all timers whose slack has begun.
func timedOut(k kind, nr int32, result int64) bool {
	const again, timeout = -11, -110 // EAGAIN, ETIMEDOUT
	switch k {
	case kindEpoll, kindEpoll2, kindSelect, kindEvents:
		return result == 0
	case kindSemTimed, kindSigWait:
		return result == again
	case kindExact:
		switch nr {
		case nativeNanosleep, nativeClockNanosleep, nativePoll:
			return result == 0
		case nativeFutex:
			return result == timeout
		}
	}
	return false
}

// asleep returns the error for a blocked thread that was not stopped.
func (w *Window) asleep() error {
	if w.raw.found.left {
		return ErrLeft
	}
	return ErrAsleep
}
