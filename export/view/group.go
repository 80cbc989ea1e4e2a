package view

import (
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
)

// Groups of waits.
const (
	GroupIdle     = "idle"
	GroupLock     = "lock"
	GroupGIL      = "GIL"
	GroupSleep    = "sleep"
	GroupFile     = "file"
	GroupPeer     = "peer" // the other end of a socket
	GroupPipe     = "pipe"
	GroupTerminal = "terminal"
	GroupEvent    = "event"
	GroupPoll     = "descriptors" // any of several descriptors
	GroupChild    = "child"
	GroupSignal   = "signal"
	GroupIPC      = "ipc"
	GroupMemory   = "page fault"
	GroupStopped  = "stopped"
	GroupCPU      = "cpu"
	GroupCall     = "call" // another system call
)

// For is what a thread waits for: its group, and the lock, file or peer by name. Waits
// for the same object have the same For, whatever the length of a sleep or the other
// arguments of the call.
type For struct {
	Group string
	What  string // "" if the group is enough
}

// String returns What, or the group's name.
func (f For) String() string {
	if f.What != "" {
		return f.What
	}
	return f.Group
}

// For classifies the wait w; idle says that it is an idle wait.
func (v *View) For(w *diff.Waiting, idle bool) For {
	s, nr := w.State()
	switch {
	case idle:
		return For{Group: GroupIdle}
	case s == stack.StateRunnable:
		return For{Group: GroupCPU}
	case s == stack.StateStopped || s == stack.StateTraced:
		return For{Group: GroupStopped}
	case s == stack.StateFault:
		return For{Group: GroupMemory}
	}
	d := v.Wait(w)
	if lock := v.LockOf(w); lock != "" {
		if d != nil && d.Lock == GroupGIL {
			return For{GroupGIL, ""}
		}
		return For{GroupLock, lock}
	}
	call := v.Call(nr)
	if d == nil {
		return For{GroupCall, call}
	}
	file := Text(d.Peer, maxWhat)
	if d.File != "" {
		file = Text(d.What(0), maxWhat)
	}
	switch d.Kind {
	case "sleep":
		return For{Group: GroupSleep}
	case "idle":
		return For{Group: GroupIdle}
	case "signal":
		return For{Group: GroupSignal}
	case "child":
		return For{Group: GroupChild}
	case "ipc":
		return For{Group: GroupIPC}
	case "page fault":
		return For{Group: GroupMemory}
	case "file":
		return For{GroupFile, file}
	case "socket":
		return For{GroupPeer, file}
	case "pipe":
		return For{GroupPipe, file}
	case "terminal":
		return For{GroupTerminal, file}
	case "event":
		return For{GroupEvent, file}
	case "poll":
		if d.Peer != "" {
			return For{GroupPeer, file}
		}
		return For{GroupPoll, file}
	case "lock":
		return For{Group: GroupLock}
	}
	if d.Call != "" {
		call = Text(d.Call, maxWhat)
	}
	return For{GroupCall, call}
}
