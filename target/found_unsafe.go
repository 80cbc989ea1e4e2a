package target

import (
	"syscall"
	"unsafe"
)

// A sample's state is decided at one moment, right before the request to stop. CPU time is credited
// to samples that found the thread on a CPU, and two checks that must agree would miss the start of
// each burst of work between two sleeps. The evidence:
//
//	/proc/TID/syscall before the request   running (or runnable), or blocked
//	schedstat before it and at the stop    equal switch counts: the thread was on a CPU throughout

// Activity is what a thread did right before it was asked to stop.
type Activity uint8

// What it may have done.
const (
	ActivityUnknown Activity = iota
	ActivityOnCPU            // it was on a CPU
	ActivityQueued           // it waited for a CPU
	ActivityAsleep           // it was blocked: the stop woke it
)

// found collects the evidence for an Activity.
type found struct {
	looks   bool      // evidence is being collected
	ran     bool      // the thread was in no sleep before the request
	left    bool      // it fell asleep during the check, and was on a CPU before
	inCall  bool      // it stopped at the end of a system call, and may have slept in it
	cut     bool      // the stop cut that call short
	first   [64]byte  // schedstat before the request
	after   [64]byte  // schedstat at the stop
	call    [128]byte // /proc/TID/syscall before the request
	nfirst  int
	nafter  int
	counted uintptr  // the thread's schedstat, open
	woke    [2]int64 // when the deciding and the stopping thread of sliver got a CPU
}

// lookBefore reports whether the thread runs or waits for a CPU. If it is blocked, left says
// whether it was on a CPU at the start of the check.
//
//go:nosplit
//go:norace
func (w *Window) lookBefore(schedstat, call uintptr) bool {
	f := &w.raw.found
	f.looks, f.counted, f.nafter, f.cut = true, schedstat, 0, false
	f.woke[0], f.woke[1] = int64(w.Woke), w.clock()
	n, errno := raw6(syscall.SYS_PREAD64, schedstat, uintptr(unsafe.Pointer(&f.first)), uintptr(len(f.first)), 0, 0, 0)
	if errno != 0 {
		n = 0
	}
	f.nfirst = int(n)
	n, errno = raw6(syscall.SYS_PREAD64, call, uintptr(unsafe.Pointer(&f.call)), uintptr(len(f.call)), 0, 0, 0)
	f.ran = errno != 0 || n == 0 || f.call[0] == 'r' // "running"; in doubt the stop decides
	f.left = false
	if !f.ran && f.nfirst > 0 {
		// The kernel sets the state of a thread before it gives up its CPU, and answers this file
		// after that. CPU time used since the first counters proves that it was still running then.
		n, errno = raw6(syscall.SYS_PREAD64, schedstat, uintptr(unsafe.Pointer(&f.after)), uintptr(len(f.after)), 0, 0, 0)
		for i := 0; errno == 0 && i < int(n) && i < f.nfirst && f.first[i] != ' '; i++ {
			f.left = f.left || f.after[i] != f.first[i]
		}
	}
	return f.ran
}

// lookAt reads the counters at the stop: the thread may have got a CPU only to stop. It costs
// one pread.
//
//go:nosplit
//go:norace
func (w *Window) lookAt() {
	f := &w.raw.found
	if !f.looks {
		return
	}
	f.inCall, f.cut = nativeMayHaveSlept(&w.raw.regs), nativeCut(&w.raw.regs)
	n, errno := raw6(syscall.SYS_PREAD64, f.counted, uintptr(unsafe.Pointer(&f.after)), uintptr(len(f.after)), 0, 0, 0)
	if errno == 0 {
		f.nafter = int(n)
	}
}

// A stopper goes before other threads, so it may take the CPU of the thread that it samples. Then
// the thread's wait for a CPU began when one of sliver's threads woke, which separates it from a
// thread that woke from a sleep at another time.
const (
	preemptedBefore = 15_000 // ns
	preemptedAfter  = 40_000 // ns: until the call that it was in has ended
)

// found weighs the evidence of a stop.
func (w *Window) found() Activity {
	f := &w.raw.found
	if !f.looks {
		if f.inCall = w.Call.Nr >= 0; f.inCall && w.mayHaveSlept() {
			return ActivityQueued // it waited for a CPU to leave its call
		}
		return ActivityUnknown
	}
	if !f.ran {
		return ActivityAsleep
	}
	var first, after Counters
	if parseSchedstat(f.first[:f.nfirst], &first) != nil || parseSchedstat(f.after[:f.nafter], &after) != nil {
		return ActivityUnknown
	}
	got := after.Switches - first.Switches
	if got == 0 || got == 1 && f.cut { // cut: it fell asleep between the request and the stop
		return ActivityOnCPU
	}
	since := int64(w.Stopped) - (after.Delay - first.Delay) // when its wait for a CPU began
	if !f.inCall && since >= min(f.woke[0], f.woke[1])-preemptedBefore {
		return ActivityOnCPU // it has not slept
	}
	for _, woke := range f.woke {
		if since >= woke-preemptedBefore && since <= woke+preemptedAfter && !w.mayHaveSlept() {
			return ActivityOnCPU
		}
	}
	return ActivityQueued
}

// mayHaveSlept reports whether the thread stopped at the end of a call of a kind that mostly
// waits, or of an unknown kind.
func (w *Window) mayHaveSlept() bool {
	if !w.raw.found.inCall || w.Call.Nr < 0 {
		return w.raw.found.inCall
	}
	switch nativeKind(w.Call.Nr) {
	case kindOther, kindWrite, kindMove:
		return false
	}
	return true
}

// asleep is the error for a blocked thread that was not stopped.
func (w *Window) asleep() error {
	if w.raw.found.left {
		return ErrLeft
	}
	return ErrAsleep
}
