// Package wait answers, for a thread that is blocked: what it waits for, who
// holds it, and how that is known. It takes what the sampler has (the system
// call, the stack, the counters), reads memory and files of /proc through
// small interfaces, and stops nobody. It leaves names of functions and data
// to its callers, who give them as functions where they have them; what
// deadlocks and convoys are to package wait/graph; and wakers that only a
// recording can tell to package wait/infer.
//
// Nothing here fails: what cannot be read leaves a reason in Info.Why or
// Holder.Why. A Resolver belongs to one goroutine at a time, and so does a
// Thread.
package wait

import (
	"errors"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/files"
	"github.com/sliverprof/sliver/wait/lock"
	"github.com/sliverprof/sliver/wait/syscalls"
)

// Kind is what sort of wait it is.
type Kind string

// Kinds of waits.
const (
	KindNone     Kind = ""      // it does not wait
	KindLock     Kind = "lock"  // a lock: Info.Lock says which
	KindSleep    Kind = "sleep" // for time to pass
	KindPoll     Kind = "poll"  // for one of several descriptors
	KindIdle     Kind = "idle"  // for something to do: a thread of a runtime's own
	KindFile     Kind = "file"
	KindSocket   Kind = "socket"
	KindPipe     Kind = "pipe"
	KindTerminal Kind = "terminal"
	KindEvent    Kind = "event" // eventfd, timerfd, signalfd, inotify, pidfd
	KindChild    Kind = "child"
	KindSignal   Kind = "signal"
	KindIPC      Kind = "ipc" // System V and POSIX queues and semaphores
	KindMemory   Kind = "page fault"
	KindStopped  Kind = "stopped"
	KindCall     Kind = "call" // another system call
)

// Info is what a thread waits for.
type Info struct {
	Kind    Kind
	Nr      int32         // of the system call; -1: none
	Call    string        // its name; "" where it is in none
	Args    string        // the arguments that say something, for people
	Timeout time.Duration // after which the call gives up, from when it was looked at first; 0: it does not
	File    string        // what the descriptor or path is; "" where there is none, or more than one
	Peer    string        // who is at the other end: "10.0.0.5:5432", "PID 77 (sort)"
	PeerPID int           // 0: not known, or not a process of this machine
	Child   int           // PID of the child it waits for; 0: any, or none
	Lock    *Lock         // nil: it waits for no lock
	Why     string        // what could not be found out, and why; "" where nothing is missing
	Owes    bool          // more will be known as soon as Config.Later has it
}

// Lock is a lock with its place among the target's data.
type Lock struct {
	lock.Lock
	Symbol string // "cache_lock", "malloc arena", "registry+0x40", "libfoo.so+0x4040"; "" unknown
	Module string // path of the file that it is in; "" unknown
	Path   string // of the file, for file locks
	Other  string // who Holder is, "postgres (process 4711)", where that is a thread of another process
	Key    Key
	line   line // of a file lock
}

// Key tells locks apart, also those that several processes share. It can be
// compared.
type Key struct {
	PID    int    // 0 for a lock that processes share
	Addr   uint64 // in that process
	Dev    string // of a shared lock's file, as /proc/PID/maps shows it
	Inode  uint64
	Offset uint64 // in that file
}

// Symbol is a place among a program's data.
type Symbol struct {
	Name   string // "": a variable that the file has no name for
	Offset uint64 // from its start; without a name the file's own address (vaddr)
	Module string // path
}

// Config is what a Resolver needs to know of its process.
type Config struct {
	PID  int    // as Sys shows it
	Arch string // GOARCH's name
	Mem  lock.Memory
	Proc files.Dir // /proc/PID
	Sys  files.Dir // /proc; nil: other processes and file locks are not looked at
	// LocksLater says that /proc/locks is read by somebody else, who hands it to
	// Tell: until then nobody is known to hold a file lock.
	LocksLater bool
	Unix       files.UnixPeers // nil: the other ends of UNIX sockets stay unknown
	// Later reads what takes long of descriptors, for the Resolvers of one process;
	// nil: a Resolver does it itself.
	Later *Later
	// Monotonic is CLOCK_MONOTONIC in ns, Realtime ns since 1970.
	Monotonic func() int64
	Realtime  func() int64
	// Thread translates a TID of the target's PID namespace: see lock.Target.
	// nil: /proc is asked.
	Thread func(nstid int32, shared bool) (stack.TID, bool)
	// Data names data of the target by address; nil: it stays without names.
	Data func(addr uint64) (Symbol, bool)
	// GIL tells of a managed runtime's lock that a thread sleeps for on the futex
	// word at addr; ok is false where that is another lock. nil: there is none.
	GIL func(addr uint64) (g GIL, ok bool)
	// Monitor tells what a thread of a managed runtime, by the number that the
	// target's PID namespace has for it, waits for that it sleeps for on a futex; ok is
	// false where it is another lock. MonitorOwner tells who has the monitor at addr by
	// now. nil: there are none.
	Monitor      func(nstid int32) (m Monitor, ok bool)
	MonitorOwner func(addr uint64) (locked bool, holder int32)
	// LockName names a lock of a runtime's own, which has a better name than a place inside of
	// a file's data; "": it is not one. nil: there are none.
	LockName func(l *lock.Lock) string
	// TTL: see files.Config.
	TTL int64
}

// GIL is the lock of an interpreter at one moment.
type GIL struct {
	Addr   uint64 // of the lock
	Locked bool
	Holder int32 // TID as the target's PID namespace has it; 0: nobody, or not known
}

// Look is one look at a blocked thread. It is only read.
type Look struct {
	TID      stack.TID
	NSTID    int32 // as the target's PID namespace numbers it; 0: not known
	State    stack.State
	Call     stack.Call
	SP       uint64 // 0: not known
	Switches uint64 // as long as they stay the same, so does the wait
	Frames   []stack.Frame
	// Names returns the functions of the stack, leaf first; it is only called
	// for a wait that is new. nil: not known.
	Names func() []string
	// Function names the function that an address of the target lies in, if its
	// name is one that Tells, "" else; nil: not known. It is for stacks other
	// than that of the thread itself: a goroutine's.
	Function func(addr uint64) string
	// Still reports whether the thread has not run since it was looked at. nil:
	// it cannot have (it is held).
	Still func() bool
}

// Result says what Resolve did.
type Result uint8

// Results.
const (
	Unchanged Result = iota // the wait is the one of the last time; nothing was read
	Changed                 // another wait
	Torn                    // the thread went on meanwhile: the Info is empty
)

// Thread is what is kept of one thread between two looks. The zero Thread is
// ready.
type Thread struct {
	call     stack.Call
	sp       uint64
	switches uint64
	state    stack.State
	known    bool
	info     Info
	gave     stack.Call // the call as it was before the kernel restarted it
	nstid    int32
	again    int // how often the lock was looked at anew for want of proof
}

// maxAgain is how often a lock whose kind is not proven, because it was
// changing hands when it was looked at, is looked at anew in the same wait.
const maxAgain = 16

// Info of the last look; nil if there was none.
func (t *Thread) Info() *Info {
	if !t.known {
		return nil
	}
	return &t.info
}

// Later is files.Later, Dir files.Dir.
type (
	Later = files.Later
	Dir   = files.Dir
)

// Resolver finds out what the threads of one process wait for.
type Resolver struct {
	c       Config
	files   *files.Table
	target  lock.Target
	threads threads
	maps    maps
	calls   map[int32]syscalls.Call
	restart restarts
	others  map[stack.TID]other
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

// Forget drops what is known of the process's memory and descriptors: an exec
// replaced them. Threads are to be made anew.
func (r *Resolver) Forget() {
	r.files.Forget()
	r.maps.forget()
	r.threads.forget()
	r.target.Libc = lock.AnyLibc
	r.maps.libcKnown = false
}

// Resolve finds out what the thread of l waits for. The Info belongs to th
// and is true until the next call for it. For a wait that is still the same
// it reads nothing; who holds the lock by now is then Refresh's to say.
func (r *Resolver) Resolve(th *Thread, l *Look) (*Info, Result) {
	if th.known && th.switches == l.Switches && th.call == l.Call && th.sp == l.SP && th.state == l.State {
		return &th.info, Unchanged
	}
	call := l.Call
	if call.Nr == r.restart.self && call.Nr >= 0 {
		// A signal or a tracer cut the call short and the kernel goes on with
		// it: its arguments are still in the registers, its number is not.
		if th.known && th.call.Args == call.Args && th.sp == l.SP {
			call.Nr = th.gave.Nr
		} else if nr := r.restart.was(&call, r.c.Mem); nr >= 0 {
			call.Nr = nr
		}
	}
	r.files.Owes()
	info := r.resolve(l, &call)
	info.Owes = r.files.Owes()
	r.nameHolder(info.Lock)
	if l.Still != nil && !l.Still() {
		*th = Thread{}
		return &Info{Nr: -1, Why: "the thread went on while it was looked at"}, Torn
	}
	*th = Thread{call: l.Call, sp: l.SP, switches: l.Switches, state: l.State, known: true, info: info, gave: call, nstid: l.NSTID}
	return &th.info, Changed
}

// Keeps reports whether who holds the lock can be asked again: Refresh.
func (l *Lock) Keeps() bool {
	return l.Kind == lock.File || l.Kind == lock.GIL || l.Kind == lock.Monitor || l.Kind == lock.Synchronizer ||
		l.Impl == "hotspot" && l.Basis == lock.ByNothing || lock.Keeps(&l.Lock)
}

// Tells reports whether a function's name, as Look.Names has them, says
// something about a wait that it is on the stack of: others may be left out.
func Tells(name string) bool { return lock.Tells(name) }

// MayTell reports whether a name, as it stands in a file and maybe mangled, may be one that Tells.
func MayTell(name string) bool { return lock.MayTell(name) }

// Refresh reads who holds the lock that th waits for by now. It costs one
// read of a few bytes where the lock keeps an owner, one of /proc/locks for a
// file lock, and nothing elsewhere.
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
	if th.info.Lock.Kind == lock.File {
		if r.c.Sys == nil || r.c.LocksLater {
			return false
		}
		return th.info.Lock.tell(ReadFileLocks(r.c.Sys))
	}
	if th.info.Lock.Kind == lock.GIL {
		return r.refreshGIL(&th.info.Lock.Lock)
	}
	b := th.info.Lock.Basis
	if k := th.info.Lock.Kind; b != lock.ByNothing && (k == lock.Monitor || k == lock.Synchronizer) {
		return r.refreshMonitor(th)
	}
	if (b == lock.Likely || b == lock.ByNothing) && th.again < maxAgain {
		th.again++
		return r.prove(th)
	}
	changed, err := lock.Refresh(&r.target, &th.info.Lock.Lock)
	if err != nil {
		h := lock.Holder{Why: "the lock can no longer be read"}
		changed = th.info.Lock.Holder != h
		th.info.Lock.Holder = h
	}
	return changed
}

// Proven reports whether the kind of th's lock is known for sure: then who
// holds it is the same for all who wait for it.
func (t *Thread) Proven() bool {
	return t.known && t.info.Lock != nil && rank(t.info.Lock.Basis) == 2
}

// Tell puts in who holds the file lock that th waits for, by a list that was read
// while it did. It reports whether that is news.
func (r *Resolver) Tell(th *Thread, all *FileLocks) (changed bool) {
	if !th.known || th.info.Lock == nil || th.info.Lock.Kind != lock.File {
		return false
	}
	if changed = th.info.Lock.tell(all); changed {
		r.nameHolder(th.info.Lock)
	}
	return changed
}

// prove looks at a lock again whose kind could not be proven.
func (r *Resolver) prove(th *Thread) (changed bool) {
	l := Look{NSTID: th.nstid, State: th.state, SP: th.sp}
	info := r.resolve(&l, &th.gave)
	if n := info.Lock; n == nil || rank(n.Basis) < rank(th.info.Lock.Basis) {
		return false
	}
	changed = *info.Lock != *th.info.Lock
	info.Timeout = th.info.Timeout // from the first look on
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

func (r *Resolver) resolve(l *Look, call *stack.Call) Info {
	switch l.State {
	case stack.StateStopped, stack.StateTraced:
		return Info{Kind: KindStopped, Nr: -1}
	case stack.StateRunning, stack.StateRunnable, stack.StateDead:
		return Info{Nr: -1}
	}
	if call.Nr < 0 {
		return Info{Kind: KindMemory, Nr: -1}
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
		return a.info
	}
	for i := range c.Args {
		a.add(&c.Args[i])
	}
	return a.done()
}

// maxCalls bounds the numbers of system calls that are kept.
const maxCalls = 1024

func kindOf(call string) Kind {
	switch call {
	case "nanosleep", "clock_nanosleep":
		return KindSleep
	case "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2":
		return KindPoll
	case "wait4", "waitid":
		return KindChild
	case "rt_sigtimedwait", "rt_sigsuspend", "pause":
		return KindSignal
	case "semop", "semtimedop", "msgsnd", "msgrcv", "mq_timedreceive", "mq_timedsend":
		return KindIPC
	case "futex", "futex_waitv", "futex_wait", "flock":
		return KindLock
	}
	return KindCall
}

// kindOfFile is the kind of a wait on one descriptor.
func kindOfFile(k files.Kind) Kind {
	switch k {
	case files.File, files.DirKind, files.Device, files.Memfd:
		return KindFile
	case files.TCP, files.UDP, files.Unix, files.Socket:
		return KindSocket
	case files.Pipe:
		return KindPipe
	case files.Terminal:
		return KindTerminal
	case files.Eventfd, files.Timerfd, files.Signalfd, files.Inotify, files.Pidfd:
		return KindEvent
	case files.Epoll:
		return KindPoll
	}
	return KindCall
}

// errNoPath says why a path is missing.
var errNoPath = errors.New("no end within the longest path")
