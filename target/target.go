// Package target is the only package that accesses another process. It finds the process's
// threads, reads their state from the kernel, reads memory and mappings, and holds a thread for
// the few microseconds in which its registers and stack are copied. It leaves to its callers when
// to look, whether a stop is worth its risk, how to react to a failure, unwinding and names.
//
// A thread is traced only inside Tracer.Capture: attached, stopped, read and released. Between
// two samples no tracer is attached, so signals, group stops, exec, debuggers and the death of
// this process affect the target as usual. The one exception is a thread that did not stop in
// time (it sleeps uninterruptibly): it stays attached until it stops, and Tracer.Reap then
// releases it.
//
// Process and its methods may be used concurrently. A Thread and a Window belong to one goroutine
// at a time, and a Tracer to the locked OS thread that made it (only Tracer.Wake may be called
// from anywhere).
package target

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Process is one running process, identified by a descriptor of its directory under /proc, so
// that a later process with the same number is never mistaken for it.
type Process struct {
	pid   int
	dir   int // /proc/PID, O_PATH
	facts Facts
	child bool // a child of this program: its exit status belongs to its waiter
	inner bool // its PID namespace is below that of /proc: its threads have further numbers
	time  processTime

	children atomic.Int64 // see ChildrenCPU

	deputy   atomic.Pointer[deputy] // nil: the first thread lives
	electing sync.Mutex             // one elect at a time; guards retired
	retired  []int                  // directories of deputies

	name string // the kernel's, when it was opened

	mu   sync.Mutex
	task int // /proc/PID/task, for getdents
	stat int // /proc/PID/task/PID/stat
	dirs []byte
}

// Facts describes a process as of its opening.
type Facts struct {
	PID        int
	Comm       string // its program's name: that of its file, or the name by which that was started
	Cmdline    []string
	Exe        string // as the kernel shows it, may end in " (deleted)"; "" if unreadable
	StartTicks uint64 // clock ticks after boot
	StartTime  stack.Time
	UID        int
	NSpid      int    // its number in its own PID namespace
	Cgroup     string // path of its control group in the unified hierarchy, or in the first one; hints at a container
	Container  bool   // its PID namespace differs from this program's
	PageSize   int    // bytes
}

// Facts returns the facts of the process when it was opened. Exec changes Comm, Cmdline and Exe.
func (p *Process) Facts() Facts { return p.facts }

// PID returns the process's number in this program's namespace.
func (p *Process) PID() int { return p.pid }

// NSpid returns the process's number in its own PID namespace.
func (p *Process) NSpid() int { return p.facts.NSpid }

// UID returns the real user of the process when it was opened.
func (p *Process) UID() int { return p.facts.UID }

// Exe returns the file that the process runs now.
func (p *Process) Exe() (string, error) { return p.link("exe") }

// Dir returns the process's working folder, as the kernel shows it.
func (p *Process) Dir() (string, error) { return p.link("cwd") }

// Cmdline returns the command line in its current form, without empty arguments at the end: a
// program that writes a title there (setproctitle) fills the rest with zeros.
func (p *Process) Cmdline() ([]string, error) {
	b, err := p.readShown("cmdline", maxCmdline)
	if err != nil || len(b) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"), nil
}

// Limits of the size read from one file under /proc, in bytes.
const (
	maxCmdline = 1 << 20
	maxStatus  = 64 << 10
	maxMaps    = 256 << 20 // 2.5 million mappings
)

// Open finds process pid and checks that it can be sampled. Its errors are *Refusal, except for
// failures of /proc itself.
func Open(pid int) (*Process, error) {
	if pid <= 0 {
		return nil, refuse(pid, "", NoProcess, fmt.Sprintf("no process %d", pid), "give the number of a running process")
	}
	dir, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		if _, e := os.Stat("/proc/self/stat"); e != nil {
			return nil, fmt.Errorf("open process %d: /proc is not mounted: %w", pid, e)
		}
		if err := hidden(pid); err != nil {
			return nil, err
		}
		return nil, refuse(pid, "", NoProcess, fmt.Sprintf("no process %d", pid),
			"give the number of a running process, as this PID namespace shows it")
	}
	p := &Process{pid: pid, dir: dir, task: -1, stat: -1}
	if err := p.open(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// A sampler like this program holds each thread only for a moment, or while the thread waits for
// a CPU; a debugger keeps its threads. So Open waits this long for a tracer to let go.
const (
	tracedFor  = 500 * time.Millisecond
	tracedLook = time.Millisecond
)

func (p *Process) open() error {
	var err error
	st, status, err := p.status("")
	if err != nil {
		return p.vanished(err)
	}
	if status.TGID != p.pid {
		return refuse(p.pid, st.Comm, NotLeader, fmt.Sprintf("%d is a thread of process %d", p.pid, status.TGID),
			fmt.Sprintf("use -p %d -t %d", status.TGID, p.pid))
	}
	for left := tracedFor; status.TracerPid != 0 && !ownThread(status.TracerPid) && left > 0; left -= tracedLook {
		time.Sleep(tracedLook)
		if st, status, err = p.status(""); err != nil {
			return p.vanished(err)
		}
	}
	if err := p.usable(&st, &status); err != nil {
		return err
	}
	if p.task, err = p.openat("task", unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return p.vanished(err)
	}
	// The first thread's own file: the process's adds up all threads.
	if p.stat, err = p.openat("task/"+strconv.Itoa(p.pid)+"/stat", unix.O_RDONLY); err != nil {
		return p.vanished(err)
	}
	p.dirs = make([]byte, dirBytes)
	p.name = st.Comm
	p.child = st.PPID == os.Getpid()
	p.facts = Facts{PID: p.pid, Comm: st.Comm, StartTicks: st.Start, StartTime: ticksToTime(st.Start),
		UID: status.UID, NSpid: p.pid, PageSize: os.Getpagesize()}
	if n := len(status.NSpid); n > 0 {
		p.facts.NSpid, p.inner = status.NSpid[n-1], n > 1
	}
	p.facts.Cmdline, _ = p.Cmdline()
	p.facts.Exe, _ = p.Exe()
	p.facts.Comm = programName(st.Comm, p.facts.Exe, p.facts.Cmdline)
	p.facts.Cgroup = p.cgroup()
	ours := ownNamespace()
	theirs, err := p.link("ns/pid")
	p.facts.Container = err == nil && ours != "" && ours != theirs
	return p.access(&status)
}

// dirBytes is how much of a list of threads is read at once: some 170 of them. Most processes have one.
const dirBytes = 4 << 10

// ownNamespace returns the link of this program's PID namespace, which never changes; "": it cannot be read.
var ownNamespace = sync.OnceValue(func() string {
	to, _ := os.Readlink("/proc/self/ns/pid")
	return to
})

// hidden returns the refusal of an existing process that /proc hides.
func hidden(pid int) error {
	if e := unix.Kill(pid, 0); e != nil && e != unix.EPERM || !hidesProcesses() {
		return nil
	}
	return refuse(pid, "", OtherUser, fmt.Sprintf("process %d is another user's, and /proc is mounted with hidepid, which hides it", pid),
		"run with sudo, or as a user of the group that /proc's option gid names")
}

// vanished converts an error of a file under /proc/PID to a refusal if it means that the process
// ended.
func (p *Process) vanished(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		if err := hidden(p.pid); err != nil {
			return err
		}
		return refuse(p.pid, "", NoProcess, fmt.Sprintf("process %d has just ended", p.pid), "")
	}
	return fmt.Errorf("open process %d: %w", p.pid, err)
}

func (p *Process) cgroup() string {
	b, err := p.readShown("cgroup", maxStatus)
	if err != nil {
		return ""
	}
	first := ""
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[0] == "0" {
			return f[2]
		}
		if first == "" {
			first = f[2]
		}
	}
	return first
}

// Close closes the descriptors. Threads opened from p stay usable.
func (p *Process) Close() error {
	p.electing.Lock()
	p.deputy.Store(nil)
	for _, fd := range p.retired {
		unix.Close(fd)
	}
	p.retired = nil
	p.electing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fd := range []*int{&p.dir, &p.task, &p.stat} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	return nil
}

// Image returns a number that changes when the process execs another program, and is otherwise
// constant. It is not exact: two images may share a number, with odds like 1 in 2^30 on a kernel
// that randomises stacks. It is 0 while that is unknown: at the start of an exec, and when the
// first thread has given up its memory.
func (p *Process) Image() (uint64, error) {
	var buf [1024]byte
	b, err := pread(p.stat, buf[:])
	if err != nil {
		return 0, gone(err)
	}
	st, err := ParseStat(b)
	if err != nil {
		return 0, fmt.Errorf("read stat of process %d: %w", p.pid, err)
	}
	p.children.Store(int64(st.Children))
	if st.StartCode == 0 || st.EndCode == 0 { // load_elf_binary sets them last (fs/binfmt_elf.c)
		return 0, nil
	}
	return st.StartCode*31 ^ st.StartStack<<7 ^ st.EndCode, nil
}

// ChildrenCPU returns the CPU time, in ns and steps of 10 ms, of the process's ended and awaited
// children. For a process that is gone, it returns the value that Image read last.
func (p *Process) ChildrenCPU() int64 {
	if b, err := p.read("stat", 4096); err == nil {
		if st, err := ParseStat(b); err == nil {
			p.children.Store(int64(st.Children))
		}
	}
	return p.children.Load() * (1e9 / clockTicks)
}

// Stamp returns a number that changes when Image or the number of threads does. It costs two
// short system calls on open files, for any number of threads. It misses a thread that ends as
// another one begins.
func (p *Process) Stamp() (uint64, error) {
	im, err := p.Image()
	if err != nil {
		return 0, err
	}
	n, err := p.Links()
	return im<<16 ^ im>>48 ^ n, err
}

// Links returns a number that changes when the number of threads does: the part of Stamp that costs less than a
// microsecond.
func (p *Process) Links() (uint64, error) {
	var st unix.Stat_t
	if errno := fstatNow(p.task, &st); errno != 0 {
		return 0, gone(errno)
	}
	return uint64(st.Nlink), nil // one link per thread (fs/proc/base.c, proc_task_getattr)
}

// noThreads is the number of links of a process that was reaped: those of any empty folder.
const noThreads = 2

// exists reports whether the process was not reaped yet, so that its number is still its own.
func (p *Process) exists() bool {
	n, err := p.Links()
	return err == nil && n > noThreads
}

func (p *Process) openat(name string, flags int) (int, error) {
	for {
		dir := p.dirOf(name)
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
		if err == unix.EINTR || err != nil && p.retry(name, dir, err) {
			continue
		}
		return fd, err
	}
}

// read returns the whole content of a small file in the process's directory.
func (p *Process) read(name string, limit int) ([]byte, error) { return p.readAll(name, limit, false) }

// readShown is read for a file that the kernel returns whole if it fits (single_open of fs/seq_file.c, and cmdline). It makes
// no call to find the end.
func (p *Process) readShown(name string, limit int) ([]byte, error) {
	return p.readAll(name, limit, true)
}

func (p *Process) readAll(name string, limit int, shown bool) ([]byte, error) {
	fd, err := p.openat(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 4096)
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return b, err
		}
		b = b[:len(b)+n]
		if n == 0 || shown && len(b) < cap(b) {
			return b, nil
		}
		if len(b) > limit {
			return b, fmt.Errorf("/proc/%d/%s is longer than %d bytes", p.pid, name, limit)
		}
	}
}

// readLine is read for a file of one line, which the kernel returns whole if it is shorter than b. Most of the cost of taking
// up a thread are such files, so it makes no second call to find the end.
func (p *Process) readLine(name string, b []byte) ([]byte, error) {
	fd, err := p.openat(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	line, err := preadLocked(fd, b)
	if err == nil && len(line) == len(b) {
		err = fmt.Errorf("/proc/%d/%s is longer than %d bytes", p.pid, name, len(b)-1)
	}
	return line, err
}

func (p *Process) link(name string) (string, error) {
	b := make([]byte, 4097)
	dir := p.dirOf(name)
	n, err := unix.Readlinkat(dir, name, b)
	if err != nil && p.retry(name, dir, err) {
		n, err = unix.Readlinkat(p.dirOf(name), name, b)
	}
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: fmt.Sprintf("/proc/%d/%s", p.pid, name), Err: err}
	}
	return string(b[:n]), nil
}

// status reads stat and status of the process (sub "") or of one of its threads (sub
// "task/TID/").
func (p *Process) status(sub string) (Stat, Status, error) {
	st, err := p.statOf(sub)
	if err != nil {
		return st, Status{}, err
	}
	b, err := p.readShown(sub+"status", maxStatus)
	if err != nil {
		return st, Status{}, err
	}
	status, err := ParseStatus(b)
	if err != nil {
		err = fmt.Errorf("/proc/%d/%sstatus: %w", p.pid, sub, err)
	}
	return st, status, err
}

// statOf reads stat, as status does.
func (p *Process) statOf(sub string) (Stat, error) {
	var buf [1024]byte
	b, err := p.readLine(sub+"stat", buf[:])
	if err != nil {
		return Stat{}, err
	}
	st, err := ParseStat(b)
	if err != nil {
		return st, fmt.Errorf("/proc/%d/%sstat: %w", p.pid, sub, err)
	}
	return st, nil
}

// Traced reports whether a tracer other than this program holds a thread of the process. It reads
// a file of /proc for each thread.
func (p *Process) Traced() bool {
	tids, err := p.Threads(nil)
	if err != nil {
		return false
	}
	for _, tid := range tids {
		_, st, err := p.status("task/" + strconv.Itoa(int(tid)) + "/")
		if err == nil && st.TracerPid != 0 && !ownThread(st.TracerPid) {
			return true
		}
	}
	return false
}

// Threads appends the process's threads to buf[:0]. A thread that starts or ends during the call
// may be missing or still listed, and another one may be skipped because of it. Treat a thread as
// gone only if its own files say so (ErrGone), not because a listing lacks it.
func (p *Process) Threads(buf []stack.TID) ([]stack.TID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	buf = buf[:0]
	if _, err := unix.Seek(p.task, 0, 0); err != nil {
		return buf, gone(err)
	}
	for {
		n, err := unix.Getdents(p.task, p.dirs)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return buf, gone(err)
		}
		if n == 0 {
			break
		}
		buf = appendTIDs(buf, p.dirs[:n])
	}
	if len(buf) == 0 {
		return buf, ErrGone
	}
	return buf, nil
}

// ThreadInfo is the kernel's information on one thread.
type ThreadInfo struct {
	TID        stack.TID
	NSTID      int // its number in its own PID namespace
	Name       string
	State      byte       // the letter of proc(5): R S D T t Z X I
	Start      stack.Time // start time (may be negative: before the clock's zero by rounding)
	StartTicks uint64     // the same in clock ticks after boot: orders threads by age
}

// ThreadInfo reads a thread's information. It returns ErrGone if the thread does not (or no
// longer) exist.
func (p *Process) ThreadInfo(tid stack.TID) (ThreadInfo, error) {
	sub := "task/" + strconv.Itoa(int(tid)) + "/"
	var st Stat
	var status Status
	var err error
	if p.inner {
		st, status, err = p.status(sub)
	} else { // to format status takes the kernel longer than all the rest
		st, err = p.statOf(sub)
	}
	if err != nil {
		return ThreadInfo{}, gone(err)
	}
	ti := ThreadInfo{TID: tid, NSTID: int(tid), Name: st.Comm, State: st.State, Start: ticksToTime(st.Start), StartTicks: st.Start}
	if n := len(status.NSpid); n > 0 {
		ti.NSTID = status.NSpid[n-1]
	}
	return ti, nil
}

// clockTicks is USER_HZ, the unit of times in /proc/PID/stat. It is part of the kernel's
// interface and 100 on both machines (asm-generic/param.h).
const clockTicks = 100

// ticksToTime converts clock ticks after boot to CLOCK_MONOTONIC. That clock, unlike the ticks,
// stops while the machine is suspended: for a thread older than a suspension the result is too
// early by its length.
func ticksToTime(ticks uint64) stack.Time {
	now := int64(monotonic())
	if at := suspended.at.Load(); at == 0 || now-at >= 1e9 {
		var boot, mono unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
			return 0
		}
		suspended.ns.Store(boot.Nano() - mono.Nano())
		suspended.at.Store(now)
	}
	return stack.Time(int64(ticks)*(1e9/clockTicks) - suspended.ns.Load())
}

// suspended is for how long the machine has been suspended since boot, ns, as read at that time: the two calls take as long as
// to read a file of /proc.
var suspended struct{ at, ns atomic.Int64 }

// ReadSpans copies spans of the process's memory into b, one after the other, and returns the
// number of bytes copied. It ends at the first span that cannot be read or does not fit into b.
// It makes one system call per stack.MaxSpans spans.
func (p *Process) ReadSpans(spans []stack.Span, b []byte) int {
	got := 0
	for len(spans) > 0 {
		n, size := 0, 0
		for n < min(len(spans), stack.MaxSpans) && spans[n].Len > 0 && size+spans[n].Len <= len(b)-got {
			size += spans[n].Len
			n++
		}
		if n == 0 {
			return got
		}
		k, err := readSpans(p.memoryOf(), b[got:got+size], spans[:n])
		if err == unix.ESRCH && p.elect() {
			k, err = readSpans(p.memoryOf(), b[got:got+size], spans[:n])
		}
		if err != nil || !p.exists() {
			return got // as in ReadAt
		}
		if got += k; k < size {
			return got
		}
		spans = spans[n:]
	}
	return got
}

// ReadAt copies memory of the process at addr into b. If it reads fewer bytes than len(b), it
// also returns a *MemoryError with the first address that could not be read (to the page: the
// kernel copies whole pages).
func (p *Process) ReadAt(b []byte, addr uint64) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := readMemory(p.memoryOf(), b, addr)
	if err == unix.ESRCH && p.elect() {
		n, err = readMemory(p.memoryOf(), b, addr)
	}
	// The kernel identifies the process by number: the data is the target's only if the number
	// still belonged to the target afterwards.
	if !p.exists() {
		return 0, ErrGone
	}
	if n == len(b) {
		return n, nil
	}
	if err == nil {
		err = unix.EFAULT
	}
	if err == unix.ESRCH {
		err = ErrGone
	}
	return n, &MemoryError{Addr: addr + uint64(n), Err: err}
}
