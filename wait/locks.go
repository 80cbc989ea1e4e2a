package wait

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// futex resolves the lock of a futex call.
func (a *args) futex(f *lock.Futex) {
	if !f.Wait() {
		return // a wake operation, which the kernel blocks for its own reasons
	}
	r := a.r
	if r.c.GIL != nil {
		if g, ok := r.c.GIL(a.l.NSTID, f.Word); ok {
			a.gil(f, &g)
			return
		}
	}
	if r.c.Monitor != nil && a.l.NSTID != 0 {
		// While its object cannot be read, the thread may also be in the runtime's own code for it.
		if m, ok := r.c.Monitor(a.l.NSTID); ok && !(m.Unknown && lock.NativeMonitor(a.l.names())) {
			a.monitor(f, &m)
			return
		}
	}
	r.libc()
	w := lock.Wait{Futex: *f, SP: a.l.SP, NSTID: a.l.NSTID, Names: a.l.names(), Function: a.l.Function}
	if len(a.l.Frames) > 0 {
		w.Go, w.Native = a.l.Frames[0].Kind == stack.KindGo, a.l.Frames[0].Kind == stack.KindNative
	}
	l, err := lock.Recognise(&r.target, &w)
	if err != nil {
		a.miss("the lock word at %#x cannot be read: %v", f.Word, err)
	}
	a.info.Lock = &Lock{Lock: l, Key: Key{PID: r.c.PID, Addr: l.Addr}}
	if k := l.Kind.Wait(); k != kind.WaitLock {
		a.info.Kind, a.info.Lock = k, nil
		a.say("%s", l.Note)
		return
	}
	a.place(a.info.Lock)
	a.say("%s", a.info.Lock)
	if f.Timeout != 0 {
		a.until(f.Timeout, f.Clock)
	}
}

// Name adds the evidence of function names (leaf first) to a wait that was resolved
// without them and may have ended since. Only the names identify the wait of a
// runtime's own thread. It reports whether the Info changed.
func (i *Info) Name(names []string) bool {
	l := i.Lock
	if l == nil || l.Note != "" && l.Kind == kind.LockGoRuntime {
		return false
	}
	named, note := lock.ByNames(names)
	if note == "" || named != kind.LockIdle && l.Kind != kind.LockGoRuntime {
		return false
	}
	if k := named.Wait(); k != kind.WaitLock {
		i.Args = strings.Replace(i.Args, l.String(), note, 1)
		i.Kind, i.Lock = k, nil
		return true
	}
	old := l.String()
	l.Note = note
	i.Args = strings.Replace(i.Args, old, l.String(), 1)
	return true
}

// gil sets the wait to one for an interpreter's lock.
func (a *args) gil(f *lock.Futex, g *GIL) {
	l := lock.Lock{Addr: g.Addr, Word: f.Word, Kind: kind.LockGIL, Impl: g.Impl, Basis: lock.ByLayout, Holder: a.r.holdsGIL(g, a.l.NSTID)}
	a.info.Lock = &Lock{Lock: l, Key: Key{PID: a.r.c.PID, Addr: g.Addr}}
	a.say("%s", a.info.Lock)
	if f.Timeout != 0 {
		a.until(f.Timeout, f.Clock)
	}
}

// holdsGIL returns the holder of the lock that the thread nstid waits for. A thread that takes it marks it as
// locked first and enters itself as its holder then (take_gil in Python/ceval_gil.c); until then, the one that
// released it is in that place, which may be waiting for it again.
func (r *Resolver) holdsGIL(g *GIL, nstid int32) lock.Holder {
	if !g.Locked {
		return lock.Holder{Why: "not held at the moment"}
	}
	if g.Holder != 0 && g.Holder != nstid {
		if tid, ok := r.target.Thread(g.Holder, false); ok {
			return lock.Holder{TID: tid, NSTID: g.Holder, By: event.KnownByRuntime}
		}
	}
	return lock.Holder{Why: "it changed hands while it was read"}
}

func (r *Resolver) refreshGIL(th *Thread) (changed bool) {
	l := &th.info.Lock.Lock
	h := lock.Holder{Why: "the lock can no longer be read"}
	if r.c.GIL != nil {
		if g, ok := r.c.GIL(th.nstid, l.Word); ok {
			h = r.holdsGIL(&g, th.nstid)
		}
	}
	changed = h != l.Holder
	l.Holder = h
	return changed
}

// String describes the lock: "recursive mutex cache_lock", "rwlock (write) at 0x7f00".
func (l *Lock) String() string {
	s := string(l.Kind)
	switch {
	case l.Kind == kind.LockLibc && l.Type == lock.ArenaType:
		s = "lock of"
	case l.Kind == kind.LockRW && l.Type != "":
		s += " (" + l.Type + ")"
	case l.Type != "":
		s = l.Type + " " + s
	}
	if l.Basis == lock.Likely {
		s = "likely " + s
	}
	switch {
	case l.Kind == kind.LockFile:
		return s + " " + l.Path
	case l.Symbol != "":
		s += " " + l.Symbol
	case l.Kind != kind.LockGoScheduler:
		s += fmt.Sprintf(" at %#x", l.Addr)
	}
	if l.Shared {
		s += ", shared"
	}
	if l.Note != "" {
		s += " (" + l.Note + ")"
	}
	return s
}

// place names the lock and sets its key among the locks of all processes.
func (a *args) place(l *Lock) {
	r := a.r
	name := func() string {
		if r.c.LockName == nil {
			return ""
		}
		return r.c.LockName(&l.Lock)
	}
	if r.c.Data == nil {
		l.Symbol = name()
	} else if s, ok := r.c.Data(l.Addr); !ok {
		l.Symbol = name()
	} else {
		l.Symbol, l.Module = s.Name, s.Module
		own := ""
		if s.Name == "" || s.Offset != 0 { // inside a larger object, perhaps of a runtime
			own = name()
		}
		switch {
		case own != "":
			l.Symbol = own
		case s.Name == "" && l.Kind == kind.LockLibc && l.Type == lock.ArenaType: // the type is more specific
		case s.Name == "":
			l.Symbol = fmt.Sprintf("%s+%#x", path.Base(s.Module), s.Offset)
		case s.Offset != 0:
			l.Symbol += fmt.Sprintf("+%#x", s.Offset)
		}
	}
	if l.Symbol == "" && l.Kind == kind.LockLibc && l.Type == lock.ArenaType {
		l.Symbol = lock.ArenaType
	}
	if !l.Shared {
		return
	}
	k, shared, err := r.maps.place(l.Addr)
	switch {
	case err != nil:
		a.miss("whether the lock is shared: %v", err)
	case shared:
		l.Key = k
	default:
		l.Shared = false // shared by its flags, but in private memory of the process
	}
}

// nameHolder names the holder of a lock that processes share, if the holder is a thread
// of another process: users know only the target's own threads by number. l may be nil.
func (r *Resolver) nameHolder(l *Lock) {
	if l == nil {
		return
	}
	l.Other = ""
	tid := l.Holder.TID
	if tid == 0 || !l.Shared && l.Kind != kind.LockFile || r.c.Sys == nil {
		return
	}
	// A long wait is refreshed often, and few threads pass a lock on.
	now := r.c.Monotonic()
	o, ok := r.others[tid]
	if !ok || now > o.until {
		if o = (other{name: r.otherName(strconv.Itoa(int(tid))), until: now + otherTTL}); len(r.others) >= maxOthers || r.others == nil {
			r.others = map[stack.TID]other{}
		}
		r.others[tid] = o
	}
	l.Other = o.name
}

// other is the cached name of a thread of another process; "" for the target's own.
type other struct {
	name  string
	until int64
}

const (
	otherTTL  = 1e9 // ns
	maxOthers = 256
)

func (r *Resolver) otherName(tid string) string {
	if _, err := r.c.Proc.ReadFile("task/"+tid+"/comm", 64); err == nil {
		return "" // its own
	}
	comm, err := r.c.Sys.ReadFile(tid+"/comm", 64)
	if err != nil {
		return ""
	}
	status, err := r.c.Sys.ReadFile(tid+"/status", 4096)
	if err != nil {
		return ""
	}
	name := strings.TrimSuffix(string(comm), "\n")
	for line := range strings.Lines(string(status)) {
		if pid, ok := strings.CutPrefix(line, "Tgid:"); ok {
			if pid = strings.TrimSpace(pid); pid == tid {
				return fmt.Sprintf("%s (process %s)", name, pid)
			}
			return fmt.Sprintf("%s (%s of process %s)", name, tid, pid)
		}
	}
	return ""
}

// libc finds out, once, which C library's locks to expect.
func (r *Resolver) libc() {
	if !r.maps.libcKnown {
		r.target.Libc = r.maps.libc()
		r.maps.libcKnown = true
	}
}

// names returns the functions on the stack, as far as they are known.
func (l *Look) names() []string {
	if l.Names == nil {
		return nil
	}
	return l.Names()
}
