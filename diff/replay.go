package diff

import (
	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// Frame is one frame of a replayed stack.
type Frame struct {
	Word    event.Word
	Entered stack.Time
}

// Handler is told what the events of a thread say, in order. Depth 0 is the
// outermost frame. For frames entered and left at one time the order is that
// of the stack.
type Handler interface {
	// Enter: f is new on top, at depth. t is when it was first seen; for a
	// frame that a Sync brings back after a loss, when the reader knows of it
	// again (f.Entered may be earlier).
	Enter(t stack.Time, depth int, f Frame)
	// Exit: the frame on top, at depth, was no longer there at t.
	Exit(t stack.Time, depth int, f Frame)
	// Move: the frame on top goes on elsewhere; f is its new value.
	Move(t stack.Time, depth int, f Frame)
	// Other gets every event that is not about the stack's shape: Seen, State,
	// Lock, Holder, Gap, Pause, Rate, Wait, Mark, Sched, Task, Parked. State, Wait,
	// Lock, Holder and Task that a Sync repeats for others come only if they are news.
	Other(e event.Event)
}

// Replayer rebuilds a thread's stack from its events. The zero value is ready.
// Events that make no sense (an Exit of nothing, a second Sync inside a Sync)
// are dropped and counted, never trusted: recordings are foreign input.
type Replayer struct {
	Stack  []Frame // outermost first; for reading only
	Odd    int     // events that did not fit
	synced bool
	inSync int // Enter events of a Sync still to come
	base   int // frames of the running Sync got so far, when it restores
	resume bool
	tail   tail
	now    Waiting
	task   uint64     // payload of the Task in force
	at     stack.Time // time of the running Sync
	last   stack.Time
}

// tail is what of a Sync may still follow its frames.
type tail uint8

const (
	tailNone  tail = iota
	tailState      // State, then Wait, Lock, Holder and Task
	tailWait       // Wait, Lock, Holder and Task
)

// MaxDepth bounds a replayed stack against hostile recordings.
const MaxDepth = 1 << 20

// Last is the time of the newest event applied.
func (r *Replayer) Last() stack.Time { return r.last }

// Waiting is what the thread does and waits for as of the newest event applied.
func (r *Replayer) Waiting() Waiting { return r.now }

// Task is what the thread runs as of the newest event applied; the zero Task: none.
func (r *Replayer) Task() stack.Task { return event.TaskFields(r.task) }

// Apply hands e's meaning to h.
func (r *Replayer) Apply(e event.Event, h Handler) {
	k := e.Kind()
	if r.inSync > 0 {
		if k == event.Enter {
			r.inSync--
			r.syncFrame(e, h)
			return
		}
		r.Odd++
		r.inSync = 0
	}
	if r.repeated(e) {
		return
	}
	if !r.synced && k != event.Sync {
		// Nothing half-known is drawn. What is not about frames still holds.
		if k > event.Move {
			r.pass(e, h)
		}
		return
	}
	r.last = max(r.last, e.Time)
	switch k {
	case event.Exit:
		n := len(r.Stack) - 1
		if n < 0 {
			r.Odd++
			return
		}
		f := r.Stack[n]
		r.Stack = r.Stack[:n]
		h.Exit(e.Time, n, f)
	case event.Enter:
		if len(r.Stack) >= MaxDepth {
			r.Odd++
			return
		}
		f := Frame{event.Word(e.Payload()), e.Time}
		r.Stack = append(r.Stack, f)
		h.Enter(e.Time, len(r.Stack)-1, f)
	case event.Move:
		n := len(r.Stack) - 1
		if n < 0 {
			r.Odd++
			return
		}
		r.Stack[n].Word = event.Word(e.Payload())
		h.Move(e.Time, n, r.Stack[n])
	case event.Sync:
		if n := e.Payload(); n <= MaxDepth {
			r.inSync, r.base, r.resume, r.at = int(n), 0, !r.synced, e.Time
			r.synced, r.tail = true, tailState
		} else {
			r.Odd++
		}
	default:
		r.pass(e, h)
	}
}

func (r *Replayer) pass(e event.Event, h Handler) {
	if !e.Kind().Valid() {
		r.Odd++
		return
	}
	r.last = max(r.last, e.Time)
	if e.Kind() == event.Gap {
		if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
			r.Desync(e.Time, h)
		}
	}
	r.now.Apply(e)
	switch k := e.Kind(); {
	case k == event.Task:
		r.task = e.Payload()
	case k == event.Mark && (stack.Why(e.Payload()) == stack.WhyGone || stack.Why(e.Payload()) == stack.WhyExec):
		r.task = 0
	}
	h.Other(e)
}

// repeated reports whether e only tells behind a Sync's frames what is known.
func (r *Replayer) repeated(e event.Event) bool {
	t := r.tail
	r.tail = tailNone
	switch e.Kind() {
	case event.State:
		if t == tailState && e.Payload() == r.now.state {
			r.tail = tailWait
			return true
		}
	case event.Wait, event.Lock, event.Holder:
		if t == tailWait && r.now.repeats(e) {
			r.tail = tailWait
			return true
		}
	case event.Task:
		return t == tailWait && e.Payload() == r.task
	}
	return false
}

func (r *Replayer) syncFrame(e event.Event, h Handler) {
	if !r.resume {
		return // a reader that lost nothing knows this frame
	}
	f := Frame{event.Word(e.Payload()), e.Time}
	r.Stack = append(r.Stack, f)
	h.Enter(max(r.at, e.Time), len(r.Stack)-1, f)
}

// Desync says that events from here on were lost: every open frame is closed
// at t (the last time known to be good), and the next Sync begins anew.
func (r *Replayer) Desync(t stack.Time, h Handler) {
	r.CloseAll(t, h)
	r.synced, r.inSync, r.tail = false, 0, tailNone
	r.now, r.task = Waiting{}, 0
}

// CloseAll exits every open frame at t, innermost first.
func (r *Replayer) CloseAll(t stack.Time, h Handler) {
	for n := len(r.Stack) - 1; n >= 0; n-- {
		f := r.Stack[n]
		r.Stack = r.Stack[:n]
		h.Exit(t, n, f)
	}
}
