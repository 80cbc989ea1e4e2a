package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// Merged is the report of one of several processes, for Merge.
type Merged struct {
	*Report
	Process string // its name and PID
	Begin   int64  // of the part that the report covers, in ns from a time that all have in common
}

// Several reports on all processes of rec, each with what o selects of it; see Of and Merge.
func Several(rec *trace.Recording, o view.Options, top int) *Report {
	if len(rec.Others) == 0 {
		return Of(rec, o, top)
	}
	if top <= 0 {
		top = DefaultTop
	}
	var all []Merged
	for _, v := range view.All(rec, o) {
		all = append(all, Merged{Report: of(v, o, top, max(top, mergedRows)), Process: v.Process(), Begin: int64(v.Begin())})
	}
	return Merge(all)
}

// mergedRows is how many functions and calls of each process Several adds up: one that is not among the first rows
// of any process may be among those of all.
const mergedRows = 1000

// maxMergedLosses limits the lines of losses of several processes.
const maxMergedLosses = 100

// Merge adds up reports of several processes. Each row stays as it is, but for functions and calls that
// several processes have: their times are added. Threads, locks, waits and goroutines say whose they are. Traced calls and
// io_uring are those of the process with the most CPU time that has such. It changes the reports.
func Merge(all []Merged) *Report {
	all = slices.Clone(all)
	begin := all[0].Begin
	end := begin
	for i := range all {
		begin = min(begin, all[i].Begin)
		end = max(end, all[i].Begin+all[i].Recording.Duration)
	}
	out := &Report{Version: Version, top: all[0].top, Recording: all[0].Recording, Threads: []Thread{}, Locks: []Lock{}, Calls: []Call{},
		Functions: []Function{}, OnCPU: []OnCPU{}, Longest: []Wait{}, Losses: []string{}, NoRuntime: true}
	out.Recording.Duration, out.Recording.Others = end-begin, len(all)-1
	for i := range all {
		if x := all[i].Recording.Begin; all[i].Begin == begin && !x.IsZero() {
			out.Recording.Begin = x
		}
		out.left = append(out.left, all[i].left...)
		if i > 0 {
			out.Recording.Unsampled += all[i].Recording.Unsampled
		}
	}
	out.Losses = append(out.Losses, out.left...)
	slices.SortStableFunc(all, func(a, b Merged) int { return cmp.Compare(cpuOf(b.Report), cpuOf(a.Report)) })
	lines := 0
	for i := range all {
		r := &all[i]
		for _, t := range r.Threads {
			t.Process = r.Process
			out.Threads = append(out.Threads, t)
		}
		for _, l := range r.Locks {
			l.Name, l.Process = l.Name+" · "+r.Process, r.Recording.PID
			out.Locks = append(out.Locks, l)
		}
		for _, w := range r.Longest {
			w.Begin, w.Process = w.Begin+r.Begin-begin, r.Process
			out.Longest = append(out.Longest, w)
		}
		for _, l := range r.Losses {
			if slices.Contains(r.left, l) {
				continue
			}
			if lines++; lines <= maxMergedLosses {
				out.Losses = append(out.Losses, r.Process+": "+l)
			}
		}
		out.mergeTasks(r)
		if out.Traced == nil {
			out.Traced = r.Traced
		}
		out.mergeIO(r, begin)
		out.NoRuntime = out.NoRuntime && r.NoRuntime
		out.Runtime += r.Runtime
		out.all.join(&r.all)
		out.Idle.Join(&r.Idle)
		out.More.add(&r.More)
		out.Cost.add(&r.Cost)
	}
	if lines > maxMergedLosses {
		out.Losses = append(out.Losses, fmt.Sprintf("and %d more", lines-maxMergedLosses))
	}
	out.mergeCalls(all)
	out.mergeFunctions(all)
	out.sort()
	return out
}

func cpuOf(r *Report) int64 { return r.all.cpu }

// adder adds up rows that have the same key.
type adder[K comparable, R any] struct {
	at   map[K]int
	rows []R
}

// row returns the row for a key; fresh: it is x.
func (a *adder[K, R]) row(k K, x R) (row *R, fresh bool) {
	if a.at == nil {
		a.at = map[K]int{}
	}
	i, ok := a.at[k]
	if !ok {
		i = len(a.rows)
		a.at[k], a.rows = i, append(a.rows, x)
	}
	return &a.rows[i], !ok
}

func (r *Report) mergeCalls(all []Merged) {
	type key struct{ call, kind, what string }
	var sums adder[key, Call]
	for i := range all {
		for _, c := range all[i].Calls {
			x, fresh := sums.row(key{c.Call, string(c.Kind), c.For}, c)
			if fresh {
				continue
			}
			x.Waits, x.Total, x.Longest, x.Threads = x.Waits+c.Waits, x.Total+c.Total, max(x.Longest, c.Longest), x.Threads+c.Threads
		}
	}
	r.Calls = append(r.Calls, sums.rows...)
}

func (r *Report) mergeFunctions(all []Merged) {
	type key struct {
		name, file string
		line       int
	}
	var waits adder[key, Function]
	var cpu adder[key, OnCPU]
	for i := range all {
		for _, f := range all[i].Functions {
			x, fresh := waits.row(key{f.Name, f.File, f.Line}, f)
			if fresh {
				continue
			}
			x.Waits, x.Total, x.Longest = x.Waits+f.Waits, x.Total+f.Total, max(x.Longest, f.Longest)
			switch {
			case x.Kind == f.Kind && x.For == f.For:
				x.KindTotal += f.KindTotal
			case f.KindTotal > x.KindTotal:
				x.Kind, x.KindTotal, x.For = f.Kind, f.KindTotal, f.For
			}
		}
		for _, f := range all[i].OnCPU {
			if x, fresh := cpu.row(key{f.Name, f.File, f.Line}, f); !fresh {
				x.Self, x.Total = x.Self+f.Self, x.Total+f.Total
			}
		}
	}
	r.Functions, r.OnCPU = append(r.Functions, waits.rows...), append(r.OnCPU, cpu.rows...)
}

// mergeTasks adds the goroutines of a process. Their numbers are those of its runtime, so no row is of two processes.
func (r *Report) mergeTasks(m *Merged) {
	if m.Tasks == nil {
		return
	}
	if r.Tasks == nil {
		r.Tasks = &Tasks{What: m.Tasks.What, Waits: []TaskWait{}, Funcs: []TaskFunc{}}
	}
	t := r.Tasks
	t.Processes++
	t.Count, t.Ran, t.Ready, t.Idle = t.Count+m.Tasks.Count, t.Ran+m.Tasks.Ran, t.Ready+m.Tasks.Ready, t.Idle+m.Tasks.Idle
	for _, w := range m.Tasks.Waits {
		w.Process = m.Process
		t.Waits = append(t.Waits, w)
	}
	for _, f := range m.Tasks.Funcs {
		f.Process = m.Process
		t.Funcs = append(t.Funcs, f)
	}
}

// mergeIO adds the files of a process.
func (r *Report) mergeIO(m *Merged, begin int64) {
	if m.IO == nil {
		return
	}
	if r.IO == nil {
		r.IO = &IO{Findings: []IOFinding{}, Files: []IOFile{}, Rings: m.IO.Rings}
	}
	for _, f := range m.IO.Findings {
		f.At += m.Begin - begin
		r.IO.Findings = append(r.IO.Findings, f)
	}
	r.IO.Files = append(r.IO.Files, m.IO.Files...)
	r.IO.Part = r.IO.Part || m.IO.Part
}

// sort orders merged tables as those of one process, and cuts them.
func (r *Report) sort() {
	by := func(a, b int64) int { return cmp.Compare(b, a) }
	slices.SortStableFunc(r.Threads, func(a, b Thread) int { return by(a.CPU, b.CPU) })
	slices.SortStableFunc(r.Locks, byLock)
	slices.SortStableFunc(r.Calls, func(a, b Call) int { return by(a.Total, b.Total) })
	slices.SortStableFunc(r.Functions, func(a, b Function) int { return by(a.Total, b.Total) })
	slices.SortStableFunc(r.OnCPU, func(a, b OnCPU) int { return by(a.Self, b.Self) })
	slices.SortStableFunc(r.Longest, func(a, b Wait) int { return by(a.likely(), b.likely()) })
	var n int
	r.Threads, n = cut(r.Threads, maxThreads)
	r.More.Threads += n
	r.Locks, n = cut(r.Locks, r.top)
	r.More.Locks += n
	r.Calls, n = cut(r.Calls, r.top)
	r.More.Calls += n
	r.Functions, n = cut(r.Functions, r.top)
	r.More.Functions += n
	r.OnCPU, n = cut(r.OnCPU, r.top)
	r.More.OnCPU += n
	r.Longest, _ = cut(r.Longest, r.top)
	if t := r.Tasks; t != nil {
		slices.SortStableFunc(t.Waits, func(a, b TaskWait) int { return by(a.Total, b.Total) })
		slices.SortStableFunc(t.Funcs, func(a, b TaskFunc) int { return cmp.Or(by(a.Ran, b.Ran), by(a.Waited, b.Waited)) })
		t.Waits, n = cut(t.Waits, r.top)
		r.More.TaskWaits += n
		t.Funcs, n = cut(t.Funcs, r.top)
		r.More.TaskFuncs += n
	}
	if r.IO != nil {
		slices.SortStableFunc(r.IO.Findings, func(a, b IOFinding) int { return by(a.Total, b.Total) })
		slices.SortStableFunc(r.IO.Files, func(a, b IOFile) int { return by(a.Total, b.Total) })
		r.IO.Findings, n = cut(r.IO.Findings, r.top)
		r.More.Findings += n
		r.IO.Files, n = cutFiles(r.IO.Files, r.top, func(f *IOFile) int { return f.Files })
		r.More.Files += n
	}
}

func (m *More) add(x *More) {
	m.Threads, m.Locks, m.Calls, m.Functions, m.OnCPU = m.Threads+x.Threads, m.Locks+x.Locks, m.Calls+x.Calls, m.Functions+x.Functions, m.OnCPU+x.OnCPU
	m.Traced, m.Files, m.Findings, m.TaskWaits, m.TaskFuncs, m.Waits = m.Traced+x.Traced, m.Files+x.Files, m.Findings+x.Findings, m.TaskWaits+x.TaskWaits, m.TaskFuncs+x.TaskFuncs, m.Waits+x.Waits
}

// add adds the cost of another process. The percentile is the larger one.
func (c *Cost) add(x *Cost) {
	if n := c.Stops + x.Stops; n > 0 {
		c.Mean = int64((float64(c.Mean)*float64(c.Stops) + float64(x.Mean)*float64(x.Stops)) / float64(n))
	}
	c.Share = max(c.Share, x.Share)
	c.Samples, c.Stops, c.Held, c.Restarted = c.Samples+x.Samples, c.Stops+x.Stops, c.Held+x.Held, c.Restarted+x.Restarted
	c.P99, c.Max, c.Self = max(c.P99, x.P99), max(c.Max, x.Max), max(c.Self, x.Self)
}
