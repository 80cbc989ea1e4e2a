package target

import (
	"syscall"
	"unsafe"

	"github.com/sliverprof/sliver/stack"
)

// Resumed correction: releasing a thread wakes it. If it was on the CPU of the process that
// released it, the scheduler may give it that CPU at once. The releasing process then reads the
// clock only after the thread has run for a while, often for milliseconds, and that time does not
// belong to the pause. So its own waiting time for CPUs is read right before and after (the
// second number of its schedstat, which grows when it is given a CPU). A process with priority
// over all others (setFIFO) need not do this.

// leastWaited is the least time, in ns, from a stop to the clock reading after it for which the
// correction is made.
const leastWaited = 100_000

// waited returns how long, in ns, the caller has waited for CPUs in total; -1: unknown.
//
//go:noinline
//go:nosplit
//go:norace
func (w *Window) waited() int64 {
	if w.raw.self == 0 {
		return -1
	}
	own := &w.raw.own
	n, errno := raw6(syscall.SYS_PREAD64, w.raw.self, uintptr(unsafe.Pointer(own)), uintptr(len(own)), 0, 0, 0)
	if errno != 0 || n > uintptr(len(own)) {
		return -1
	}
	i := 0
	for i < int(n) && own[i] != ' ' {
		i++
	}
	v := int64(0)
	for i++; i < int(n) && own[i]-'0' <= 9; i++ {
		v = v*10 + int64(own[i]-'0')
	}
	if i >= int(n) { // the third number is missing
		return -1
	}
	return v
}

// resumed subtracts from Resumed the time that the caller waited for a CPU since before, its
// total right before it released the thread.
//
//go:noinline
//go:nosplit
//go:norace
func (w *Window) resumed(before int64) {
	if before < 0 || int64(w.Resumed-w.Stopped) < leastWaited {
		return
	}
	after := w.waited()
	if after <= before {
		return
	}
	// All of it was before this clock reading, but not necessarily before that of Resumed.
	at := w.clock() - (after - before)
	w.Resumed = min(w.Resumed, max(stack.Time(at), w.Stopped))
}
