package trace

import (
	"fmt"
	"strings"
	"time"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/kind"
)

// Process describes a recording's target and how it was recorded.
type Process struct {
	PID        int        `json:"pid"`
	NSPID      int        `json:"ns_pid,omitempty"` // its PID in its own PID namespace, if different
	Parent     int        `json:"ppid,omitempty"`   // in a recording of several processes, the PID of the one that started it; 0: unknown
	Comm       string     `json:"comm"`
	Exe        string     `json:"exe"`
	Cmdline    []string   `json:"cmdline"`
	UID        int        `json:"uid"`
	Container  string     `json:"container,omitempty"`
	StartTime  stack.Time `json:"start_time"` // of the process
	Arch       string     `json:"arch"`       // GOARCH name
	Kernel     string     `json:"kernel"`
	Host       string     `json:"host"`
	Page       int        `json:"page_size"`
	CPUs       int        `json:"cpus"`
	Sliver     string     `json:"sliver"` // version of the recording program
	Interval   int64      `json:"interval_ns"`
	Jitter     int64      `json:"jitter_ns"`
	Stop       string     `json:"stop"`
	ThreadSpec string     `json:"threads"`
	Clocks     Clocks     `json:"clocks"`
}

// Replaced records that the process executed another program.
func (p *Process) Replaced(comm, exe string, cmdline []string) {
	p.Comm, p.Exe, p.Cmdline = comm, exe, cmdline
}

// Clocks are three clocks read at one moment, in ns.
type Clocks struct {
	Monotonic stack.Time `json:"monotonic"`
	Boottime  int64      `json:"boottime"`
	Realtime  int64      `json:"realtime"` // since 1970
}

// Wall returns the wall-clock time at t.
func (c Clocks) Wall(t stack.Time) time.Time {
	return time.Unix(0, c.Realtime+int64(t-c.Monotonic))
}

// Thread is one thread of the target.
type Thread struct {
	TID   stack.TID  `json:"tid"`
	NSTID int        `json:"ns_tid,omitempty"`
	Name  string     `json:"name"`
	Main  bool       `json:"main,omitempty"`
	Born  stack.Time `json:"born"`  // start time of the thread
	Since stack.Time `json:"since"` // when sampling of it began
	// Before is its CPU time before that, in ns, if it was started since the recording began.
	Before int64 `json:"cpu_before_ns,omitempty"`
	Seq    int   `json:"seq"` // order in which threads were added
	// Named is since when it is known to have Name, if that is not its first one; 0: from the beginning.
	Named stack.Time `json:"named,omitempty"`
	// Was are its earlier names, oldest first. In a file, each is a chunk of its own.
	Was []ThreadName `json:"-"`
}

// ThreadName is a name that a thread had from a time on.
type ThreadName struct {
	Name string
	From stack.Time // 0: from the beginning
}

// MaxThreadNames bounds how many names a recording has of one thread. tooManyNames replaces all
// later ones.
const (
	MaxThreadNames = 10_000
	tooManyNames   = "(more than 10000 names)"
)

// Rename gives the thread a new name from a time on. It reports whether anything changed: a thread
// that had MaxThreadNames names gets a last one that says so.
func (t *Thread) Rename(name string, at stack.Time) bool {
	at = max(at, t.Named)
	if len(t.Was)+2 >= MaxThreadNames {
		name = tooManyNames
	}
	if name == t.Name {
		return false
	}
	if n := len(t.Was); n > 0 && at == t.Named {
		t.Name = name // the name before was for no time
		return true
	}
	t.Was = append(t.Was, ThreadName{Name: t.Name, From: t.Named})
	t.Name, t.Named = name, at
	return true
}

// Names returns all names of the thread, oldest first.
func (t *Thread) Names() []ThreadName {
	return append(t.Was[:len(t.Was):len(t.Was)], ThreadName{Name: t.Name, From: t.Named})
}

// each calls yield with the thread as it was with each of its names, oldest first.
func (t *Thread) each(yield func(Thread) error) error {
	for _, n := range t.Names() {
		x := *t
		x.Name, x.Named, x.Was = n.Name, n.From, nil
		if err := yield(x); err != nil {
			return err
		}
	}
	return nil
}

// Module is a file that was mapped, or a region without a file.
type Module struct {
	Path    string `json:"path"`               // as the target sees it; "[vdso]", "[anon]" …
	BuildID string `json:"build_id,omitempty"` // hex
	Dev     uint64 `json:"dev,omitempty"`
	Inode   uint64 `json:"inode,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// Segments are the executable program headers. They convert between file offsets and
	// addresses without the file.
	Segments []Segment `json:"segments,omitempty"`
}

// Segment is an executable PT_LOAD of a module.
type Segment struct {
	Off   uint64 `json:"off"`
	Vaddr uint64 `json:"vaddr"`
	Size  uint64 `json:"size"`
}

// Vaddr converts an offset in the file to the file's own address.
func (m *Module) Vaddr(off uint64) (vaddr uint64, ok bool) {
	for _, s := range m.Segments {
		if off >= s.Off && off-s.Off < s.Size {
			return s.Vaddr + (off - s.Off), true
		}
	}
	return 0, false
}

// Place is the address by which code at addr, in mapping x of m, is named if it has no symbol: the file's own one, or the
// offset in a file whose program headers are unknown, such as one that could not be read. Memory outside files has addr.
func (m *Module) Place(x *Mapping, addr uint64) uint64 {
	off := addr - x.Start + x.Off
	if v, ok := m.Vaddr(off); ok {
		return v
	}
	if strings.HasPrefix(m.Path, "/") && !strings.HasPrefix(m.Path, memfd) {
		return off
	}
	return addr
}

// memfd begins the paths of memory of memfd_create(2), in which programs make code.
const memfd = "/memfd:"

// Mapping is an executable range of the target's memory.
type Mapping struct {
	Start  uint64 `json:"start"`
	End    uint64 `json:"end"`
	Off    uint64 `json:"off"`    // in the module's file
	Module int    `json:"module"` // index into the recording's modules
}

// Maps is the target's executable memory from At until the next generation.
type Maps struct {
	At       stack.Time `json:"at"`
	Exec     bool       `json:"exec,omitempty"` // created by an exec: another program from here on
	Mappings []Mapping  `json:"mappings"`       // by address
}

// mapsChunk contains a generation and its new modules.
type mapsChunk struct {
	Maps
	First   int      `json:"first"` // number of the first module in Modules
	Modules []Module `json:"modules"`
}

// Captured is a piece of the target that may not exist when names are looked up, such as
// its perf map.
type Captured struct {
	What string     `json:"what"` // "perf-map", "gdb-jit", "jitdump", VDSO
	At   stack.Time `json:"at"`
	Data []byte     `json:"data"`
}

// Wait describes what a thread waited for: see event.Wait.
type Wait struct {
	ID   int       `json:"id"`
	Call string    `json:"call,omitempty"`
	Args string    `json:"args,omitempty"`
	File string    `json:"file,omitempty"`
	Kind kind.Wait `json:"kind,omitempty"`
	Peer string    `json:"peer,omitempty"` // the other end of a socket or pipe
	// PeerPID is the only other process that has the other end, ChildPID the child that is waited for; 0: unknown,
	// or there are several.
	PeerPID  int   `json:"peer_pid,omitempty"`
	ChildPID int   `json:"child_pid,omitempty"`
	Timeout  int64 `json:"timeout_ns,omitempty"`
	// Fields of a lock: its kind and type as package wait/lock names them, how the kind is
	// known, the symbol and file that contain it, and whether other processes may use it
	// too.
	Lock     kind.Lock `json:"lock,omitempty"`
	LockType string    `json:"lock_type,omitempty"`
	KnownBy  string    `json:"lock_known_by,omitempty"`
	Symbol   string    `json:"symbol,omitempty"`
	Module   string    `json:"module,omitempty"`
	Shared   bool      `json:"shared,omitempty"`
	NoHolder string    `json:"no_holder,omitempty"` // why this kind of lock has no known holder
	Why      string    `json:"why,omitempty"`       // what could not be determined, and why
	// The holder, if it is a thread of another process, and its description.
	HolderTID  stack.TID `json:"holder_tid,omitempty"`
	HolderName string    `json:"holder_name,omitempty"`
}

// LockName names the lock at addr of wait w: "recursive mutex cache_lock". If w is nil,
// only the address is known.
func (w *Wait) LockName(addr uint64) string {
	if w == nil || w.Lock == "" {
		return fmt.Sprintf("lock at %#x", addr)
	}
	s := string(w.Lock)
	switch {
	case w.Lock == kind.LockFile:
		return strings.TrimSpace(w.LockType + " " + w.File)
	case w.LockType == "malloc arena" && w.Symbol != "": // the kind, "libc", adds nothing
		s = "lock of"
	case w.Lock.Mode() && w.LockType != "":
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

// Excludes reports whether w is a wait for a lock with holders. An unknown lock (w is nil) may be one.
func (w *Wait) Excludes() bool { return w == nil || w.Lock.Excludes() }

// Idle reports whether a thread of a runtime waits for work.
func (w *Wait) Idle() bool { return w.Kind == kind.WaitIdle }

// idleShare is the highest CPU share of a thread waiting for work that counts as idle: a
// collector that works now and then should stay visible.
const idleShare = .01

// Idled reports whether a thread whose last wait is w, and that was on a CPU for cpu of
// span ns, is a nearly idle thread of a runtime.
func (w *Wait) Idled(cpu, span int64) bool { return w.Idle() && float64(cpu) < idleShare*float64(span) }

// What briefly describes w: the lock at addr, otherwise the file or peer, otherwise the
// call with its arguments; "" if unknown.
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

// ThreadStats and Pauses are defined by the sampler: see package stack.
type (
	ThreadStats = stack.ThreadStats
	Pauses      = stack.Pauses
)

// Stats are a recording's statistics.
type Stats struct {
	At      stack.Time    `json:"at"`
	Threads []ThreadStats `json:"threads"`
	Pause   Pauses        `json:"pauses"`
	SelfCPU int64         `json:"self_cpu_ns"` // CPU time used by sliver itself
	// CPU is the CPU time in ns that the process used since sampling began, by the kernel's account: also that of threads
	// without samples. 0: unknown, or a part of the threads was recorded.
	CPU int64 `json:"cpu_ns,omitempty"`
	// Unrecorded are threads without samples, by reason.
	Unrecorded []Unrecorded `json:"unrecorded,omitempty"`
}

// Unrecorded counts threads that were not recorded for one reason.
type Unrecorded struct {
	Threads int    `json:"threads"`
	Why     string `json:"why"`
}

// String returns a text such as "3 threads not recorded: the kernel refuses".
func (u Unrecorded) String() string {
	return fmt.Sprintf("%s not recorded: %s", plural.Of(u.Threads, "thread"), u.Why)
}

// Missing returns how many threads were not recorded.
func (s *Stats) Missing() (n int) {
	for _, u := range s.Unrecorded {
		n += min(max(u.Threads, 0), maxUnrecorded)
	}
	return n
}

// maxUnrecorded limits the count in a hostile recording: more threads than Linux can have.
const maxUnrecorded = 1 << 30

// Total sums the statistics of all threads.
func (s *Stats) Total() (t ThreadStats) {
	for i := range s.Threads {
		t.Add(&s.Threads[i])
	}
	return t
}

// CPU returns the CPU time of the recording's process in ns: that of its threads, or that in Stats or End, which may be more.
func (rec *Recording) CPU() int64 {
	ns := max(rec.Stats.Total().CPUNS, rec.Stats.CPU)
	if rec.End != nil {
		ns = max(ns, rec.End.CPU)
	}
	return ns
}

// Imported begins the Reason of a recording that was made from another tool's trace; the format follows.
const Imported = "imported from "

// End marks the end of a complete recording.
type End struct {
	At     stack.Time `json:"at"`
	Reason string     `json:"reason"` // "duration", "interrupted", "target ended", …
	// Gone is when the process ended, as the kernel reported it, in a recording of several processes; 0: unknown,
	// or it did not end.
	Gone stack.Time `json:"gone,omitempty"`
	// CPU is the CPU time, in ns, that the process used from its birth to At or its end, by the kernel's account. It has
	// the time after the last samples of threads, and threads without samples. 0: unknown, or it began before the recording.
	CPU int64 `json:"cpu_ns,omitempty"`
	// Exit is how the process ended; nil: it did not end, or how is not known.
	Exit *Exit `json:"exit,omitempty"`
}

// Exit is how a process ended.
type Exit struct {
	Status int    `json:"status"`           // its exit status; 0 if a signal killed it
	Signal string `json:"signal,omitempty"` // the signal that killed it, such as "SIGKILL"
	Core   bool   `json:"core,omitempty"`   // the signal had the kernel write a core file
}

// String returns "exit status 3" or "killed by SIGSEGV", and "" for nil.
func (e *Exit) String() string {
	switch {
	case e == nil:
		return ""
	case e.Signal != "":
		return "killed by " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// Trigger is the reason why a flight recorder kept a recording. A recording may have
// several.
type Trigger struct {
	At     stack.Time `json:"at"`            // when its rule matched
	Rule   string     `json:"rule"`          // as configured: "stall>5s"
	Kind   string     `json:"kind"`          // "stall", "memory", "request", …
	Text   string     `json:"text"`          // human-readable description
	TID    stack.TID  `json:"tid,omitempty"` // the thread concerned; 0: the process
	Values []Value    `json:"values,omitempty"`
}

// Value is a measurement that fired a Trigger.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"` // with its unit
}
