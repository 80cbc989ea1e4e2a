package analysis

import (
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/idle"
)

// Class says in one word what a thread that is off the CPUs waits for. The numbers are those on the wire.
type Class uint8

// Classes.
const (
	ClassNone  Class = iota // on a CPU, waiting for one, or not known
	ClassLock               // a lock, or the GIL
	ClassIO                 // a file, a socket, a pipe, a terminal, the disk, memory
	ClassSleep              // time to pass
	ClassOther
	ClassIdle // something to do: see package wait/idle
)

// GroupClass returns the class of a group of package view.
func GroupClass(group string) Class {
	switch group {
	case view.GroupIdle:
		return ClassIdle
	case view.GroupLock, view.GroupGIL:
		return ClassLock
	case view.GroupFile, view.GroupPeer, view.GroupPipe, view.GroupTerminal, view.GroupPoll, view.GroupMemory:
		return ClassIO
	case view.GroupSleep:
		return ClassSleep
	case view.GroupCPU:
		return ClassNone
	}
	return ClassOther
}

// ClassOf returns the class of a wait: w describes it (nil: nothing does), call is the name of the system
// call, and frames are the stack, innermost first.
func ClassOf(s stack.State, w *trace.Wait, call string, frames []idle.Frame) Class {
	switch s {
	case stack.StateDisk, stack.StateFault:
		return ClassIO
	case stack.StateStopped, stack.StateTraced:
		return ClassOther
	case stack.StateBlocked:
	default:
		return ClassNone
	}
	if idle.Of(w, call, frames) {
		return ClassIdle
	}
	if w == nil {
		return ClassOther
	}
	if w.Lock != "" {
		return ClassLock
	}
	switch w.Kind {
	case "lock":
		return ClassLock
	case "file", "socket", "pipe", "terminal", "poll", "page fault":
		return ClassIO
	case "sleep":
		return ClassSleep
	}
	return ClassOther
}
