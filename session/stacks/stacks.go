// Package stacks is one look at all threads of a process: their stacks, their waits and lock
// holders, the deadlocks and the convoys. It combines the results that its caller has walked,
// symbolized and resolved, and writes them as text for people or as JSON, whose stable form is
// documented in docs/stack-json.md. It accesses no process itself. Its functions are pure and may
// be called concurrently.
package stacks

import (
	"slices"
	"strconv"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/graph"
)

// Frame is one logical frame with its name.
type Frame struct {
	Addr     uint64 // the PC, or the return address into the function
	Func     string // "" unknown
	Offset   uint64 // of Addr from the function's start; meaningless without Func
	NoOffset bool   // the function's start is unknown
	Module   string // path
	BuildID  string // hex
	File     string
	Line     int
	Inlined  bool // into the next frame
	Trust    stack.Trust
	Kind     stack.Kind // KindError: a gap; Func is the reason
}

// Thread is one thread at one look.
type Thread struct {
	TID       stack.TID
	Name      string
	OwnName   string // the name set by its runtime; "": none, or unknown
	Carries   string // the Java virtual thread that it runs; "": none, or unknown
	State     stack.State
	CPU       int64        // ns on CPUs since it began; -1 unknown
	Wait      *wait.Info   // nil: it does not wait, or the wait is unknown
	Frames    []Frame      // leaf first
	Truncated stack.Reason // why the stack ends early; ReasonNone: it does not
}

// Goroutine is one goroutine of a Go program at one look.
type Goroutine struct {
	ID        uint64
	Parent    uint64    // the goroutine that started it; 0: unknown
	Status    string    // the runtime's name: "running", "waiting", …
	Wait      string    // why it waits; "": it does not, or unknown
	For       int64     // least time in ns that it has waited; -1: unknown
	Thread    stack.TID // the thread that runs it; 0: none
	Locked    bool      // to its thread
	CreatedBy *Frame    // the go statement; nil: unknown
	Frames    []Frame   // leaf first
	Truncated stack.Reason
}

// Snapshot is one look at all threads of one process.
type Snapshot struct {
	PID       int
	Comm      string
	Time      time.Time
	Threads   []Thread // by TID
	Deadlocks []graph.Deadlock
	Convoys   []graph.Convoy

	Goroutines []Goroutine // by ID; nil: not requested
	Unread     int         // number of goroutines, or possible ones, that could not be read

	// What WriteText shows.
	Full      bool   // each call of a recursion, the runtime's own frames, whole paths
	Natives   bool   // the runtime's own frames
	Addresses bool   // of each frame
	Dir       string // the process's working folder, to which paths are shown relative; "": unknown
}

// New returns a Snapshot of threads, in any order. others are threads of other processes that may
// be part of a deadlock over shared locks. confirm is that of graph.Deadlocks; convoy is the
// least number of waiters of a convoy (0: graph.DefaultConvoy).
func New(pid int, comm string, at time.Time, threads []Thread, others []graph.Thread, confirm func(*graph.Thread) bool, convoy int) *Snapshot {
	s := &Snapshot{PID: pid, Comm: comm, Time: at, Threads: slices.Clone(threads)}
	slices.SortFunc(s.Threads, func(a, b Thread) int { return int(a.TID) - int(b.TID) })
	all := make([]graph.Thread, 0, len(threads)+len(others))
	for i := range s.Threads {
		all = append(all, graph.Thread{PID: pid, TID: s.Threads[i].TID, Info: s.Threads[i].Wait})
	}
	all = append(all, others...)
	s.Deadlocks = graph.Deadlocks(all, confirm)
	s.Deadlocks = slices.DeleteFunc(s.Deadlocks, func(d graph.Deadlock) bool {
		return !slices.ContainsFunc(d.Threads, func(t graph.Thread) bool { return t.PID == pid })
	})
	if convoy <= 0 {
		convoy = graph.DefaultConvoy
	}
	s.Convoys = slices.DeleteFunc(graph.Convoys(all, convoy), func(c graph.Convoy) bool {
		return !slices.ContainsFunc(c.Waiters, func(t graph.Thread) bool { return t.PID == pid })
	})
	return s
}

// Thread returns the thread with that TID, nil if it is not of the process.
func (s *Snapshot) Thread(tid stack.TID) *Thread {
	i, ok := slices.BinarySearchFunc(s.Threads, tid, func(t Thread, tid stack.TID) int { return int(t.TID) - int(tid) })
	if !ok {
		return nil
	}
	return &s.Threads[i]
}

// Only removes the frames whose kind keep rejects; gaps remain.
func (s *Snapshot) Only(keep func(stack.Kind) bool) {
	drop := func(f Frame) bool { return f.Kind != stack.KindError && !keep(f.Kind) }
	for i := range s.Threads {
		s.Threads[i].Frames = slices.DeleteFunc(s.Threads[i].Frames, drop)
	}
	for i := range s.Goroutines {
		// Goroutines share stacks.
		s.Goroutines[i].Frames = slices.DeleteFunc(slices.Clone(s.Goroutines[i].Frames), drop)
	}
}

func hexa(v uint64) string { return "0x" + strconv.FormatUint(v, 16) }
