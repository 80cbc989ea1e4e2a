package view

import (
	"cmp"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/kind"
)

// For is what a thread waits for: its group, and the lock, file or peer by name. Waits
// for the same object have the same For, whatever the length of a sleep or the other
// arguments of the call.
type For struct {
	Group kind.Group
	What  string // "" if the group is enough
}

// String returns What, or the group's name.
func (f For) String() string {
	if f.What != "" {
		return f.What
	}
	return string(f.Group)
}

// For classifies the wait w; idle says that it is an idle wait.
func (v *View) For(w *diff.Waiting, idle bool) For {
	s, nr := w.State()
	switch {
	case idle:
		return For{Group: kind.GroupIdle}
	case s == stack.StateRunnable:
		return For{Group: kind.GroupCPU}
	case s == stack.StateStopped || s == stack.StateTraced:
		return For{Group: kind.GroupStopped}
	case s == stack.StateFault:
		return For{Group: kind.GroupMemory}
	}
	d := v.Wait(w)
	if lock := v.LockOf(w); lock != "" {
		if d != nil && d.Lock.Group() != kind.GroupLock {
			return For{Group: d.Lock.Group()}
		}
		return For{kind.GroupLock, lock}
	}
	call := v.Call(nr)
	if d == nil {
		return For{kind.GroupCall, call}
	}
	file := Text(d.Peer, maxWhat)
	if d.File != "" {
		file = Text(d.What(0), maxWhat)
	}
	switch g := d.Kind.Group(); {
	case g == kind.GroupCall:
	case g == kind.GroupPoll && d.Peer != "":
		return For{kind.GroupPeer, file}
	case d.Kind.File():
		return For{g, cmp.Or(v.FileGroup(d), file)}
	case g == kind.GroupIPC:
		return For{g, file}
	default:
		return For{Group: g}
	}
	if d.Call != "" {
		call = Text(d.Call, maxWhat)
	}
	return For{kind.GroupCall, call}
}
