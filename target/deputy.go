package target

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// A process whose first thread has ended goes on with the others, but what the kernel shows
// below /proc/PID of its memory and files is that thread's, which has none any more. The
// directory of one of the other threads, a deputy, has them still: /proc/TID is there for
// every thread, though it is in no listing.

// mine are the files of a process's directory that go with its memory, its file
// descriptors or its namespaces.
var mine = [...]string{"maps", "map_files/", "exe", "root", "cwd", "cmdline", "fd", "ns/", "auxv", "environ"}

func ofMemory(name string) bool {
	for _, m := range mine {
		if name == m || strings.HasSuffix(m, "/") && strings.HasPrefix(name, m) {
			return true
		}
	}
	return false
}

// deputy is a thread whose directory replaces that of the ended first thread.
type deputy struct {
	tid stack.TID
	dir int // /proc/TID, O_PATH
}

// memoryOf is the number by which the process's memory can be read.
func (p *Process) memoryOf() int {
	if d := p.deputy.Load(); d != nil {
		return int(d.tid)
	}
	return p.pid
}

// Directory is the number whose directory below /proc shows the process's memory and
// files: that of its first thread, unless that has ended.
func (p *Process) Directory() int { return p.memoryOf() }

// elect chooses a living thread as deputy if the first thread, or the last deputy, has ended.
// It reports whether there is a living deputy now.
func (p *Process) elect() bool {
	p.electing.Lock()
	defer p.electing.Unlock()
	old := p.deputy.Load()
	if old != nil && p.stands(old.dir, old.tid) {
		return true // another call was faster
	}
	st, _, err := p.status("task/" + strconv.Itoa(p.pid) + "/")
	if err == nil && st.State != 'Z' && st.State != 'X' {
		return false
	}
	tids, err := p.Threads(nil)
	if err != nil {
		return false
	}
	for _, tid := range tids {
		if int(tid) == p.pid {
			continue
		}
		dir, err := unix.Open("/proc/"+strconv.Itoa(int(tid)), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if !p.stands(dir, tid) {
			unix.Close(dir)
			continue
		}
		// The old one's directory may be in use: it is closed with the process.
		p.deputy.Store(&deputy{tid: tid, dir: dir})
		p.retired = append(p.retired, dir)
		return true
	}
	return false
}

// stands reports whether dir belongs to a living thread of the process: the kernel may have
// given its number to another process since the threads were listed.
func (p *Process) stands(dir int, tid stack.TID) bool {
	fd, err := unix.Openat(dir, "status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	b := make([]byte, maxStatus)
	n, err := unix.Read(fd, b)
	if err != nil {
		return false
	}
	st, err := ParseStatus(b[:n])
	if err != nil || st.TGID != p.pid {
		return false
	}
	var probe [1]byte
	_, err = readMemory(int(tid), probe[:], 0)
	return err != unix.ESRCH
}

// dirOf is the directory to look for name in.
func (p *Process) dirOf(name string) int {
	if d := p.deputy.Load(); d != nil && ofMemory(name) {
		return d.dir
	}
	return p.dir
}

// retry reports whether what failed for name, by err, is worth another try: with another
// directory.
func (p *Process) retry(name string, dir int, err error) bool {
	return ofMemory(name) && (err == unix.ENOENT || err == unix.ESRCH || err == unix.EACCES) && p.elect() && p.dirOf(name) != dir
}
