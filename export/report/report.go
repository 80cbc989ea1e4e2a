// Package report summarizes a recording in tables: waits by lock, by call and object, and
// by function, the longest single waits with their stacks, the time of each thread, and
// the cost of recording. It writes a Report as text, as JSON (docs/report-json.md) or as
// an HTML page. Callers open the recording.
//
// A Report is built by one goroutine and read-only afterwards.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/idle"
	"github.com/sliverprof/sliver/wait/kind"
)

// DefaultTop is the default number of rows of a table.
const DefaultTop = 15

// Report holds all tables. Times are in ns; rows are sorted by total time, longest first.
type Report struct {
	Version   int        `json:"version"`
	Recording Recording  `json:"recording"`
	Tasks     *Tasks     `json:"goroutines,omitempty"` // nil: not a Go program
	Threads   []Thread   `json:"threads"`
	Locks     []Lock     `json:"locks"`
	Calls     []Call     `json:"calls"`
	Functions []Function `json:"functions"`
	OnCPU     []OnCPU    `json:"on_cpu"`
	NoRuntime bool       `json:"no_runtime"`       // the code of interpreters counts for the functions that they run
	Runtime   int64      `json:"runtime_ns"`       // of the self times in OnCPU, those of interpreters and virtual machines
	Traced    []Traced   `json:"traced,omitempty"` // by --trace
	IO        *IO        `json:"io,omitempty"`     // by --io; nil: it was not recorded
	Longest   []Wait     `json:"longest"`
	Cost      Cost       `json:"cost"`
	Losses    []string   `json:"losses"`
	Idle      idle.Left  `json:"idle"` // omitted from the tables
	// Rows beyond the tables' limit.
	More More `json:"more"`
	// Of a recording of several processes: see AddProcesses. The other tables are of one process.
	Processes    []Process `json:"processes,omitempty"`     // most CPU time first
	CriticalPath []Step    `json:"critical_path,omitempty"` // by time
	OnPath       []OnPath  `json:"on_path,omitempty"`       // its sums by program, longest first
	Between      []Between `json:"waits_between,omitempty"` // waits of processes for each other, longest first

	top  int      // rows of each table
	left []string // lines of Losses about processes that are left out
	all  together // threads
}

// Version is the version of the JSON. It increases when a field changes its meaning or is
// removed.
const Version = 1

// More counts the rows omitted from each table.
type More struct {
	Threads      int `json:"threads"`
	Locks        int `json:"locks"`
	Calls        int `json:"calls"`
	Functions    int `json:"functions"`
	OnCPU        int `json:"on_cpu"`
	Traced       int `json:"traced,omitempty"`
	Files        int `json:"files,omitempty"`
	Findings     int `json:"findings,omitempty"`
	TaskWaits    int `json:"goroutine_waits"`
	TaskFuncs    int `json:"goroutine_functions"`
	Processes    int `json:"processes,omitempty"`
	Between      int `json:"waits_between,omitempty"`
	CriticalPath int `json:"critical_path,omitempty"`
	Waits        int `json:"waits"` // lock waits beyond contend.MaxWaits, not analysed
}

// Recording describes the recording.
type Recording struct {
	PID       int       `json:"pid"`
	Name      string    `json:"name"`
	Command   string    `json:"command"`
	Begin     time.Time `json:"begin"`
	Duration  int64     `json:"duration_ns"`
	Interval  int64     `json:"interval_ns"`
	Shown     string    `json:"shown"`                      // "": everything, otherwise the selected side
	Unsampled int64     `json:"unsampled_cpu_ns,omitempty"` // CPU time of the whole recording that no sample has
	Imported  string    `json:"imported,omitempty"`         // the format of another tool's trace, which has calls alone: on_cpu has elapsed times
	Others    int       `json:"others,omitempty"`           // other processes of the recording; the fields above are of the first one, but for the times
}

// Thread is the time of one thread by state.
type Thread struct {
	Seq  int       `json:"-"` // number in the recording
	TID  stack.TID `json:"tid"`
	Name string    `json:"name"`
	// Observed is the sum of CPU, Runnable, Blocked, Disk and Stopped: see view.States.
	Observed int64  `json:"observed_ns"`
	CPU      int64  `json:"cpu_ns"`      // on a CPU, by the kernel's account
	Runnable int64  `json:"runnable_ns"` // waiting for a CPU, by the kernel's account
	Blocked  int64  `json:"blocked_ns"`
	Locks    int64  `json:"lock_ns"`    // part of Blocked: for a lock that another thread may hold
	Idle     int64  `json:"idle_ns"`    // part of Blocked: without work
	Disk     int64  `json:"disk_ns"`    // in uninterruptible sleep or a page fault
	Stopped  int64  `json:"stopped_ns"` // stopped by a signal, or traced
	Switches uint64 `json:"switches"`   // times that it was switched in
	Waits    int    `json:"waits"`
	Held     int64  `json:"held_by_sliver_ns"`
	Process  string `json:"process,omitempty"` // its name and PID, in a report of several
}

// Share is a name with its share of a total.
type Share struct {
	Name  string `json:"name"`
	Waits int    `json:"waits"`
	Total int64  `json:"total_ns"`
}

// Lock is a lock that threads waited for.
type Lock struct {
	Name     string    `json:"name"`
	Kind     kind.Lock `json:"kind"`
	Addr     string    `json:"addr"`      // hex; "" for file locks
	Excludes bool      `json:"exclusive"` // the lock has holders
	Waits    int       `json:"waits"`
	Total    int64     `json:"total_ns"`
	Longest  int64     `json:"longest_ns"`
	Most     int       `json:"most_waiting"` // at the same time
	Holders  []Share   `json:"holders"`      // threads that released it, with how that is known
	HolderIn []Share   `json:"holder_functions"`
	WaiterIn []Share   `json:"waiter_functions"`
	Unknown  string    `json:"no_holder"` // reason why no holder is named
	// Process is the PID of the process whose lock it is, in a report of several: see Merge.
	Process int `json:"process,omitempty"`
}

// Call is a system call with the object it waited for.
type Call struct {
	Call    string     `json:"call"`
	Kind    kind.Group `json:"kind"`
	For     string     `json:"for"` // file or peer; "" if not applicable
	Waits   int        `json:"waits"`
	Total   int64      `json:"total_ns"`
	Longest int64      `json:"longest_ns"`
	Threads int        `json:"threads"`
}

// Function is a function that waited: the innermost one of the program itself.
type Function struct {
	Name    string `json:"name"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Waits   int    `json:"waits"`
	Total   int64  `json:"total_ns"`
	Longest int64  `json:"longest_ns"`
	// Kind is the group of waits (see view.For) with the longest total time, For its
	// longest object.
	Kind      kind.Group `json:"kind"`
	KindTotal int64      `json:"kind_ns"`
	For       string     `json:"for"`
}

// OnCPU is a function that was on a CPU itself.
type OnCPU struct {
	Name  string `json:"name"`
	File  string `json:"file"`
	Line  int    `json:"line"` // first line of the function; 0: unknown
	Self  int64  `json:"self_ns"`
	Total int64  `json:"total_ns"` // including callees
}

// Fact is a known fact about a wait.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Wait is a single wait.
type Wait struct {
	TID      stack.TID `json:"tid"`
	Thread   string    `json:"thread"`
	Begin    int64     `json:"begin_ns"` // relative to the start of the recording
	Duration int64     `json:"duration_ns"`
	Edge     int64     `json:"edge_ns"` // ns by which the wait may be shorter
	Samples  int       `json:"samples"` // that found it; 0: the kernel's context switches show it
	Cut      bool      `json:"cut"`     // the wait had not ended when the recording did
	State    string    `json:"state"`
	For      string    `json:"for"`
	Facts    []Fact    `json:"facts"`
	Stack    []Frame   `json:"stack"`             // innermost first
	Process  string    `json:"process,omitempty"` // its name and PID, in a report of several

	thread int        // index in the view
	at     stack.Time // beginning
}

// likely returns the duration by which waits are ranked, in ns. One that a single sample found lasts until the next sample, which may be
// ten times as late as planned where the overhead bound stretches the interval.
func (x *Wait) likely() int64 { return x.Duration - x.Edge/2 }

// Hidden describes the frames that the text leaves out: "3 native frames of the interpreter not shown"; "": none.
func (x *Wait) Hidden() string {
	n := 0
	for _, f := range x.Stack {
		if f.Runtime {
			n++
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return "1 native frame of the interpreter not shown"
	}
	return fmt.Sprintf("%s of the interpreter not shown", plural.Of(n, "native frame"))
}

// Frame is a call of a stack.
type Frame struct {
	Func    string `json:"func"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Inlined bool   `json:"inlined"`
	// Runtime: it belongs to the runtime that runs the program's functions. The text leaves it out.
	Runtime bool `json:"runtime"`
}

// Cost is the cost of recording to the target and the machine.
type Cost struct {
	Samples   uint64  `json:"samples"`
	Stops     uint64  `json:"stops"`
	Held      int64   `json:"held_ns"` // sum over all threads
	Share     float64 `json:"held_share"`
	Mean      int64   `json:"pause_mean_ns"`
	P99       int64   `json:"pause_p99_ns"`
	Max       int64   `json:"pause_max_ns"`
	Restarted uint64  `json:"restarted_calls"`
	Self      int64   `json:"sliver_cpu_ns"`
}

// Of reports on the part of rec that o selects, with tables of top rows (0: DefaultTop). Of a recording of several
// processes it is about the first one.
func Of(rec *trace.Recording, o view.Options, top int) *Report {
	if top <= 0 {
		top = DefaultTop
	}
	return of(view.New(rec, o), o, top, top)
}

// of reports on a view of one process. Tables whose rows Merge adds up have at most sums rows, others top.
func of(v *view.View, o view.Options, top, sums int) *Report {
	rec := v.Rec
	r := &Report{Version: Version, top: top, Losses: v.Losses(), Threads: []Thread{}, Locks: []Lock{}, Calls: []Call{}, Functions: []Function{},
		OnCPU: []OnCPU{}, Longest: []Wait{}}
	if r.Losses == nil {
		r.Losses = []string{}
	}
	begin := v.Begin()
	r.Recording = Recording{PID: v.PID(), Name: view.Text(rec.Process.Comm, 256), Command: view.Command(rec.Process.Cmdline),
		Duration: int64(v.End() - begin), Interval: rec.Process.Interval, Shown: o.Side.String()}
	if v.Whole() && len(v.Threads) == len(rec.Threads) {
		r.Recording.Unsampled = max(rec.CPU()-rec.Stats.Total().CPUNS, 0)
	}
	if c := rec.Process.Clocks; c.Realtime > 0 {
		r.Recording.Begin = c.Wall(begin).UTC()
	}
	for _, l := range rec.Left.Lines() {
		r.left = append(r.left, view.Text(l, maxLeft))
	}
	r.cost(rec)
	if len(rec.Tasks) > 0 && rec.Tasks[0].What == "goroutine" {
		r.Tasks = r.tasks(v, top)
	}
	g := newGatherer(v, top)
	for i := range v.Threads {
		t, listed := g.thread(&v.Threads[i])
		if r.all.add(&t, !v.ShowsIdle()); listed {
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
	r.Calls, r.More.Calls = g.calls(sums)
	r.Functions, r.More.Functions = g.functions(sums)
	r.Longest = g.longest(c)
	r.traced(v, top)
	r.io(v, top)
	if o.Side != view.OffCPU {
		r.OnCPU, r.More.OnCPU, r.Runtime = onCPU(v, sums, func(x *tally.Values) int64 { return x.CPU })
		r.NoRuntime = v.Rec.HidesRuntime()
	}
	if from := imported(rec); from != "" && len(r.OnCPU) == 0 {
		r.Recording.Imported = from
		r.OnCPU, r.More.OnCPU, _ = onCPU(v, sums, func(x *tally.Values) int64 { return x.Wall })
	}
	return r
}

// imported returns the format of the trace that a recording without samples was made from; "" for others.
func imported(rec *trace.Recording) string {
	if rec.End == nil || rec.Stats.Total().Samples > 0 {
		return ""
	}
	from, ok := strings.CutPrefix(rec.End.Reason, trace.Imported)
	if !ok {
		return ""
	}
	return view.Text(from, 64)
}

// maxLeft bounds a line about processes that are left out, as View.Losses does.
const maxLeft = 300

// maxThreads limits the table of threads.
const maxThreads = 1000

func (r *Report) cost(rec *trace.Recording) {
	t, p := rec.Stats.Total(), &rec.Stats.Pause
	r.Cost = Cost{Samples: t.Samples, Stops: t.Stopped(), Held: t.PauseNS, Mean: p.Mean, P99: p.P99, Max: p.Max, Restarted: t.Restarted,
		Self: rec.Stats.SelfCPU}
	if t.SpanNS > 0 {
		r.Cost.Share = float64(t.PauseNS) / float64(t.SpanNS)
	}
}

// cut keeps the first top elements of s and returns how many it removed.
func cut[T any](s []T, top int) ([]T, int) {
	if len(s) <= top {
		return s, 0
	}
	return s[:top:top], len(s) - top
}
