package ruby

import (
	"errors"
	"io"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// Language is the row of Ruby in the list of languages.
var Language = &lang.Language{
	Name:   "Ruby",
	Stacks: Stacks,
	Range:  managed.Of(stack.KindRuby),
	Final: func(err error) bool {
		var version *VersionError
		return errors.As(err, &version)
	},
	Open: func(s *unwind.Space, st unwind.Stepper) lang.Runtime {
		return &process{mem: s.Memory(), follow: st.(*Stepper).Follower}
	},
}

// process is the CRuby of a process.
type process struct {
	lang.None
	mem    io.ReaderAt
	follow *Follower
}

// lockTries bounds how often a lock is read if it changes hands during the read.
const lockTries = 3

// GlobalLock implements lang.Runtime: the lock of the Ractor to which a thread belongs.
func (p *process) GlobalLock(thread int32, word uint64) (g wait.GIL, ok bool) {
	s, ok := p.follow.state(thread)
	if !ok || !p.follow.rt.Waits(p.mem, s, word) {
		return g, false
	}
	for range lockTries {
		l, err := p.follow.rt.LockOf(p.mem, s.Ractor)
		if err != nil {
			return g, false
		}
		g = wait.GIL{Addr: l.Addr, Impl: "cruby", Locked: l.Running != 0, Holder: p.follow.rt.Holder(p.mem, s.Ractor, l)}
		if !g.Locked || g.Holder != 0 {
			break
		}
	}
	return g, true
}

// kinds maps the waits of Ruby's threads to kinds of locks.
var kinds = [...]kind.Lock{Locking: kind.LockMutex, Waiting: kind.LockCond, Popping: kind.LockCond, Pushing: kind.LockCond, Joining: kind.LockJoin,
	Sleeping: kind.LockSleep, Suspended: kind.LockSleep}

// texts describes waits, or names what their kind does not say.
var texts = [...]string{Waiting: "ConditionVariable#wait", Popping: "Queue#pop", Pushing: "SizedQueue#push", Joining: "Thread#join",
	Sleeping: "Kernel#sleep", Suspended: "Mutex#sleep"}

// Monitor implements lang.Runtime.
func (p *process) Monitor(thread int32) (m wait.Monitor, ok bool) {
	s, ok := p.follow.state(thread)
	if !ok {
		return m, false
	}
	w, ok := p.follow.rt.Wanted(p.mem, s)
	if !ok {
		return m, false
	}
	m = wait.Monitor{Impl: lock.Ruby, Kind: kinds[w.Sort], Addr: w.Addr, Class: w.Class, Text: texts[w.Sort], Locked: w.Locked, Holder: w.Holder}
	switch w.Sort {
	case Locking, Waiting, Joining: // the kind says which class it is
		m.Class = "Ruby"
	}
	return m, true
}

// MonitorOwner implements lang.Runtime.
func (p *process) MonitorOwner(addr uint64) (locked bool, holder int32) {
	return p.follow.rt.MutexOwner(p.mem, addr)
}
