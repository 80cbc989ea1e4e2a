package diff

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Frame is one frame of a replayed stack.
type Frame struct {
	Word    event.Word
	Entered stack.Time
}

// Handler receives the meaning of a thread's events, in order. Depth 0 is the outermost frame.
// Frames entered and left at the same time are reported in the order of the stack.
type Handler interface {
	// Enter: f is new on top, at depth. t is the time at which it was first seen. For a frame
	// that a Sync restores after a loss, t is the time from which the reader knows it again
	// (f.Entered may be earlier).
	Enter(t stack.Time, depth int, f Frame)
	// Exit: the frame on top, at depth, no longer existed at t.
	Exit(t stack.Time, depth int, f Frame)
	// Move: the frame on top continues at another place; f is its new value.
	Move(t stack.Time, depth int, f Frame)
	// Other receives every event that does not concern the stack's shape: Seen, State, Lock,
	// Holder, Gap, Pause, Rate, Wait, Mark, Sched, Task, Parked. A Sync repeats State, Wait,
	// Lock, Holder and Task; Other receives these only if they are new.
	Other(e event.Event)
}

// Replayer rebuilds a thread's stack from its events. The zero value is ready. Invalid events (an
// Exit without a frame, a second Sync inside a Sync) are dropped and counted: recordings are
// untrusted input.
type Replayer struct {
	Stack  []Frame // outermost first; read-only
	Odd    int     // number of invalid events
	synced bool
	inSync int // remaining Enter events of a Sync
	base   int // frames of the current Sync so far, if it restores
	resume bool
	tail   tail
	now    Waiting
	task   uint64     // payload of the current Task
	at     stack.Time // time of the current Sync
	last   stack.Time
}

// tail is the part of a Sync that may still follow its frames.
type tail uint8

const (
	tailNone  tail = iota
	tailState      // State, then Wait, Lock, Holder and Task
	tailWait       // Wait, Lock, Holder and Task
)

// MaxDepth bounds a replayed stack against hostile recordings.
const MaxDepth = 1 << 20

// Last returns the time of the newest event applied.
func (r *Replayer) Last() stack.Time { return r.last }

// Waiting returns the thread's state and wait as of the newest event applied.
func (r *Replayer) Waiting() Waiting { return r.now }

// Task returns the task that the thread runs as of the newest event applied; the zero Task: none.
func (r *Replayer) Task() stack.Task { return event.TaskFields(r.task) }

// Apply passes e's meaning to h.
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
		// An incomplete stack is not shown. Events that do not concern frames are still valid.
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

// repeated reports whether e only repeats a known value after a Sync's frames.
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
		return // a reader without loss has this frame
	}
	f := Frame{event.Word(e.Payload()), e.Time}
	r.Stack = append(r.Stack, f)
	h.Enter(max(r.at, e.Time), len(r.Stack)-1, f)
}

// Desync records that events were lost from here on: every open frame is closed at t (the last
// time known to be valid), and the next Sync starts again.
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
