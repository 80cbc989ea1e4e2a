package wait

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sliverprof/sliver/linux/files"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// FileID identifies a file by its device and inode, as in stat(2). The zero value is no
// file.
type FileID struct{ Dev, Inode uint64 }

// Openers caches the descriptors, of all processes, that refer to the files that
// threads wait to lock. /proc/PID/fdinfo/FD lists the locks of a descriptor and takes
// some µs to read, while the kernel takes ms to list all locks (see ReadFileLocks). Its
// methods may be called from any goroutine.
type Openers struct {
	mu sync.Mutex
	by map[FileID][]opener
}

// opener is an open descriptor of a file.
type opener struct {
	pid   int
	name  string // of its fdinfo file below /proc
	mount string // the mount that the file was opened on: with the inode it proves that the file is still the same
}

// Limits of Openers.
const (
	maxOpened    = 256     // files
	maxOpeners   = 16      // descriptors of one file
	maxScanned   = 1024    // descriptors of one process
	maxRelatives = 64      // processes
	fdinfoSize   = 4 << 10 // bytes; the rest would be more locks
)

// Find looks for descriptors that refer to f among those of processes. It takes about 3
// µs per descriptor and reports whether it found new ones.
func (o *Openers) Find(sys files.Dir, f FileID, pids []int) (news bool) {
	s, ok := sys.(files.Stater)
	if !ok {
		return false
	}
	var found []opener
	for i, pid := range pids {
		if slices.Contains(pids[:i], pid) {
			continue
		}
		dir := strconv.Itoa(pid)
		fds, err := sys.ReadDir(dir+"/fd", maxScanned)
		if err != nil {
			continue // gone, or owned by another user
		}
		for _, fd := range fds {
			if _, dev, inode, err := s.Stat(dir + "/fd/" + fd); err != nil || (FileID{dev, inode}) != f {
				continue
			}
			x := opener{pid: pid, name: dir + "/fdinfo/" + fd}
			b, err := sys.ReadFile(x.name, fdinfoSize)
			if err != nil {
				continue
			}
			if x.mount, _ = parseFdinfo(b); len(found) < maxOpeners {
				found = append(found, x)
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.by[f]
	if o.by == nil || len(o.by) >= maxOpened && before == nil {
		o.by = map[FileID][]opener{}
	}
	o.by[f] = found
	return slices.ContainsFunc(found, func(x opener) bool { return !slices.Contains(before, x) })
}

// of returns the descriptors of f. They are read-only.
func (o *Openers) of(f FileID) []opener {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.by[f]
}

// Relatives returns the processes that most likely share locks with pid: itself, its
// parent, and the children of both.
func Relatives(sys files.Dir, pid int) []int {
	pids := []int{pid}
	children := func(of int) {
		dir := strconv.Itoa(of) + "/task/"
		tids, _ := sys.ReadDir(dir, maxRelatives)
		for _, tid := range tids {
			b, _ := sys.ReadFile(dir+tid+"/children", fdinfoSize)
			for f := range strings.FieldsSeq(string(b)) {
				if n, err := strconv.Atoi(f); err == nil && len(pids) < maxRelatives {
					pids = append(pids, n)
				}
			}
		}
	}
	children(pid)
	b, _ := sys.ReadFile(strconv.Itoa(pid)+"/status", fdinfoSize)
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "PPid:"); ok {
			if parent, err := strconv.Atoi(strings.TrimSpace(v)); err == nil && parent > 1 {
				pids = append(pids, parent)
				children(parent)
			}
			break
		}
	}
	return pids
}

// parseFdinfo reads /proc/PID/fdinfo/FD (proc_pid_fdinfo(5)): the ID of the mount, and
// the locks of that descriptor or, for POSIX locks, of its process through it.
func parseFdinfo(b []byte) (mount string, locks []files.FileLock) {
	for line := range bytes.Lines(b) {
		key, v, _ := bytes.Cut(line, []byte(":"))
		switch string(key) {
		case "mnt_id":
			mount = string(bytes.TrimSpace(v))
		case "lock":
			l, err := files.ParseLocks(v)
			if err != nil {
				return mount, locks // the last line is cut
			}
			locks = append(locks, l...)
		}
	}
	return mount, locks
}

// TellSoon sets the holder of the file lock that th waits for, from the locks of the
// descriptors in o. still reports whether the thread has not run since its wait was
// sampled. known: one of them blocks the thread; sure: no other lock can. Locks of open
// file descriptions, and ranges relative to anything but the file's start, cannot be
// resolved.
func (r *Resolver) TellSoon(th *Thread, o *Openers, still func() bool) (known, sure, changed bool) {
	if !th.known || th.info.Lock == nil || th.info.Lock.Kind != kind.LockFile || r.c.Sys == nil {
		return false, false, false
	}
	l := th.info.Lock
	if !l.line.ranged || l.line.inode == 0 {
		return false, false, false
	}
	var holder *files.FileLock
	for _, x := range o.of(l.line.file()) {
		b, err := r.c.Sys.ReadFile(x.name, fdinfoSize)
		if err != nil {
			continue
		}
		mount, locks := parseFdinfo(b)
		if mount != x.mount {
			continue // the descriptor now refers to another file
		}
		for i := range locks {
			y := &locks[i]
			if !l.line.blockedBy(y) || y.PID <= 0 {
				continue
			}
			if holder == nil || y.PID == int(l.Holder.TID) {
				holder = y // of several holders keep the one reported before
			}
			sure = sure || y.Write && y.Start <= l.line.start && l.line.end <= y.End
		}
		if sure {
			break
		}
	}
	if holder == nil || !still() {
		return false, false, false
	}
	if l.Holder.TID == stack.TID(holder.PID) && l.Holder.By == event.KnownByKernel {
		return true, sure, false
	}
	l.Holder, l.Note = lock.Holder{TID: stack.TID(holder.PID), By: event.KnownByKernel}, ""
	r.nameHolder(l)
	return true, sure, true
}

// File returns the file whose lock th waits for, or the zero value.
func (t *Thread) File() FileID {
	if !t.known || t.info.Lock == nil || t.info.Lock.Kind != kind.LockFile {
		return FileID{}
	}
	return t.info.Lock.line.file()
}

func (w *line) file() FileID { return FileID{w.dev, w.inode} }

// blockedBy reports whether l, a held lock, blocks w.
func (w *line) blockedBy(l *files.FileLock) bool {
	return !l.Waiting && l.Class == w.class && l.Inode == w.inode && (w.write || l.Write) &&
		l.Start <= w.end && w.start <= l.End && (w.class != "POSIX" || l.PID != w.pid)
}

// Of returns the processes that hold a lock on the file with that inode, or wait for
// one.
func (f *FileLocks) Of(inode uint64) (pids []int) {
	for i := range f.all {
		if l := &f.all[i]; l.Inode == inode && l.PID > 0 && !slices.Contains(pids, l.PID) {
			pids = append(pids, l.PID)
		}
	}
	return pids
}
