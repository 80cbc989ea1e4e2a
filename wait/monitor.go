package wait

import (
	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/wait/lock"
)

// Monitor is a lock of a managed runtime that a thread waits for, at one moment.
type Monitor struct {
	Addr    uint64
	Class   string // of the object; "": not known
	Waiting bool   // for somebody to notify it, not for the lock
	Locked  bool
	Holder  int32 // TID as the target's PID namespace has it; 0: nobody, or not known
}

// monitor makes it a wait for a runtime's lock.
func (a *args) monitor(f *lock.Futex, m *Monitor) {
	l := lock.Lock{Addr: m.Addr, Word: m.Addr, Kind: lock.Monitor, Type: m.Class, Impl: "hotspot", Basis: lock.ByLayout, Holder: a.r.holdsMonitor(m.Locked, m.Holder)}
	if m.Waiting {
		l.Kind, l.Type = lock.Cond, ""
		if l.Note = "Object.wait"; m.Class != "" {
			l.Note += " of " + m.Class
		}
		l.Holder = lock.Holder{Why: "it is waited for a notification"}
	}
	a.info.Lock = &Lock{Lock: l, Key: Key{PID: a.r.c.PID, Addr: m.Addr}}
	a.say("%s", a.info.Lock)
	// Who wants to enter wakes now and then to look, and gives up never.
	if f.Timeout != 0 && m.Waiting {
		a.until(f.Timeout, f.Clock)
	}
}

func (r *Resolver) holdsMonitor(locked bool, holder int32) lock.Holder {
	if !locked {
		return lock.Holder{Why: "nobody holds it at the moment"}
	}
	if holder != 0 {
		if tid, ok := r.target.Thread(holder, false); ok {
			return lock.Holder{TID: tid, NSTID: holder, By: event.KnownByRuntime}
		}
	}
	return lock.Holder{Why: "its holder could not be found"}
}

// refreshMonitor reads who has it by now.
func (r *Resolver) refreshMonitor(l *lock.Lock) (changed bool) {
	h := lock.Holder{Why: "the lock can no longer be read"}
	if r.c.MonitorOwner != nil {
		h = r.holdsMonitor(r.c.MonitorOwner(l.Word))
	}
	changed = h != l.Holder
	l.Holder = h
	return changed
}
