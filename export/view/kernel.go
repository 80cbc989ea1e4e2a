package view

import (
	"iter"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// events returns the events of a thread, with kernel frames if requested.
func (v *View) events(seq int) iter.Seq[event.Event] {
	if !v.kernel {
		return v.Rec.Fitted(seq)
	}
	return func(yield func(event.Event) bool) {
		k := &kernel{v: v, yield: yield}
		for e := range v.Rec.Fitted(seq) {
			if !k.apply(e) {
				return
			}
		}
		k.settle()
	}
}

// kernel adds a frame such as "[kernel] futex" on top of a thread's stack while the
// thread is blocked in a system call or a page fault. The events are those that a sampler
// of kernel stacks would write.
type kernel struct {
	v     *View
	yield func(event.Event) bool

	synced bool
	sync   uint64 // remaining Enter events of a Sync
	depth  int    // of the stack, without the kernel frame
	tail   bool   // the State that a Sync repeats may follow
	state  uint64 // current payload; 0: none
	want   event.Word
	since  stack.Time // when want began
	wanted bool       // want goes on the stack once the stack is complete
	open   bool       // the frame is on the stack
}

// apply passes on e. It returns false if yield did.
func (k *kernel) apply(e event.Event) bool {
	tail := k.tail
	k.tail = false
	if k.sync > 0 {
		k.sync--
		if e.Kind() == event.Enter {
			k.depth++
			k.tail = k.sync == 0
			return k.yield(e)
		}
		k.sync = 0 // it announced too many frames
	}
	switch e.Kind() {
	case event.Enter, event.Exit, event.Move:
		// The frames of a sample follow its State, with the same time.
		if k.wanted && e.Time > k.since && !k.settle() || !k.leave(e.Time) {
			return false
		}
		switch {
		case !k.synced:
		case e.Kind() == event.Enter:
			k.depth++
		case e.Kind() == event.Exit:
			k.depth = max(k.depth-1, 0)
		}
	case event.Sync:
		if k.synced {
			if !k.settle() {
				return false
			}
		} else {
			k.synced = true
			k.since = e.Time
		}
		k.depth, k.sync, k.tail = 0, e.Payload(), e.Payload() == 0
	case event.State:
		if tail && k.synced && e.Payload() == k.state {
			break
		}
		if k.wanted && e.Time > k.since && !k.settle() || !k.leave(e.Time) {
			return false
		}
		k.state, k.since = e.Payload(), e.Time
		k.want, k.wanted = k.v.kernelFrame(e.Payload())
	case event.Gap:
		if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
			if !k.leave(e.Time) {
				return false
			}
			k.synced, k.wanted, k.state, k.depth = false, false, 0, 0
			break
		}
		if !k.settle() {
			return false
		}
	case event.Mark:
		if why := stack.Why(e.Payload()); why == stack.WhyGone || why == stack.WhyExec {
			k.wanted = false
		}
	default:
		if !k.settle() {
			return false
		}
	}
	return k.yield(e)
}

// settle adds the frame to the stack, which is now complete.
func (k *kernel) settle() bool {
	if !k.wanted || k.open || !k.synced || k.depth == 0 {
		return true
	}
	k.open = true
	return k.yield(event.Make(k.since, event.Enter, uint64(k.want)))
}

// leave removes the frame before the stack changes at t. It is added again if the thread
// still waits.
func (k *kernel) leave(t stack.Time) bool {
	if !k.open {
		return true
	}
	k.open, k.since = false, max(k.since, t)
	return k.yield(event.Event{Time: t})
}

// kernelFrame returns the frame for a State's payload; false if the thread is not known
// to be in the kernel.
func (v *View) kernelFrame(payload uint64) (event.Word, bool) {
	s, nr := event.StateFields(payload)
	what := v.Call(nr)
	if s == stack.StateFault {
		nr, what = -1, "page fault"
	}
	if what == "" || s == stack.StateRunning || !Waits(s) {
		return 0, false
	}
	w := event.WordOf(&stack.Frame{PC: uint64(nr + 2), Kind: stack.KindKernel, Trust: stack.TrustRegs, Exact: true, Func: 1})
	v.Names.Call(w, "[kernel] "+Text(what, 64))
	return w, true
}
