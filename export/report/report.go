// Package report says what the threads of a recording did and waited for, in tables:
// by lock, by call and what it was for, by function, the longest single waits
// with their stacks, how each thread's time was spent, and what the recording
// itself cost. It writes a Report as text, as JSON (docs/report-json.md) or as
// a page of HTML; where the recording comes from is its callers' to know.
//
// A Report is made by one goroutine and only read afterwards.
package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/idle"
)

// DefaultTop is how many rows a table has, unless told otherwise.
const DefaultTop = 15

// Report is what there is to say. Times are in ns; tables have the longest in
// all first.
type Report struct {
	Version   int        `json:"version"`
	Recording Recording  `json:"recording"`
	Tasks     *Tasks     `json:"goroutines,omitempty"` // nil: not a program of Go
	Threads   []Thread   `json:"threads"`
	Locks     []Lock     `json:"locks"`
	Calls     []Call     `json:"calls"`
	Functions []Function `json:"functions"`
	OnCPU     []OnCPU    `json:"on_cpu"`
	Longest   []Wait     `json:"longest"`
	Cost      Cost       `json:"cost"`
	Losses    []string   `json:"losses"`
	Idle      idle.Left  `json:"idle"` // left out of the tables
	// Left out of the tables for want of rows.
	More More `json:"more"`
}

// Version of the JSON. It rises when a field changes its meaning or goes away.
const Version = 1

// More is how many rows tables would have beyond those that they have.
type More struct {
	Threads   int `json:"threads"`
	Locks     int `json:"locks"`
	Calls     int `json:"calls"`
	Functions int `json:"functions"`
	OnCPU     int `json:"on_cpu"`
	TaskWaits int `json:"goroutine_waits"`
	TaskFuncs int `json:"goroutine_functions"`
	Waits     int `json:"waits"` // for locks, not taken in at all: there were too many
}

// Recording is what is reported on.
type Recording struct {
	PID      int       `json:"pid"`
	Name     string    `json:"name"`
	Command  string    `json:"command"`
	Begin    time.Time `json:"begin"`
	Duration int64     `json:"duration_ns"`
	Interval int64     `json:"interval_ns"`
	Shown    string    `json:"shown"` // "" everything; else what side of the time alone
}

// Thread is how one thread's time was spent.
type Thread struct {
	TID  stack.TID `json:"tid"`
	Name string    `json:"name"`
	// Observed is the sum of CPU, Runnable, Blocked, Disk and Stopped: see view.States.
	Observed int64  `json:"observed_ns"`
	CPU      int64  `json:"cpu_ns"`      // on a CPU, by the kernel's account
	Runnable int64  `json:"runnable_ns"` // waiting for one, by the kernel's account
	Blocked  int64  `json:"blocked_ns"`
	Locks    int64  `json:"lock_ns"`    // of that, for a lock that others may have
	Idle     int64  `json:"idle_ns"`    // of that, with nothing to do
	Disk     int64  `json:"disk_ns"`    // in uninterruptible sleep or a page fault
	Stopped  int64  `json:"stopped_ns"` // stopped by a signal, or traced
	Switches uint64 `json:"switches"`   // times that it was put on a CPU
	Waits    int    `json:"waits"`
	Held     int64  `json:"held_by_sliver_ns"`
}

// Share is a name with what part it had in something.
type Share struct {
	Name  string `json:"name"`
	Waits int    `json:"waits"`
	Total int64  `json:"total_ns"`
}

// Lock is a lock that was waited for.
type Lock struct {
	Name     string  `json:"name"`
	Kind     string  `json:"kind"`
	Addr     string  `json:"addr"`      // hex; "" for file locks
	Excludes bool    `json:"exclusive"` // a lock that some have and others have not
	Waits    int     `json:"waits"`
	Total    int64   `json:"total_ns"`
	Longest  int64   `json:"longest_ns"`
	Most     int     `json:"most_waiting"` // at one time
	Holders  []Share `json:"holders"`      // threads that let go, with how that is known
	HolderIn []Share `json:"holder_functions"`
	WaiterIn []Share `json:"waiter_functions"`
	Unknown  string  `json:"no_holder"` // why none is named, if none is
}

// Call is a system call with what it was for.
type Call struct {
	Call    string `json:"call"`
	Kind    string `json:"kind"`
	For     string `json:"for"` // the file, the other end; "" where it is for nothing of the kind
	Waits   int    `json:"waits"`
	Total   int64  `json:"total_ns"`
	Longest int64  `json:"longest_ns"`
	Threads int    `json:"threads"`
}

// Function is one that waited: the innermost of the program's own.
type Function struct {
	Name    string `json:"name"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Waits   int    `json:"waits"`
	Total   int64  `json:"total_ns"`
	Longest int64  `json:"longest_ns"`
	// Kind is the group of waits (see view.For) that took longest in all, For what of it did.
	Kind      string `json:"kind"`
	KindTotal int64  `json:"kind_ns"`
	For       string `json:"for"`
}

// OnCPU is a function that was on a CPU itself.
type OnCPU struct {
	Name  string `json:"name"`
	File  string `json:"file"`
	Line  int    `json:"line"` // where the function begins; 0 unknown
	Self  int64  `json:"self_ns"`
	Total int64  `json:"total_ns"` // with all that it called
}

// Fact is one thing known of a wait.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Wait is a single wait.
type Wait struct {
	TID      stack.TID `json:"tid"`
	Thread   string    `json:"thread"`
	Begin    int64     `json:"begin_ns"` // from the recording's beginning
	Duration int64     `json:"duration_ns"`
	Edge     int64     `json:"edge_ns"` // it may be shorter by this
	Cut      bool      `json:"cut"`     // the recording ends in it
	State    string    `json:"state"`
	For      string    `json:"for"`
	Facts    []Fact    `json:"facts"`
	Stack    []Frame   `json:"stack"` // innermost first

	thread int        // index in the view
	at     stack.Time // beginning
}

// Frame is a call of a stack.
type Frame struct {
	Func    string `json:"func"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Inlined bool   `json:"inlined"`
}

// Cost is what the recording took of its target, and of the machine.
type Cost struct {
	Samples   uint64  `json:"samples"`
	Stops     uint64  `json:"stops"`
	Held      int64   `json:"held_ns"` // all threads together
	Share     float64 `json:"held_share"`
	Mean      int64   `json:"pause_mean_ns"`
	P99       int64   `json:"pause_p99_ns"`
	Max       int64   `json:"pause_max_ns"`
	Restarted uint64  `json:"restarted_calls"`
	Self      int64   `json:"sliver_cpu_ns"`
}

// Of reports on what o chooses of rec, with tables of top rows (0:
// DefaultTop).
func Of(rec *trace.Recording, o view.Options, top int) *Report {
	if top <= 0 {
		top = DefaultTop
	}
	v := view.New(rec, o)
	r := &Report{Version: Version, Losses: v.Losses(), Threads: []Thread{}, Locks: []Lock{}, Calls: []Call{}, Functions: []Function{},
		OnCPU: []OnCPU{}, Longest: []Wait{}}
	if r.Losses == nil {
		r.Losses = []string{}
	}
	begin := v.Begin()
	r.Recording = Recording{PID: v.PID(), Name: view.Text(rec.Process.Comm, 256), Command: view.Command(rec.Process.Cmdline),
		Duration: int64(v.End() - begin), Interval: rec.Process.Interval, Shown: o.Side.String()}
	if c := rec.Process.Clocks; c.Realtime > 0 {
		r.Recording.Begin = c.Wall(begin).UTC()
	}
	r.cost(rec)
	if len(rec.Tasks) > 0 && rec.Tasks[0].What == "goroutine" {
		r.Tasks = r.tasks(v, top)
	}
	g := newGatherer(v, top)
	for i := range v.Threads {
		if t, listed := g.thread(&v.Threads[i]); listed {
			r.Threads = append(r.Threads, t)
		}
	}
	r.Idle = g.left
	slices.SortStableFunc(r.Threads, func(a, b Thread) int { return cmp.Compare(b.CPU, a.CPU) })
	if len(r.Threads) > maxThreads {
		r.More.Threads = len(r.Threads) - maxThreads
		r.Threads = r.Threads[:maxThreads]
	}
	c := contend.Of(v)
	r.More.Waits = c.Dropped
	r.locks(v, c, top)
	r.Calls, r.More.Calls = g.calls(top)
	r.Functions, r.More.Functions = g.functions(top)
	r.Longest = g.longest(c)
	if o.Side != view.OffCPU {
		r.OnCPU, r.More.OnCPU = onCPU(v, top)
	}
	return r
}

// maxThreads bounds the table of threads.
const maxThreads = 1000

func (r *Report) cost(rec *trace.Recording) {
	t, p := rec.Stats.Total(), &rec.Stats.Pause
	r.Cost = Cost{Samples: t.Samples, Stops: t.Stopped(), Held: t.PauseNS, Mean: p.Mean, P99: p.P99, Max: p.Max, Restarted: t.Restarted,
		Self: rec.Stats.SelfCPU}
	if t.SpanNS > 0 {
		r.Cost.Share = float64(t.PauseNS) / float64(t.SpanNS)
	}
}

// cut keeps the first top of s, and says how many there are beyond.
func cut[T any](s []T, top int) ([]T, int) {
	if len(s) <= top {
		return s, 0
	}
	return s[:top:top], len(s) - top
}
