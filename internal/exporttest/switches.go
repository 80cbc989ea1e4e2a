package exporttest

import (
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Off adds a time of a thread off the CPUs: asleep until wake, then waiting for a CPU. Times are in ns after Start.
// A waker without a TID is unknown.
func (b *Builder) Off(tid int, out, wake, in int64, waker trace.Waker, by event.WokenBy) {
	n := -1
	if waker.TID != 0 {
		if n = slices.Index(b.wakers, waker); n < 0 {
			n = len(b.wakers)
			b.wakers = append(b.wakers, waker)
		}
	}
	b.switches = append(b.switches, trace.Switch{TID: stack.TID(tid), Out: Start + stack.Time(out), Wake: Start + stack.Time(wake), In: Start + stack.Time(in),
		State: stack.StateBlocked, Waker: n, By: by})
}

// KernelStack gives the last time off the CPUs the kernel's functions that it was spent in, innermost first.
func (b *Builder) KernelStack(names ...string) {
	b.kernel = append(b.kernel, names)
	b.switches[len(b.switches)-1].Stack = len(b.kernel)
}
