package analysis

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/idle"
	"github.com/sliverprof/sliver/wait/kind"
)

// ClassOf returns the class of a wait: w describes it (nil: nothing does), call is the name of the system
// call, and frames are the stack, innermost first.
func ClassOf(s stack.State, w *trace.Wait, call string, frames []idle.Frame) kind.Class {
	switch s {
	case stack.StateDisk, stack.StateFault:
		return kind.ClassIO
	case stack.StateStopped, stack.StateTraced:
		return kind.ClassOther
	case stack.StateBlocked:
	default:
		return kind.ClassNone
	}
	if idle.Of(w, call, frames) {
		return kind.ClassIdle
	}
	if w == nil {
		return kind.ClassOther
	}
	if w.Lock != kind.LockNone {
		return kind.ClassLock
	}
	return w.Kind.Group().Class()
}
