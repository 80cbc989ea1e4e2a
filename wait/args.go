package wait

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/linux/files"
	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// Limits of what arguments may point at.
const (
	maxPath  = 4096 // PATH_MAX
	maxPolls = 1024 // descriptors of a poll that are read
	maxNamed = 8    // of those, how many are described
	maxSet   = 1024 // descriptors of a select: FD_SETSIZE
	maxAddr  = 128  // struct sockaddr_storage
)

// args turns a call's arguments into an Info.
type args struct {
	r     *Resolver
	l     *Look
	call  *stack.Call
	info  Info
	parts []string
	why   []string
	fds   int
	dir   string // the directory that the DirFD before a path refers to
	// looked: the process was read for these arguments, so the thread may have run since the Look.
	looked bool
}

func (a *args) say(format string, v ...any) { a.parts = append(a.parts, fmt.Sprintf(format, v...)) }
func (a *args) miss(format string, v ...any) {
	a.why = append(a.why, fmt.Sprintf(format, v...))
}

func (a *args) done() Info {
	a.info.Args = strings.Join(a.parts, ", ")
	a.info.Why = strings.Join(a.why, "; ")
	return a.info
}

func (a *args) read(b []byte, addr uint64, what string) bool {
	n, err := a.r.c.Mem.ReadAt(b, addr)
	if n == len(b) && err == nil {
		return true
	}
	a.miss("%s at %#x cannot be read", what, addr)
	return false
}

func (a *args) add(s *syscalls.Arg) {
	v := a.call.Args[s.Reg]
	switch s.Meaning {
	case syscalls.FD, syscalls.Size, syscalls.Offset, syscalls.Count, syscalls.Msec, syscalls.TID, syscalls.Request, syscalls.OpenFlags, syscalls.SysV:
	default:
		a.looked = true
	}
	switch s.Meaning {
	case syscalls.FD:
		a.fd(int32(v))
	case syscalls.DirFD:
		a.dir = ""
		const cwd = -100
		if int32(v) != cwd {
			a.dir = a.r.files.Describe(int(int32(v))).Text
		}
	case syscalls.Path:
		a.path(v)
	case syscalls.Size:
		a.say("%d bytes", v)
	case syscalls.Offset:
		a.say("at %d", v)
	case syscalls.Count:
		a.say("%d", int64(v))
	case syscalls.Msec:
		if ms := int32(v); ms >= 0 {
			a.timeout(time.Duration(ms) * time.Millisecond)
		}
	case syscalls.Timespec:
		if d, ok := a.timespec(v, 1); ok {
			a.timeout(d)
		}
	case syscalls.Timeval:
		if d, ok := a.timespec(v, 1000); ok {
			a.timeout(d)
		}
	case syscalls.UntilReal:
		a.until(v, lock.Realtime)
	case syscalls.Sleep:
		a.sleep()
	case syscalls.PollFDs:
		a.poll(v, a.call.Args[s.Len])
	case syscalls.ReadSet:
		a.sets(v)
	case syscalls.PID:
		a.child(int32(v))
	case syscalls.IDType:
		a.waitid()
	case syscalls.TID:
		a.say("thread %d", int32(v))
	case syscalls.Sockaddr:
		a.sockaddr(v, a.call.Args[s.Len])
	case syscalls.Signals:
		a.signals(v)
	case syscalls.Futex:
		f := lock.ParseFutex(&a.call.Args)
		a.futex(&f)
	case syscalls.Futex2:
		f := lock.ParseFutex2(&a.call.Args)
		a.futex(&f)
	case syscalls.FutexWaitv:
		f, err := lock.ParseFutexWaitv(a.r.c.Mem, &a.call.Args)
		if err != nil {
			a.miss("the words at %#x cannot be read", a.call.Args[0])
			return
		}
		a.say("first of %d words", f.Words)
		a.futex(&f)
	case syscalls.Flock:
		a.flock()
	case syscalls.Fcntl:
		a.fcntl()
	case syscalls.Request:
		a.say("request %#x", uint32(v))
	case syscalls.OpenFlags:
		a.say("%s", openFlags(v))
	case syscalls.SysV:
		what := "message queue"
		if strings.HasPrefix(a.info.Call, "sem") {
			what = "semaphore set"
		}
		a.info.File = fmt.Sprintf("%s %d", what, int32(v))
		a.say("%s", a.info.File)
	}
}

// fd describes a descriptor. The wait is on the first one.
func (a *args) fd(fd int32) {
	if fd < 0 {
		if a.info.Call != "mmap" {
			a.say("descriptor %d", fd)
		}
		return
	}
	d := a.describe(fd)
	if a.info.Kind == kind.WaitIPC { // its path is not that of a file
		d.Text = "message queue " + d.Text
	}
	a.say("%d %s", fd, d.Text)
	if a.fds++; a.fds == 1 {
		a.on(&d)
	}
}

// polled is a descriptor in which a thread waited for others. No other descriptor than one of epoll(7) can be waited in
// by epoll_wait(2), so the call itself shows what it is, and its description needs no check until a time in ns.
type polled struct {
	desc  files.Desc
	until int64
}

const (
	polledFor = 100_000_000 // ns
	maxEpolls = 256
)

// describe describes a descriptor.
func (a *args) describe(fd int32) files.Desc {
	if a.info.Kind != kind.WaitPoll { // of calls with one descriptor, that is epoll_wait and its kin
		a.looked = true
		return a.r.files.Describe(int(fd))
	}
	now := a.r.c.Monotonic()
	if p, ok := a.r.polled[fd]; ok && now < p.until {
		return p.desc
	}
	a.looked = true
	d := a.r.files.Describe(int(fd))
	if d.Kind == files.Epoll && d.Why == "" {
		if len(a.r.polled) >= maxEpolls {
			clear(a.r.polled)
		}
		a.r.polled[fd] = polled{d, now + polledFor}
	}
	return d
}

// on makes d the descriptor of the wait.
func (a *args) on(d *files.Desc) {
	a.info.File, a.info.Peer, a.info.PeerPID, a.info.Peers = d.Text, d.Peer, d.PeerPID, d.Peers
	if d.Kind == files.Pidfd {
		a.info.Child = d.Target
	}
	if k := kindOfFile(d.Kind); a.info.Kind == kind.WaitCall || a.info.Kind == kind.WaitPoll && k == kind.WaitEvent {
		a.info.Kind = k
	}
	if d.Why != "" {
		a.miss("%s", d.Why)
	}
}

// path reads a path. The first one becomes the wait's file.
func (a *args) path(addr uint64) {
	dir := a.dir
	a.dir = ""
	if addr == 0 {
		return
	}
	s, err := a.text(addr, maxPath)
	if err != nil {
		a.miss("the path at %#x cannot be read: %v", addr, err)
		return
	}
	if dir != "" && !strings.HasPrefix(s, "/") {
		s = strings.TrimSuffix(dir+"/"+s, "/")
	}
	a.say("%s", s)
	if a.info.File == "" {
		a.info.File = s
		a.info.Kind = kind.WaitFile
	}
}

// text reads a NUL-terminated string, one page at a time: the page after the string may
// not be mapped.
func (a *args) text(addr uint64, limit int) (string, error) {
	const page = 4096
	var out []byte
	for len(out) < limit {
		n := page - int(addr%page)
		b := make([]byte, min(n, limit-len(out)))
		n, err := a.r.c.Mem.ReadAt(b, addr)
		b = b[:n]
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return strings.ToValidUTF8(string(append(out, b[:i]...)), "?"), nil
		}
		if err != nil {
			return "", err
		}
		if n == 0 {
			break
		}
		out = append(out, b...)
		addr += uint64(n)
	}
	return "", errNoPath
}

func (a *args) timeout(d time.Duration) { a.ends(d, "") }

// Left follows a time in Info.Args that is left until a deadline, where the length of the whole wait is not known.
const Left = " left"

// ends describes when a wait ends at the latest, with a word after the time.
func (a *args) ends(d time.Duration, after string) {
	d = max(d, 0)
	a.info.Timeout = d
	if a.info.Kind == kind.WaitSleep {
		a.say("%v%s", d, after)
		return
	}
	a.say("timeout %v%s", d, after)
}

// timespec reads seconds and a fraction in units of unit ns.
func (a *args) timespec(addr uint64, unit int64) (time.Duration, bool) {
	if addr == 0 {
		return 0, false
	}
	var b [16]byte
	if !a.read(b[:], addr, "the timeout") {
		return 0, false
	}
	s, f := int64(binary.LittleEndian.Uint64(b[:])), int64(binary.LittleEndian.Uint64(b[8:]))
	if s < 0 || f < 0 || f >= 1e9/unit {
		a.miss("the timeout at %#x is none", addr)
		return 0, false
	}
	if s > math.MaxInt64/int64(time.Second)-1 {
		return 0, false // longer than any real timeout: programs write this for "forever"
	}
	return time.Duration(s)*time.Second + time.Duration(f*unit), true
}

// until reads a point in time and converts it to the time left.
func (a *args) until(addr uint64, c lock.Clock) {
	d, ok := a.timespec(addr, 1)
	if !ok {
		return
	}
	switch c {
	case lock.Relative:
	case lock.Realtime:
		d -= time.Duration(a.r.c.Realtime())
	case lock.Monotonic:
		d -= time.Duration(a.r.c.Monotonic())
	}
	if c != lock.Relative {
		a.ends(d, Left)
		return
	}
	a.timeout(d)
}

// sleep: clock, flags, request.
func (a *args) sleep() {
	const (
		absolute = 1 // TIMER_ABSTIME
		realtime = 0
		mono     = 1
	)
	c := lock.Relative
	if a.call.Args[1]&absolute != 0 {
		switch a.call.Args[0] {
		case realtime:
			c = lock.Realtime
		case mono:
			c = lock.Monotonic
		default:
			a.miss("until a time of clock %d", int32(a.call.Args[0]))
			return
		}
	}
	a.until(a.call.Args[2], c)
}

// poll reads an array of struct pollfd {int fd; short events, revents}.
func (a *args) poll(addr, n uint64) {
	const size = 8
	if n == 0 {
		a.say("no descriptors")
		a.info.Kind = kind.WaitSleep
		return
	}
	b := make([]byte, min(n, maxPolls)*size)
	if !a.read(b, addr, "the descriptors") {
		return
	}
	var fds []int
	for i := 0; i < len(b); i += size {
		if fd := int32(binary.LittleEndian.Uint32(b[i:])); fd >= 0 {
			fds = append(fds, int(fd))
		}
	}
	if a.woken(fds) {
		return
	}
	a.several(fds)
	if n > maxPolls {
		a.say("%d more", n-maxPolls)
	}
}

// woken resolves the wait of a thread that polls eventfds alone, as some runtimes do for their own locks:
// CRuby 3.1 in the threads that also handle signals (native_sleep in thread_pthread.c of v3_1_2).
func (a *args) woken(fds []int) bool {
	if a.r.c.Monitor == nil || a.l.NSTID == 0 || len(fds) == 0 || len(fds) > maxNamed {
		return false
	}
	for _, fd := range fds {
		if a.r.files.Describe(fd).Kind != files.Eventfd {
			return false
		}
	}
	m, ok := a.r.c.Monitor(a.l.NSTID)
	if !ok || m.Unknown {
		return false
	}
	a.info.Kind = kind.WaitLock
	a.monitor(&lock.Futex{}, &m)
	return true
}

// sets reads select's three sets of descriptors.
func (a *args) sets(n uint64) {
	n = min(uint64(uint32(n)), maxSet)
	var all [maxSet]bool
	for reg := 1; reg <= 3; reg++ {
		addr := a.call.Args[reg]
		if addr == 0 || n == 0 {
			continue
		}
		b := make([]byte, (n+63)/64*8)
		if !a.read(b, addr, "a set of descriptors") {
			continue
		}
		for i := range n {
			if b[i/8]>>(i%8)&1 != 0 {
				all[i] = true
			}
		}
	}
	var fds []int
	for i, in := range all {
		if in {
			fds = append(fds, i)
		}
	}
	if len(fds) == 0 && len(a.why) == 0 {
		a.say("no descriptors")
		a.info.Kind = kind.WaitSleep
		return
	}
	a.several(fds)
}

// several describes the descriptors of a poll.
func (a *args) several(fds []int) {
	for i, fd := range fds {
		if i == maxNamed {
			a.say("%d more", len(fds)-i)
			break
		}
		d := a.r.files.Describe(fd)
		a.say("%d %s", fd, d.Text)
		if len(fds) == 1 {
			a.on(&d)
		}
	}
}

// child: wait4's pid.
func (a *args) child(pid int32) {
	switch {
	case pid == -1:
		a.say("any child")
	case pid == 0:
		a.say("any child of its process group")
	case pid < 0:
		a.say("any child of process group %d", -int64(pid))
	default:
		a.pid(pid, "child")
	}
}

// pid names a process of the target's PID namespace.
func (a *args) pid(n int32, what string) {
	tid, ok := a.r.target.Thread(n, true)
	if !ok {
		a.say("%s %d", what, n)
		a.miss("%s %d does not live, or is not to be seen", what, n)
		return
	}
	a.info.Child = int(tid)
	name := strconv.Itoa(int(tid))
	if a.r.c.Sys != nil {
		if b, err := a.r.c.Sys.ReadFile(name+"/comm", 256); err == nil {
			name += " (" + strings.TrimSuffix(string(b), "\n") + ")"
		}
	}
	a.say("%s %s", what, name)
	a.info.Peer, a.info.PeerPID = "PID "+name, int(tid)
}

func (a *args) waitid() {
	const all, pid, pgid, pidfd = 0, 1, 2, 3
	id := int32(a.call.Args[1])
	switch a.call.Args[0] {
	case all:
		a.say("any child")
	case pid:
		a.pid(id, "child")
	case pgid:
		a.say("any child of process group %d", id)
	case pidfd:
		d := a.r.files.Describe(int(id))
		a.say("%d %s", id, d.Text)
		a.on(&d)
		a.info.Child = d.Target
	}
}

func (a *args) sockaddr(addr, n uint64) {
	if addr == 0 || n == 0 || n > maxAddr {
		return
	}
	b := make([]byte, n)
	if !a.read(b, addr, "the address") {
		return
	}
	if s := files.Sockaddr(b); s != "" {
		a.say("to %s", s)
		a.info.Peer = s
	}
}

func (a *args) signals(addr uint64) {
	if addr == 0 {
		return
	}
	var b [8]byte
	if !a.read(b[:], addr, "the signals") {
		return
	}
	m := binary.LittleEndian.Uint64(b[:])
	if a.info.Call == "rt_sigsuspend" {
		m = ^m // the mask lists the signals that do not wake the thread
	}
	a.say("%s", files.SignalSet(m))
}

// openFlags: asm-generic/fcntl.h. The flags shown are the same on both architectures.
func openFlags(v uint64) string {
	const create, truncate, appends = 0o100, 0o1000, 0o2000
	s := [...]string{"read", "write", "read and write", "path"}[v&3]
	for _, f := range []struct {
		bit  uint64
		name string
	}{{create, "create"}, {truncate, "truncate"}, {appends, "append"}} {
		if v&f.bit != 0 {
			s += " " + f.name
		}
	}
	return s
}
