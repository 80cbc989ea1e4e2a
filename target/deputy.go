package target

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// After the first thread of a process has ended, the kernel still shows that thread's memory and
// files below /proc/PID, although it has none any more. The directory of another thread, a
// deputy, has them: /proc/TID exists for every thread, although listings lack it.

// mine are the files of a process's directory that depend on its memory, its file descriptors or
// its namespaces.
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

// memoryOf returns the thread number with which the process's memory can be read.
func (p *Process) memoryOf() int {
	if d := p.deputy.Load(); d != nil {
		return int(d.tid)
	}
	return p.pid
}

// Directory returns the number whose directory below /proc shows the process's memory and files:
// that of its first thread, unless that has ended.
func (p *Process) Directory() int { return p.memoryOf() }

// elect chooses a living thread as deputy if the first thread, or the last deputy, has ended. It
// reports whether an access that has failed should be repeated. When a thread other than the first
// one execs, the first one ends and the new program has its number: the deputy of that moment has
// served.
func (p *Process) elect() bool {
	p.electing.Lock()
	defer p.electing.Unlock()
	old := p.deputy.Load()
	if old != nil && p.stands(old.dir, old.tid) {
		return true // another call was faster
	}
	st, _, err := p.status("task/" + strconv.Itoa(p.pid) + "/")
	if err == nil && st.State != 'Z' && st.State != 'X' {
		p.deputy.Store(nil)
		return old != nil
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
		// The old directory may be in use: it is closed together with the process.
		p.deputy.Store(&deputy{tid: tid, dir: dir})
		p.retired = append(p.retired, dir)
		return true
	}
	return false
}

// Reports whether dir belongs to a living thread of the process: the kernel may have given
// its number to another process since the threads were listed.
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

// dirOf returns the directory that contains name.
func (p *Process) dirOf(name string) int {
	if d := p.deputy.Load(); d != nil && ofMemory(name) {
		return d.dir
	}
	return p.dir
}

// retry reports whether an access to name that failed with err should be repeated with another
// directory.
func (p *Process) retry(name string, dir int, err error) bool {
	return ofMemory(name) && (err == unix.ENOENT || err == unix.ESRCH || err == unix.EACCES) && p.elect() && p.dirOf(name) != dir
}
