package wait

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/files"
	"github.com/sliverprof/sliver/wait/lock"
)

// futex finds out which lock it is.
func (a *args) futex(f *lock.Futex) {
	if !f.Wait() {
		return // a waker; it is blocked by the kernel's own doing
	}
	r := a.r
	r.libc()
	w := lock.Wait{Futex: *f, SP: a.l.SP, NSTID: a.l.NSTID, Function: a.l.Function}
	if a.l.Names != nil {
		w.Names = a.l.Names()
	}
	if len(a.l.Frames) > 0 && a.l.Frames[0].Kind == stack.KindGo {
		w.Go = true
	}
	l, err := lock.Recognise(&r.target, &w)
	if err != nil {
		a.miss("the lock word at %#x cannot be read: %v", f.Word, err)
	}
	a.info.Lock = &Lock{Lock: l, Key: Key{PID: r.c.PID, Addr: l.Addr}}
	if l.Kind == lock.Sleep || l.Kind == lock.Poll { // a goroutine's
		a.info.Kind, a.info.Lock = KindSleep, nil
		if l.Kind == lock.Poll {
			a.info.Kind = KindPoll
		}
		a.say("%s", l.Note)
		return
	}
	a.place(a.info.Lock)
	a.say("%s", a.info.Lock)
	if f.Timeout != 0 {
		a.until(f.Timeout, f.Clock)
	}
}

// String is what to call the lock: "recursive mutex cache_lock", "rwlock
// (write) at 0x7f00".
func (l *Lock) String() string {
	s := string(l.Kind)
	switch {
	case l.Kind == lock.LowLevel && l.Type == lock.ArenaType:
		s = "lock of"
	case l.Kind == lock.RWLock && l.Type != "":
		s += " (" + l.Type + ")"
	case l.Type != "":
		s = l.Type + " " + s
	}
	if l.Basis == lock.Likely {
		s = "likely " + s
	}
	switch {
	case l.Kind == lock.File:
		return s + " " + l.Path
	case l.Symbol != "":
		s += " " + l.Symbol
	default:
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

// place names the lock and says which one it is among those of all processes.
func (a *args) place(l *Lock) {
	r := a.r
	if r.c.Data != nil {
		if s, ok := r.c.Data(l.Addr); ok {
			l.Symbol, l.Module = s.Name, s.Module
			if s.Offset != 0 {
				l.Symbol += fmt.Sprintf("+%#x", s.Offset)
			}
		}
	}
	if l.Symbol == "" && l.Kind == lock.LowLevel && l.Type == lock.ArenaType {
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
		l.Shared = false // shared by its flags, but in memory that is the process's own
	}
}

// nameHolder says who holds a lock that processes share, if that is a thread of
// another one: where only the target's own threads are known, its number alone
// says little. l may be nil.
func (r *Resolver) nameHolder(l *Lock) {
	if l == nil {
		return
	}
	l.Other = ""
	tid := l.Holder.TID
	if tid == 0 || !l.Shared && l.Kind != lock.File || r.c.Sys == nil {
		return
	}
	// Who waits long for a lock is asked for often, and few threads pass it on.
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

// other is what a thread of another process is called, for a while; "" for the
// target's own.
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

// libc finds out, once, whose locks to expect.
func (r *Resolver) libc() {
	if !r.maps.libcKnown {
		r.target.Libc = r.maps.libc()
		r.maps.libcKnown = true
	}
}

// flock: descriptor, operation.
func (a *args) flock() {
	const shared = 1 // LOCK_SH
	fd := int(int32(a.call.Args[0]))
	d := a.r.files.Describe(fd)
	typ := "exclusive flock"
	if a.call.Args[1]&shared != 0 {
		typ = "shared flock"
	}
	a.say("%d %s, %s", fd, d.Text, typ)
	a.on(&d)
	a.fileLock(fd, &d, typ, "FLOCK")
}

// fcntl: descriptor, command, struct flock {short type, whence; s64 start,
// length; int pid}.
func (a *args) fcntl() {
	const (
		setLockWait    = 7  // F_SETLKW
		ofdSetLockWait = 38 // F_OFD_SETLKW
		writeLock      = 1  // F_WRLCK
	)
	fd, cmd := int(int32(a.call.Args[0])), a.call.Args[1]
	d := a.r.files.Describe(fd)
	a.say("%d %s", fd, d.Text)
	if cmd != setLockWait && cmd != ofdSetLockWait {
		a.say("command %d", int32(cmd))
		a.on(&d)
		return
	}
	class, typ := "POSIX", "fcntl"
	if cmd == ofdSetLockWait {
		class, typ = "OFDLCK", "open file description"
	}
	var b [24]byte
	if a.read(b[:], a.call.Args[2], "the struct flock") {
		if binary.LittleEndian.Uint16(b[:]) == writeLock {
			typ = "write " + typ
		} else {
			typ = "read " + typ
		}
		start, n := int64(binary.LittleEndian.Uint64(b[8:])), int64(binary.LittleEndian.Uint64(b[16:]))
		switch {
		case n == 0 && start == 0:
		case n == 0:
			a.say("bytes from %d on", start)
		default:
			a.say("bytes %d to %d", start, start+n-1)
		}
	}
	a.say("%s lock", typ)
	a.info.Kind = KindLock
	a.on(&d)
	a.fileLock(fd, &d, typ, class)
}

// fileLock finds the holder of a file lock in /proc/locks.
func (a *args) fileLock(fd int, d *files.Desc, typ, class string) {
	r := a.r
	l := &Lock{Lock: lock.Lock{Kind: lock.File, Type: typ, Impl: "kernel", Basis: lock.ByCall, Shared: true}, Path: d.Text}
	l.Key = Key{Dev: class, Inode: 0}
	a.info.Lock = l
	var inode uint64
	if s, ok := r.c.Proc.(files.Stater); ok {
		if _, dev, n, err := s.Stat("fd/" + strconv.Itoa(fd)); err == nil {
			inode = n
			l.Key = Key{Dev: class + " " + strconv.FormatUint(dev, 16), Inode: n}
		}
	}
	if r.c.Sys == nil {
		l.Holder.Why = "/proc/locks is not looked at"
		return
	}
	all, err := files.Locks(r.c.Sys)
	if err != nil {
		l.Holder.Why = "/proc/locks: " + err.Error()
		if len(all) == 0 {
			return
		}
	}
	pid := r.c.PID
	if class == "OFDLCK" {
		pid = -1
	}
	w, ok := files.Waiter(all, class, pid, inode)
	if !ok {
		l.Holder.Why = "/proc/locks has no such wait (its file system may keep locks of its own)"
		return
	}
	var pids []string
	for _, h := range files.HoldersOf(all, &w) {
		switch {
		case h.PID > 0:
			pids = append(pids, strconv.Itoa(h.PID))
			if l.Holder.TID == 0 {
				l.Holder = lock.Holder{TID: stack.TID(h.PID), By: event.KnownByKernel}
			}
		case h.PID < 0 && l.Holder.TID == 0:
			l.Holder.Why = "held by an open file description, which may belong to several processes"
		case l.Holder.TID == 0:
			l.Holder.Why = "held by a process of another PID namespace, or of another machine"
		}
	}
	if len(pids) > 1 {
		l.Note = "held by " + strings.Join(pids, ", ")
	}
	if l.Holder.TID == 0 && l.Holder.Why == "" {
		l.Holder.Why = "/proc/locks does not show who holds it"
	}
}
