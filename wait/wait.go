// Package wait resolves, for a blocked thread, what it waits for, which thread holds
// it, and how that is known. It uses the sampler's results (the system call, the stack,
// the counters), reads memory and files of /proc through small interfaces, and stops no
// thread. Its callers name functions and data through functions in Config and Look.
// Package wait/graph finds deadlocks and convoys; package wait/infer infers wakers from
// a recording.
//
// Nothing here fails: Info.Why or Holder.Why gives the reason if something cannot be
// read. A Resolver belongs to one goroutine at a time, and so does a Thread.
package wait

import (
	"errors"
	"time"

	"github.com/sliverprof/sliver/linux/files"
	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// Info describes a thread's wait.
type Info struct {
	Kind    kind.Wait
	Nr      int32         // of the system call; -1: none
	Call    string        // its name; "" if there is none
	Args    string        // the relevant arguments, for display
	Timeout time.Duration // of the call, measured from the first sample of the wait; 0: none
	File    string        // the descriptor or path; "" if there is none, or more than one
	Peer    string        // the other end: "10.0.0.5:5432", "PID 77 (sort)"
	PeerPID int           // 0: unknown, or not a process of this machine
	Peers   bool          // more processes than PeerPID have the other end
	Child   int           // PID of the child it waits for; 0: any, or none
	Lock    *Lock         // nil: it waits for no lock
	Why     string        // what could not be resolved, and why; "" if nothing is missing
	Owes    bool          // Config.Later will provide more
}

// Lock is a lock with its location in the target's data.
type Lock struct {
	lock.Lock
	Symbol string // "cache_lock", "malloc arena", "registry+0x40", "libfoo.so+0x4040"; "" if unknown
	Module string // path of the file that contains it; "" if unknown
	Path   string // of the file, for file locks
	Other  string // name of Holder, "postgres (process 4711)", if it is a thread of another process
	Key    Key
	line   line // of a file lock
}

// Key identifies a lock, including one that several processes share. It is comparable.
type Key struct {
	PID    int    // 0 for a lock that processes share
	Addr   uint64 // in that process
	Dev    string // of a shared lock's file, as in /proc/PID/maps
	Inode  uint64
	Offset uint64 // in that file
}

// Symbol is a location in a program's data.
type Symbol struct {
	Name   string // "": a variable without a name in the file
	Offset uint64 // from its start; without a name the file's own address (vaddr)
	Module string // path
}

// Config describes the process of a Resolver.
type Config struct {
	PID  int    // as in Sys
	Arch string // as in GOARCH
	Mem  lock.Memory
	Proc files.Dir // /proc/PID
	Sys  files.Dir // /proc; nil: other processes and file locks are not examined
	// LocksLater says that the caller reads /proc/locks and passes it to Tell. Until
	// then file locks have no known holder.
	LocksLater bool
	Unix       files.UnixPeers // nil: the other ends of UNIX sockets stay unknown
	// Later does the slow reads of descriptors for the Resolvers of one process. nil:
	// the Resolver does them itself.
	Later *Later
	// Monotonic is CLOCK_MONOTONIC in ns, Realtime ns since 1970.
	Monotonic func() int64
	Realtime  func() int64
	// Thread translates a TID of the target's PID namespace: see lock.Target. nil: the
	// Resolver reads /proc.
	Thread func(nstid int32, shared bool) (stack.TID, bool)
	// Data names data of the target by address. nil: data stay unnamed.
	Data func(addr uint64) (Symbol, bool)
	// GIL returns the managed runtime's lock for which a thread, numbered as in the
	// target's PID namespace, sleeps on the futex word at addr; ok is false if that is
	// another lock. nil: there are none.
	GIL func(nstid int32, addr uint64) (g GIL, ok bool)
	// Monitor returns the monitor for which a thread of a managed runtime, numbered as
	// in the target's PID namespace, sleeps on a futex; ok is false if it waits for
	// another lock. MonitorOwner returns the current owner of the monitor at addr. nil:
	// there are none.
	Monitor      func(nstid int32) (m Monitor, ok bool)
	MonitorOwner func(addr uint64) (locked bool, holder int32)
	// LockName names a runtime's own lock better than by its location in a file's data;
	// "": it is not such a lock. nil: there are none.
	LockName func(l *lock.Lock) string
	// TTL: see files.Config.
	TTL int64
}

// GIL is the state of an interpreter's lock at one moment.
type GIL struct {
	Addr   uint64 // of the lock
	Impl   string // whose it is: lock.Lock.Impl
	Locked bool
	Holder int32 // TID in the target's PID namespace; 0: none, or unknown
}

// Look is one sample of a blocked thread. It is read-only.
type Look struct {
	TID      stack.TID
	NSTID    int32 // in the target's PID namespace; 0: unknown
	State    stack.State
	Call     stack.Call
	SP       uint64 // 0: unknown
	Switches uint64 // while the counters are unchanged, so is the wait
	Frames   []stack.Frame
	// Names returns the functions of the stack, leaf first. It is only called for a new
	// wait. nil: unknown.
	Names func() []string
	// Function names the function that contains addr in the target if Tells is true for
	// its name, and returns "" otherwise; nil: unknown. It is for stacks other than
	// that of the thread itself: a goroutine's.
	Function func(addr uint64) string
	// Still reports whether the thread has not run since this sample. nil: it cannot
	// have run, because it is suspended.
	Still func() bool
}

// Result is the outcome of Resolve.
type Result uint8

// Results.
const (
	Unchanged Result = iota // the same wait as before; nothing was read
	Changed                 // another wait
	Torn                    // the thread ran during the read: the Info is empty
)

// Thread is the state of one thread between samples. The zero Thread is ready to use.
type Thread struct {
	call     stack.Call
	sp       uint64
	switches uint64
	state    stack.State
	known    bool
	info     Info
	gave     stack.Call // the call before the kernel restarted it
	nstid    int32
	unproven int // looks at an unproven lock
}

// In one wait, a lock whose kind is unproven is resolved again at the first soonAgain looks and then at
// every laterAgain-th: it may have changed hands during the reads, and a change of hands lasts until the
// next holder gets a CPU.
const (
	soonAgain  = 16
	laterAgain = 32
)

// Info returns the result of the last sample; nil if there was none.
func (t *Thread) Info() *Info {
	if !t.known {
		return nil
	}
	return &t.info
}

// Later is files.Later, Dir is files.Dir.
type (
	Later = files.Later
	Dir   = files.Dir
)

// Resolver resolves the waits of the threads of one process.
type Resolver struct {
	c       Config
	files   *files.Table
	target  lock.Target
	threads threads
	maps    maps
	calls   map[int32]syscalls.Call
	restart restarts
	others  map[stack.TID]other
	polled  map[int32]polled
}

// New makes a Resolver. It reads nothing yet.
func New(c Config) *Resolver {
	r := &Resolver{c: c, calls: map[int32]syscalls.Call{}}
	r.files = files.New(files.Config{PID: c.PID, Proc: c.Proc, Sys: c.Sys, Peers: c.Unix, Now: c.Monotonic, TTL: c.TTL, Later: c.Later})
	r.threads = threads{proc: c.Proc, sys: c.Sys, now: c.Monotonic}
	r.maps = maps{proc: c.Proc, now: c.Monotonic}
	r.target = lock.Target{Arch: c.Arch, Mem: c.Mem, Thread: c.Thread}
	if c.Thread == nil {
		r.target.Thread = r.threads.translate
	}
	r.restart = restartsOf(c.Arch)
	r.Forget()
	return r
}

// Forget drops all cached facts about the process's memory and descriptors, which an
// exec replaced. The caller then starts with new Threads.
func (r *Resolver) Forget() {
	r.files.Forget()
	r.maps.forget()
	r.threads.forget()
	r.polled = map[int32]polled{}
	r.target.Libc = lock.AnyLibc
	r.maps.libcKnown = false
}

// Resolve resolves the wait of the thread of l. The Info belongs to th and is valid
// until the next call for it. For an unchanged wait Resolve reads nothing; use Refresh
// for the current holder of its lock.
func (r *Resolver) Resolve(th *Thread, l *Look) (*Info, Result) {
	if th.known && th.switches == l.Switches && th.call == l.Call && th.sp == l.SP && th.state == l.State {
		return &th.info, Unchanged
	}
	call := l.Call
	if call.Nr == r.restart.self && call.Nr >= 0 {
		// A signal or a tracer interrupted the call and the kernel continues it: the
		// registers still hold its arguments, but not its number.
		if th.known && th.call.Args == call.Args && th.sp == l.SP {
			call.Nr = th.gave.Nr
		} else if nr := r.restart.was(&call, r.c.Mem); nr >= 0 {
			call.Nr = nr
		}
	}
	r.files.Owes()
	info, looked := r.resolve(l, &call)
	info.Owes = r.files.Owes()
	r.nameHolder(info.Lock)
	if looked = looked || call.Nr != l.Call.Nr; looked && l.Still != nil && !l.Still() {
		*th = Thread{}
		return &Info{Nr: -1, Why: "the thread went on while it was looked at"}, Torn
	}
	*th = Thread{call: l.Call, sp: l.SP, switches: l.Switches, state: l.State, known: true, info: info, gave: call, nstid: l.NSTID}
	return &th.info, Changed
}

// Keeps reports whether Refresh can read the current holder of the lock.
func (l *Lock) Keeps() bool {
	return l.Kind == kind.LockFile || l.Kind == kind.LockGIL || l.OfRuntime() ||
		l.Impl == "hotspot" && l.Basis == lock.ByNothing || lock.Keeps(&l.Lock)
}

// Tells reports whether a function's name, as in Look.Names, identifies a wait when it
// is on the stack. Others may be omitted.
func Tells(name string) bool { return lock.Tells(name) }

// MayTell reports whether a name from a file, possibly mangled, may be one for which Tells is true.
func MayTell(name []byte) bool { return lock.MayTell(name) }

// Refresh reads the current holder of the lock that th waits for. It costs one read of
// a few bytes if the lock keeps an owner, one of /proc/locks for a file lock, and
// nothing otherwise.
func (r *Resolver) Refresh(th *Thread) (changed bool) {
	if !th.known || th.info.Lock == nil {
		return false
	}
	if changed = r.refresh(th); changed {
		r.nameHolder(th.info.Lock)
	}
	return changed
}

func (r *Resolver) refresh(th *Thread) (changed bool) {
	if th.info.Lock.Kind == kind.LockFile {
		if r.c.Sys == nil || r.c.LocksLater {
			return false
		}
		return th.info.Lock.tell(ReadFileLocks(r.c.Sys))
	}
	if th.info.Lock.Kind == kind.LockGIL {
		return r.refreshGIL(th)
	}
	b := th.info.Lock.Basis
	if b != lock.ByNothing && th.info.Lock.OfRuntime() {
		return r.refreshMonitor(th)
	}
	if b == lock.Likely || b == lock.ByNothing {
		if th.unproven++; th.unproven <= soonAgain || th.unproven%laterAgain == 0 {
			return r.prove(th)
		}
	}
	changed, err := lock.Refresh(&r.target, &th.info.Lock.Lock)
	if err != nil {
		h := lock.Holder{Why: "the lock can no longer be read"}
		changed = th.info.Lock.Holder != h
		th.info.Lock.Holder = h
	}
	return changed
}

// Proven reports whether the kind of th's lock is certain: then all waiters for it have
// the same holder.
func (t *Thread) Proven() bool {
	return t.known && t.info.Lock != nil && rank(t.info.Lock.Basis) == 2
}

// Tell sets the holder of the file lock that th waits for, from a list that was read
// during the wait. It reports whether the holder changed.
func (r *Resolver) Tell(th *Thread, all *FileLocks) (changed bool) {
	if !th.known || th.info.Lock == nil || th.info.Lock.Kind != kind.LockFile {
		return false
	}
	if changed = th.info.Lock.tell(all); changed {
		r.nameHolder(th.info.Lock)
	}
	return changed
}

// prove resolves a lock again whose kind is unproven.
func (r *Resolver) prove(th *Thread) (changed bool) {
	l := Look{NSTID: th.nstid, State: th.state, SP: th.sp}
	info, _ := r.resolve(&l, &th.gave)
	if n := info.Lock; n == nil || rank(n.Basis) < rank(th.info.Lock.Basis) {
		return false
	}
	changed = *info.Lock != *th.info.Lock
	info.Timeout = th.info.Timeout // counted from the first sample
	th.info = info
	return changed
}

func rank(b lock.Basis) int {
	switch b {
	case lock.ByCall, lock.ByFunction, lock.ByLayout:
		return 2
	case lock.Likely:
		return 1
	}
	return 0
}

// resolve returns the wait in a call. looked: it has read more of the process than the Look has.
func (r *Resolver) resolve(l *Look, call *stack.Call) (_ Info, looked bool) {
	switch l.State {
	case stack.StateStopped, stack.StateTraced:
		return Info{Kind: kind.WaitStopped, Nr: -1}, false
	case stack.StateRunning, stack.StateRunnable, stack.StateDead:
		return Info{Nr: -1}, false
	}
	if call.Nr < 0 {
		return Info{Kind: kind.WaitMemory, Nr: -1}, false
	}
	c, ok := r.calls[call.Nr]
	if !ok {
		if c = syscalls.Lookup(r.c.Arch, call.Nr); len(r.calls) < maxCalls {
			r.calls[call.Nr] = c
		}
	}
	a := args{r: r, l: l, call: call, info: Info{Nr: call.Nr, Call: c.Name, Kind: kindOf(c.Name)}}
	if call.Nr == r.restart.self {
		a.info.Why = "the kernel restarted the call, and with that its number is gone"
		return a.info, false
	}
	for i := range c.Args {
		a.add(&c.Args[i])
	}
	return a.done(), a.looked
}

// maxCalls bounds the cache of system calls.
const maxCalls = 1024

func kindOf(call string) kind.Wait {
	switch call {
	case "nanosleep", "clock_nanosleep":
		return kind.WaitSleep
	case "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2":
		return kind.WaitPoll
	case "wait4", "waitid":
		return kind.WaitChild
	case "rt_sigtimedwait", "rt_sigsuspend", "pause":
		return kind.WaitSignal
	case "semop", "semtimedop", "msgsnd", "msgrcv", "mq_timedreceive", "mq_timedsend":
		return kind.WaitIPC
	case "futex", "futex_waitv", "futex_wait", "flock":
		return kind.WaitLock
	}
	return kind.WaitCall
}

// kindOfFile returns the kind of a wait on one descriptor.
func kindOfFile(k files.Kind) kind.Wait {
	switch k {
	case files.File, files.DirKind, files.Device, files.Memfd:
		return kind.WaitFile
	case files.TCP, files.UDP, files.Unix, files.Socket:
		return kind.WaitSocket
	case files.Pipe:
		return kind.WaitPipe
	case files.Terminal:
		return kind.WaitTerminal
	case files.Eventfd, files.Timerfd, files.Signalfd, files.Inotify, files.Pidfd:
		return kind.WaitEvent
	case files.Epoll:
		return kind.WaitPoll
	}
	return kind.WaitCall
}

// errNoPath is the reason for a missing path.
var errNoPath = errors.New("no end within the longest path")
