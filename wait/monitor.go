package wait

import (
	"cmp"
	"fmt"

	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// Monitor describes a thread of a managed runtime, at one moment, that waits for an
// object without a lock word.
type Monitor struct {
	Impl    string    // the runtime: lock.Lock.Impl
	Kind    kind.Lock // Monitor, Synchronizer, ClassInit, Mutex, Join, Semaphore, Cond, Park, Sleep or Idle
	Text    string    // describes a wait of kind Sleep or Idle; a note about others, "Object.wait"
	Addr    uint64    // 0: it waits for no object
	Class   string    // of the object; "": unknown
	Unknown bool      // the object or its holder could not be read at that moment
	Locked  bool
	Holder  int32 // TID in the target's PID namespace; 0: none, or unknown
	Readers int
	Why     string // a remark about the holder, or why there is none
}

// monitor sets the wait to one for a runtime's lock.
func (a *args) monitor(f *lock.Futex, m *Monitor) {
	limit := func() {
		if f.Timeout != 0 {
			a.until(f.Timeout, f.Clock)
		}
	}
	if k := m.Kind.Wait(); k != kind.WaitLock {
		a.info.Kind = k
		a.say("%s", m.Text)
		if k == kind.WaitSleep {
			limit()
		}
		return
	}
	l := lock.Lock{Addr: m.Addr, Word: f.Word, Kind: m.Kind, Type: m.Class, Impl: m.Impl, Note: m.Text, Basis: lock.ByLayout}
	if m.Addr == 0 {
		l.Addr = f.Word
	}
	switch m.Kind {
	case kind.LockMonitor, kind.LockSynchronizer, kind.LockClassInit, kind.LockMutex, kind.LockJoin:
		l.Holder = a.r.holdsMonitor(m)
		if m.Why != "" && l.Holder.TID != 0 {
			l.Note = m.Why
		}
	case kind.LockCond:
		l.Holder.Why = "it is waited for a notification"
	default:
		l.Holder.Why = "a " + string(m.Kind) + " has no holder"
	}
	if m.Unknown {
		l.Basis = lock.ByNothing // it is resolved again
		l.Holder = lock.Holder{Why: "what it waits for cannot be read at the moment"}
	}
	a.info.Lock = &Lock{Lock: l, Key: Key{PID: a.r.c.PID, Addr: l.Addr}}
	a.say("%s", a.info.Lock)
	// A thread that waits to enter a monitor or for a mutex wakes from time to time to
	// check it, and never gives up.
	if m.Kind != kind.LockMonitor && m.Kind != kind.LockMutex {
		limit()
	}
}

func (r *Resolver) holdsMonitor(m *Monitor) lock.Holder {
	switch {
	case m.Readers > 0:
		return lock.Holder{Readers: m.Readers, Why: fmt.Sprintf("%d have it for reading", m.Readers)}
	case !m.Locked:
		return lock.Holder{Why: "not held at the moment"}
	case m.Holder != 0:
		if tid, ok := r.target.Thread(m.Holder, false); ok {
			return lock.Holder{TID: tid, NSTID: m.Holder, By: event.KnownByRuntime}
		}
	}
	return lock.Holder{Why: cmp.Or(m.Why, "its holder could not be found")}
}

// refreshMonitor reads the current holder.
func (r *Resolver) refreshMonitor(th *Thread) (changed bool) {
	l := &th.info.Lock.Lock
	h := lock.Holder{Why: "the lock can no longer be read"}
	note := l.Note
	switch {
	case r.c.Monitor == nil:
	case l.Kind == kind.LockMonitor, l.Kind == kind.LockMutex:
		locked, tid := r.c.MonitorOwner(l.Addr)
		h = r.holdsMonitor(&Monitor{Locked: locked, Holder: tid})
	default:
		// The object may have been moved: only the thread has its current address.
		m, ok := r.c.Monitor(th.nstid)
		switch {
		case ok && m.Unknown:
			h.Why, note = "it cannot be read at the moment", "" // the former holder may have released it
		case ok && m.Kind == l.Kind && m.Class == l.Type:
			h = r.holdsMonitor(&m)
			if note = m.Text; m.Why != "" && h.TID != 0 {
				note = m.Why
			}
		default:
			h.Why = "it changed hands while it was read"
		}
	}
	changed = h != l.Holder || note != l.Note
	l.Holder, l.Note = h, note
	return changed
}
