package diff

import (
	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// Waiting is what a thread does and what it waits for, as its events up to now
// say. The zero value knows nothing.
//
// A State begins anew: what came before it belongs to another wait, also where
// it repeats the state. A Lock forgets the holder of the one before.
type Waiting struct{ state, wait, lock, holder uint64 } // payloads

// Apply takes in an event and reports whether it was about the wait.
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

// State of the thread, and the number of the system call that it is in (-1: none).
func (w *Waiting) State() (stack.State, int32) { return event.StateFields(w.state) }

// Wait is the number of a description in the recording; 0: there is none.
func (w *Waiting) Wait() int { return int(w.wait & (1<<31 - 1)) }

// Lock is the address of the lock it waits for; 0: none.
func (w *Waiting) Lock() uint64 { return w.lock }

// Holder is who holds what it waits for, and how that is known; 0: not known.
func (w *Waiting) Holder() (stack.TID, event.KnownBy) { return event.HolderFields(w.holder) }

// repeats reports whether e says of the wait what is known already.
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

// Append appends events at t that say all of w to a reader that knows nothing.
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
