package target

import (
	"syscall"
	"unsafe"

	"github.com/sliverprof/sliver/stack"
)

// To let a thread go wakes it. If it has been on the CPU of whoever did that, the scheduler
// may give it that CPU at once; who let it go comes to read the clock when the thread has
// run for a while, often for milliseconds. That is no part of the pause. So for how long it
// has waited for a CPU itself is read right before and after (the second number of its
// schedstat, which grows when it is given one again). Who runs before all others (setFIFO)
// need not.

// leastWaited, in ns, is the least time from a stop to the clock after it of which it is
// asked what part was such waiting.
const leastWaited = 100_000

// waited is for how long, in ns, the caller has waited for CPUs in its life; -1: it is not
// known.
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

// resumed takes from Resumed for how long the caller has waited for a CPU since it had
// waited for so long in its life, which was right before it let the thread go.
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
	// All of it was before this clock, not before the one that Resumed is by.
	at := w.clock() - (after - before)
	w.Resumed = min(w.Resumed, max(stack.Time(at), w.Stopped))
}
