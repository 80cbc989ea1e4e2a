package trace

import (
	"fmt"
	"strings"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// Process is what a recording says of its target and of how it was made.
type Process struct {
	PID        int        `json:"pid"`
	NSPID      int        `json:"ns_pid,omitempty"` // its number in its own PID namespace, where that differs
	Comm       string     `json:"comm"`
	Exe        string     `json:"exe"`
	Cmdline    []string   `json:"cmdline"`
	UID        int        `json:"uid"`
	Container  string     `json:"container,omitempty"`
	StartTime  stack.Time `json:"start_time"` // of the process
	Arch       string     `json:"arch"`       // GOARCH's names
	Kernel     string     `json:"kernel"`
	Host       string     `json:"host"`
	Page       int        `json:"page_size"`
	CPUs       int        `json:"cpus"`
	Sliver     string     `json:"sliver"` // version of the program that recorded
	Interval   int64      `json:"interval_ns"`
	Jitter     int64      `json:"jitter_ns"`
	Stop       string     `json:"stop"`
	ThreadSpec string     `json:"threads"`
	Clocks     Clocks     `json:"clocks"`
}

// Replaced says that exec made another program of the process.
func (p *Process) Replaced(comm, exe string, cmdline []string) {
	p.Comm, p.Exe, p.Cmdline = comm, exe, cmdline
}

// Clocks are three clocks read at one moment, in ns.
type Clocks struct {
	Monotonic stack.Time `json:"monotonic"`
	Boottime  int64      `json:"boottime"`
	Realtime  int64      `json:"realtime"` // since 1970
}

// Wall is the time of day at t.
func (c Clocks) Wall(t stack.Time) time.Time {
	return time.Unix(0, c.Realtime+int64(t-c.Monotonic))
}

// Thread is one thread of the target.
type Thread struct {
	TID   stack.TID  `json:"tid"`
	NSTID int        `json:"ns_tid,omitempty"`
	Name  string     `json:"name"`
	Main  bool       `json:"main,omitempty"`
	Born  stack.Time `json:"born"`  // when the thread began
	Since stack.Time `json:"since"` // when it was taken up
	Seq   int        `json:"seq"`   // order in which threads were taken up
}

// Module is a file that was mapped, or a region without one.
type Module struct {
	Path    string `json:"path"`               // as the target sees it; "[vdso]", "[anon]" …
	BuildID string `json:"build_id,omitempty"` // hex
	Dev     uint64 `json:"dev,omitempty"`
	Inode   uint64 `json:"inode,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// Segments are the executable program headers, so that an address of the
	// file can be told from an offset without the file.
	Segments []Segment `json:"segments,omitempty"`
}

// Segment is an executable PT_LOAD of a module.
type Segment struct {
	Off   uint64 `json:"off"`
	Vaddr uint64 `json:"vaddr"`
	Size  uint64 `json:"size"`
}

// Vaddr turns an offset in the file into the file's own address.
func (m *Module) Vaddr(off uint64) (vaddr uint64, ok bool) {
	for _, s := range m.Segments {
		if off >= s.Off && off-s.Off < s.Size {
			return s.Vaddr + (off - s.Off), true
		}
	}
	return 0, false
}

// Mapping is an executable range of the target's memory.
type Mapping struct {
	Start  uint64 `json:"start"`
	End    uint64 `json:"end"`
	Off    uint64 `json:"off"`    // in the module's file
	Module int    `json:"module"` // index into the recording's modules
}

// Maps is the target's executable memory from At on, until the next one.
type Maps struct {
	At       stack.Time `json:"at"`
	Exec     bool       `json:"exec,omitempty"` // an exec made it: another program from here on
	Mappings []Mapping  `json:"mappings"`       // by address
}

// mapsChunk carries a generation and the modules that are new in it.
type mapsChunk struct {
	Maps
	First   int      `json:"first"` // number of the first of Modules
	Modules []Module `json:"modules"`
}

// Captured is a piece of the target that may be gone when names are looked
// up, such as its perf map.
type Captured struct {
	What string     `json:"what"` // "perf-map", "gdb-jit", "jitdump", "vdso"
	At   stack.Time `json:"at"`
	Data []byte     `json:"data"`
}

// Wait describes what a thread waited for: see event.Wait.
type Wait struct {
	ID      int    `json:"id"`
	Call    string `json:"call,omitempty"`
	Args    string `json:"args,omitempty"`
	File    string `json:"file,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Peer    string `json:"peer,omitempty"` // who is at the other end
	Timeout int64  `json:"timeout_ns,omitempty"`
	// Of a lock: its kind and type in package wait/lock's words, how the kind
	// is known, its name among the target's data and the file that it is in,
	// and whether other processes may use it too.
	Lock     string `json:"lock,omitempty"`
	LockType string `json:"lock_type,omitempty"`
	KnownBy  string `json:"lock_known_by,omitempty"`
	Symbol   string `json:"symbol,omitempty"`
	Module   string `json:"module,omitempty"`
	Shared   bool   `json:"shared,omitempty"`
	NoHolder string `json:"no_holder,omitempty"` // why this kind of lock has no holder to be named
	Why      string `json:"why,omitempty"`       // what could not be found out, and why
	// The holder, where it is a thread of another process, and what that is.
	HolderTID  stack.TID `json:"holder_tid,omitempty"`
	HolderName string    `json:"holder_name,omitempty"`
}

// LockName is what to call the lock at addr that w is a wait for: "recursive
// mutex cache_lock". w may be nil: then only the address is known.
func (w *Wait) LockName(addr uint64) string {
	if w == nil || w.Lock == "" {
		return fmt.Sprintf("lock at %#x", addr)
	}
	s := w.Lock
	switch {
	case w.Lock == fileLock:
		return strings.TrimSpace(w.LockType + " " + w.File)
	case w.LockType == "malloc arena" && w.Symbol != "": // the kind, "libc", says no more
		s = "lock of"
	case w.Lock == "rwlock" && w.LockType != "":
		s += " (" + w.LockType + ")"
	case w.LockType != "":
		s = w.LockType + " " + s
	}
	if w.KnownBy == "likely" {
		s = "likely " + s
	}
	if w.Symbol != "" {
		return s + " " + w.Symbol
	}
	return s + fmt.Sprintf(" at %#x", addr)
}

// Excludes reports whether w is a wait for a lock that some have and others
// have not: no condition variable, barrier or join, where threads wait to be
// told something, and no idle thread of a runtime. A lock of which nothing is
// known (w is nil) may be one.
func (w *Wait) Excludes() bool {
	if w == nil {
		return true
	}
	switch w.Lock {
	case "condition variable", "barrier", "join", "park", "go runtime", "safepoint":
		return false
	}
	return true
}

// Idle reports whether a thread of a runtime's own waits for something to do (the kind
// that package wait calls so).
func (w *Wait) Idle() bool { return w.Kind == "idle" }

// idleShare is what a thread that waits for something to do takes of a CPU at most for
// it to count as idle: a collector that works now and then is part of the picture.
const idleShare = .01

// Idled reports whether a thread that waits so in the end, and was on a CPU for cpu of span
// ns, is one of a runtime's own that has had next to nothing to do.
func (w *Wait) Idled(cpu, span int64) bool { return w.Idle() && float64(cpu) < idleShare*float64(span) }

// fileLock is the kind of flock and fcntl locks, which have no address.
const fileLock = "file"

// What is in short what w is a wait for: the lock at addr, else the file or the
// other end, else the call with its arguments; "" where nothing is known.
func (w *Wait) What(addr uint64) string {
	switch {
	case addr != 0 || w != nil && w.Lock != "":
		return w.LockName(addr)
	case w == nil:
		return ""
	case w.File != "" && w.Peer != "" && !strings.Contains(w.File, w.Peer):
		return w.File + " to " + w.Peer
	case w.File != "":
		return w.File
	case w.Args != "" && w.Call != "":
		return w.Call + " " + w.Args
	}
	return w.Call
}

// ThreadStats and Pauses are the sampler's words: see package stack.
type (
	ThreadStats = stack.ThreadStats
	Pauses      = stack.Pauses
)

// Stats are a recording's accounts.
type Stats struct {
	At      stack.Time    `json:"at"`
	Threads []ThreadStats `json:"threads"`
	Pause   Pauses        `json:"pauses"`
	SelfCPU int64         `json:"self_cpu_ns"` // what sliver itself used
	// Unrecorded are threads without a sample, by reason.
	Unrecorded []Unrecorded `json:"unrecorded,omitempty"`
}

// Unrecorded counts threads that were not recorded for one reason.
type Unrecorded struct {
	Threads int    `json:"threads"`
	Why     string `json:"why"`
}

// String is such as "3 threads not recorded: the kernel refuses".
func (u Unrecorded) String() string {
	if u.Threads == 1 {
		return "1 thread not recorded: " + u.Why
	}
	return fmt.Sprintf("%d threads not recorded: %s", u.Threads, u.Why)
}

// Missing is how many threads were not recorded.
func (s *Stats) Missing() (n int) {
	for _, u := range s.Unrecorded {
		n += min(max(u.Threads, 0), maxUnrecorded)
	}
	return n
}

// maxUnrecorded bounds what a hostile recording can say: more threads than Linux can have.
const maxUnrecorded = 1 << 30

// Total adds up the threads.
func (s *Stats) Total() (t ThreadStats) {
	for i := range s.Threads {
		t.Add(&s.Threads[i])
	}
	return t
}

// End closes a recording.
type End struct {
	At     stack.Time `json:"at"`
	Reason string     `json:"reason"` // "duration", "interrupted", "target ended", …
}

// Trigger is what made a flight recorder keep a recording. A recording may have
// several.
type Trigger struct {
	At     stack.Time `json:"at"`            // when its rule held
	Rule   string     `json:"rule"`          // as it was given: "stall>5s"
	Kind   string     `json:"kind"`          // "stall", "memory", "request", …
	Text   string     `json:"text"`          // what happened, for people
	TID    stack.TID  `json:"tid,omitempty"` // the thread that it is about; 0: the process
	Values []Value    `json:"values,omitempty"`
}

// Value is one of the measurements that fired a Trigger.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"` // with its unit
}
