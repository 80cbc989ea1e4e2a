package wait

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/linux/files"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// flock: descriptor, operation.
func (a *args) flock() {
	const shared = 1 // LOCK_SH
	fd := int(int32(a.call.Args[0]))
	d := a.r.files.Describe(fd)
	w := line{class: "FLOCK", write: a.call.Args[1]&shared == 0, ranged: true, end: 1<<64 - 1}
	typ := "exclusive flock"
	if !w.write {
		typ = "shared flock"
	}
	a.say("%d %s, %s", fd, d.Text, typ)
	a.on(&d)
	a.fileLock(fd, &d, typ, w)
}

// fcntl: descriptor, command, struct flock {short type, whence; s64 start,
// length; int pid}.
func (a *args) fcntl() {
	const (
		setLockWait    = 7  // F_SETLKW
		ofdSetLockWait = 38 // F_OFD_SETLKW
		writeLock      = 1  // F_WRLCK
		fromStart      = 0  // SEEK_SET
	)
	fd, cmd := int(int32(a.call.Args[0])), a.call.Args[1]
	d := a.r.files.Describe(fd)
	a.say("%d %s", fd, d.Text)
	if cmd != setLockWait && cmd != ofdSetLockWait {
		a.say("command %d", int32(cmd))
		a.on(&d)
		return
	}
	w, typ := line{class: "POSIX"}, "fcntl"
	if cmd == ofdSetLockWait {
		w.class, typ = "OFDLCK", "open file description"
	}
	var b [24]byte
	if a.read(b[:], a.call.Args[2], "the struct flock") {
		if w.write = binary.LittleEndian.Uint16(b[:]) == writeLock; w.write {
			typ = "write " + typ
		} else {
			typ = "read " + typ
		}
		start, n := int64(binary.LittleEndian.Uint64(b[8:])), int64(binary.LittleEndian.Uint64(b[16:]))
		w.start, w.end = uint64(start), uint64(start)+uint64(n)-1
		if n == 0 {
			w.end = 1<<64 - 1
		}
		w.ranged = binary.LittleEndian.Uint16(b[2:]) == fromStart && start >= 0 && n >= 0
		switch {
		case n == 0 && start == 0:
		case n == 0:
			a.say("bytes from %d on", start)
		default:
			a.say("bytes %d to %d", start, start+n-1)
		}
	}
	a.say("%s lock", typ)
	a.info.Kind = kind.WaitLock
	a.on(&d)
	a.fileLock(fd, &d, typ, w)
}

// fileLock resolves the lock, and its holder if this Resolver reads the list itself.
func (a *args) fileLock(fd int, d *files.Desc, typ string, w line) {
	r := a.r
	l := &Lock{Lock: lock.Lock{Kind: kind.LockFile, Type: typ, Impl: "kernel", Basis: lock.ByCall, Shared: true}, Path: d.Text}
	l.Key = Key{Dev: w.class, Inode: 0}
	a.info.Lock = l
	l.line = w
	l.line.pid = r.c.PID
	if w.class == "OFDLCK" {
		l.line.pid, l.line.ranged = -1, false
	}
	if s, ok := r.c.Proc.(files.Stater); ok {
		if _, dev, n, err := s.Stat("fd/" + strconv.Itoa(fd)); err == nil {
			l.line.dev, l.line.inode = dev, n
			l.Key = Key{Dev: w.class + " " + strconv.FormatUint(dev, 16), Inode: n}
		}
	}
	switch {
	case r.c.Sys == nil:
		l.Holder.Why = "/proc/locks is not looked at"
	case r.c.LocksLater:
		l.Holder.Why = "the wait was over before /proc/locks was read, which takes some ms"
	default:
		l.tell(ReadFileLocks(r.c.Sys))
	}
}

// line describes a waiting thread by the fields of its line in /proc/locks.
type line struct {
	class string
	pid   int    // -1: the lock belongs to an open file description
	dev   uint64 // as in stat(2)
	inode uint64 // 0: unknown
	write bool   // the lock is exclusive
	// ranged: the range of bytes from start to end is known.
	ranged     bool
	start, end uint64
}

// FileLocks is one reading of /proc/locks. It is read-only, so several goroutines may
// use it.
type FileLocks struct {
	all []files.FileLock
	err error
}

// ReadFileLocks reads /proc/locks of sys. It takes several ms, because the kernel first
// waits until no CPU is working on a file lock (percpu_down_write in fs/locks.c,
// locks_start). The list is valid at the end of that time.
func ReadFileLocks(sys files.Dir) *FileLocks {
	all, err := files.Locks(sys)
	return &FileLocks{all, err}
}

// NoFileLocks returns a list that could not be read because of err.
func NoFileLocks(err error) *FileLocks { return &FileLocks{err: err} }

// Len returns the number of locks in the list.
func (f *FileLocks) Len() int { return len(f.all) }

// This sets the holder of l from all.
func (l *Lock) tell(all *FileLocks) (changed bool) {
	h, note, found := all.holder(&l.line)
	if !found && l.Holder.TID != 0 {
		return false // the thread was woken and has not run yet: the last holder is the one it waited for
	}
	changed = h != l.Holder || note != l.Note
	l.Holder, l.Note = h, note
	return changed
}

// holder returns the process whose lock blocks the thread. found: the thread's wait is in the list.
func (f *FileLocks) holder(w *line) (h lock.Holder, note string, found bool) {
	l, found := files.Waiter(f.all, w.class, w.pid, w.inode)
	switch {
	case !found && f.err != nil:
		h.Why = "/proc/locks: " + f.err.Error()
		return h, "", false
	case !found:
		h.Why = "/proc/locks has no such wait (its file system may keep locks of its own)"
		return h, "", false
	}
	var pids []string
	for _, x := range files.HoldersOf(f.all, &l) {
		switch {
		case x.PID > 0:
			pids = append(pids, strconv.Itoa(x.PID))
			if h.TID == 0 {
				h = lock.Holder{TID: stack.TID(x.PID), By: event.KnownByKernel}
			}
		case x.PID < 0 && h.TID == 0:
			h.Why = "held by an open file description, which may belong to several processes"
		case h.TID == 0:
			h.Why = "held by a process of another PID namespace, or of another machine"
		}
	}
	if len(pids) > 1 {
		note = "held by " + strings.Join(pids, ", ")
	}
	if h.TID == 0 && h.Why == "" {
		h.Why = "/proc/locks does not show the holder"
	}
	return h, note, true
}
