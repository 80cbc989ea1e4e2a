package diff

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Waiting is a thread's state and wait according to its events so far. The zero value is unknown.
//
// A State resets it: earlier values belong to another wait, even if the state is the same. A Lock
// resets the holder of the previous lock.
type Waiting struct{ state, wait, lock, holder uint64 } // payloads

// Apply applies an event and reports whether it concerned the wait.
func (w *Waiting) Apply(e event.Event) bool {
	p := e.Payload()
	switch e.Kind() {
	case event.State:
		*w = Waiting{state: p}
	case event.Wait:
		w.wait = p
	case event.Lock:
		w.lock, w.holder = p, 0
	case event.Holder:
		w.holder = p
	case event.Gap:
		if why, _ := event.GapFields(p); why != stack.WhyLost {
			return false
		}
		*w = Waiting{}
	case event.Mark:
		if why := stack.Why(p); why != stack.WhyGone && why != stack.WhyExec {
			return false
		}
		w.wait, w.lock, w.holder = 0, 0, 0
	default:
		return false
	}
	return true
}

// State returns the thread's state, and the number of the system call that it is in (-1: none).
func (w *Waiting) State() (stack.State, int32) { return event.StateFields(w.state) }

// Sampled returns the state that the last sample found. It is that of State, unless that is Exact.
func (w *Waiting) Sampled() stack.State { return event.StateSampled(w.state) }

// Exact reports whether the kernel's context switches show the state and its time.
func (w *Waiting) Exact() bool { return w.state&event.StateExact != 0 }

// GIL reports whether the thread held its interpreter's global lock.
func (w *Waiting) GIL() bool { return w.state&event.StateGIL != 0 }

func statePayload(s stack.State, nr int32, gil bool) uint64 {
	p := event.StateOf(s, nr)
	if gil {
		p |= event.StateGIL
	}
	return p
}

// Wait returns the number of a description in the recording; 0: none.
func (w *Waiting) Wait() int { return int(w.wait & (1<<31 - 1)) }

// Lock returns the address of the lock it waits for; 0: none.
func (w *Waiting) Lock() uint64 { return w.lock }

// Holder returns the thread that holds the lock, and how that is known; 0: unknown.
func (w *Waiting) Holder() (stack.TID, event.KnownBy) { return event.HolderFields(w.holder) }

// repeats reports whether e repeats the current value of the wait.
func (w *Waiting) repeats(e event.Event) bool {
	p := e.Payload()
	switch e.Kind() {
	case event.Wait:
		return p == w.wait
	case event.Lock:
		return p == w.lock
	case event.Holder:
		return p == w.holder
	}
	return false
}

// Append appends events at t that transfer w completely to a reader without state.
func (w *Waiting) Append(out []event.Event, t stack.Time) []event.Event {
	if w.state != 0 {
		out = append(out, event.Make(t, event.State, w.state))
	}
	return w.appendWait(out, t)
}

func (w *Waiting) appendWait(out []event.Event, t stack.Time) []event.Event {
	if w.wait != 0 {
		out = append(out, event.Make(t, event.Wait, w.wait))
	}
	if w.lock != 0 {
		out = append(out, event.Make(t, event.Lock, w.lock))
	}
	if w.holder != 0 {
		out = append(out, event.Make(t, event.Holder, w.holder))
	}
	return out
}
