// Package analysis adds up a range of a recording for the page: the tables of package report, the
// merged call tree behind them, how each thread spent its time, and the tasks of a runtime. The
// numbers are those of `sliver report`: the same view, tally and rule for idle waits.
//
// An Analysis is made by one goroutine and only read afterwards.
package analysis

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/idle"
	"github.com/sliverprof/sliver/wait/kind"
)

// Options choose the part of a recording.
type Options struct {
	Threads  []int      // by Seq; nil: all
	From, To stack.Time // 0: open
	ByThread bool       // the tree has a node for each thread below its root
	Idle     bool       // the tables of the report have idle waits too
	Nodes    int        // of the tree, at most; 0: DefaultNodes
}

// Limits of an Analysis.
const (
	DefaultNodes = 20_000
	MaxNodes     = 200_000

	rows     = 200  // of a table
	maxTasks = 2000 // rows of the table of tasks
)

// Analysis is what the page's panel shows. Times are in ns.
type Analysis struct {
	From   int64          `json:"from"` // ns since the base that Of was called with
	To     int64          `json:"to"`
	Report *report.Report `json:"report"`
	// Threads are all threads of the range, idle ones included.
	Threads []Thread `json:"threads"`
	Tree    *Tree    `json:"tree"`
	Funcs   []Func   `json:"funcs"` // that Tree.Func counts
	Tasks   *Tasks   `json:"tasks,omitempty"`
	// Of a recording of several processes: Process is the one that was analyzed, if it was only one, Processes
	// how many were, and Of how many there are.
	Process   string `json:"process,omitempty"`
	Processes int    `json:"processes,omitempty"`
	Of        int    `json:"of,omitempty"`
}

// Thread is how one thread spent its time. CPU, Runnable, Lock, IO, Sleep, Other, Idle and Stopped add
// up to Observed, give or take the rounding.
type Thread struct {
	Seq      int       `json:"seq"`
	TID      stack.TID `json:"tid"`
	Name     string    `json:"name"`
	Observed int64     `json:"observed"`
	CPU      int64     `json:"cpu"`      // the kernel's account
	Runnable int64     `json:"runnable"` // waiting for a CPU, the kernel's account
	Lock     int64     `json:"lock"`     // a lock, or the GIL
	IO       int64     `json:"io"`       // a file, a socket, a pipe, a terminal, the disk, memory
	Sleep    int64     `json:"sleep"`    // for time to pass
	Other    int64     `json:"other"`    // anything else
	Idle     int64     `json:"idle"`     // nothing to do: see package wait/idle
	Stopped  int64     `json:"stopped"`  // by a signal or a tracer
	IsIdle   bool      `json:"is_idle,omitempty"`
}

// Tree is a merged call tree in columns: node 0 is the root, and a node comes after its parent. Values
// include callees.
type Tree struct {
	Parent  []int32 `json:"parent"`
	Func    []int32 `json:"func"` // index in Analysis.Funcs
	Samples []int64 `json:"samples"`
	CPU     []int64 `json:"cpu"`  // the scheduler's account, shared among the samples: docs/notes/estimator.md
	Wall    []int64 `json:"wall"` // elapsed, without idle waits
	Wait    []int64 `json:"wait"` // of that, off the CPUs
	Lock    []int64 `json:"lock"` // of that, for a lock
	Idle    []int64 `json:"idle"` // elapsed in idle waits
	Folded  int     `json:"folded"`
}

// Func is a function of the tree.
type Func struct {
	Name   string `json:"name"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Module string `json:"module,omitempty"`
	Kind   string `json:"kind,omitempty"`   // "": native
	Thread *int   `json:"thread,omitempty"` // Seq, if the node is a thread
}

// Of adds up what o chooses of rec. Its times count from base.
func Of(rec *trace.Recording, base stack.Time, o Options) *Analysis {
	vo := view.Options{Threads: o.Threads, From: o.From, To: o.To, Idle: o.Idle}
	var r *report.Report
	done := make(chan struct{})
	go func() {
		defer close(done)
		r = report.Of(rec, vo, rows)
	}()
	v := view.New(rec, vo)
	a := &Analysis{From: int64(v.Begin() - base), To: int64(v.End() - base), Threads: []Thread{}, Funcs: []Func{}}
	b := &builder{v: v, a: a, o: o, locs: tally.NewTree(), funcs: map[int]int32{}, calls: tally.NewTree()}
	for i := range v.Threads {
		b.thread(&v.Threads[i])
	}
	b.finish()
	a.Tasks = tasksOf(v, base)
	<-done
	a.Report = r
	listed := map[int]bool{}
	for i := range r.Threads {
		listed[r.Threads[i].Seq] = true
	}
	for i := range a.Threads {
		t := &a.Threads[i]
		// Of more threads than the report lists, the ones with little CPU time are judged by these sums.
		t.IsIdle = !listed[t.Seq] && (r.More.Threads == 0 || idle.Thread(t.Idle, t.Observed-t.Runnable))
	}
	return a
}

type builder struct {
	v     *view.View
	a     *Analysis
	o     Options
	locs  *tally.Tree   // stacks by location
	calls *tally.Tree   // stacks by function
	nodes []int32       // in calls, by node of locs; 0: not made
	funcs map[int]int32 // index in Analysis.Funcs, by function
	vals  []nodeValues  // by node of calls
	path  []int32
}

type nodeValues struct{ samples, cpu, wall, wait, lock, idle int64 }

func (x *nodeValues) add(y *nodeValues) {
	x.samples += y.samples
	x.cpu += y.cpu
	x.wall += y.wall
	x.wait += y.wait
	x.lock += y.lock
	x.idle += y.idle
}

// thread takes in a thread.
func (b *builder) thread(th *view.Thread) {
	s := b.v.States(th)
	t := Thread{Seq: th.Seq, TID: th.TID, Name: th.Label, Observed: s.Observed, CPU: s.Running, Runnable: s.Runnable, Stopped: s.Stopped, IO: s.Disk + s.Fault}
	root := int32(0)
	if b.o.ByThread {
		seq := th.Seq
		b.a.Funcs = append(b.a.Funcs, Func{Name: th.Label, Thread: &seq})
		root = b.calls.Child(0, int32(len(b.a.Funcs)-1))
		clear(b.nodes)
	}
	sum := tally.Of(b.v, th, b.locs)
	// Off the CPUs, by samples; the scheduler's account is split by it.
	var lock, io, sleep, other, idled int64
	for j := range sum.Len() {
		k, x := sum.Key(j), sum.Values(j)
		if k.Node == 0 {
			continue
		}
		n := nodeValues{samples: x.Samples, cpu: x.CPU, wall: x.Wall, wait: x.Off, lock: x.Lock}
		rests := x.Wall > 0 && sum.Idle(j)
		if rests {
			n.wall, n.wait, n.lock, n.idle = 0, 0, 0, x.Wall
		}
		b.at(b.node(k.Node, root)).add(&n)
		if k.State() != stack.StateBlocked {
			continue
		}
		w := k.Waiting
		switch b.v.For(&w, rests).Group.Class() {
		case kind.ClassIdle:
			idled += x.Wall
		case kind.ClassLock:
			lock += x.Wall
		case kind.ClassIO:
			io += x.Wall
		case kind.ClassSleep:
			sleep += x.Wall
		default:
			other += x.Wall
		}
	}
	if all := lock + io + sleep + other + idled; all > 0 {
		part := func(ns int64) int64 { return int64(float64(s.Blocked)*(float64(ns)/float64(all)) + .5) }
		t.Lock, t.Sleep, t.Other, t.Idle = part(lock), part(sleep), part(other), part(idled)
		t.IO += part(io)
	} else {
		t.Other = s.Blocked
	}
	b.a.Threads = append(b.a.Threads, t)
}

// at returns the values of a node of b.calls.
func (b *builder) at(n int32) *nodeValues {
	for len(b.vals) < b.calls.Len() {
		b.vals = append(b.vals, nodeValues{})
	}
	return &b.vals[n]
}

// node returns the node of b.calls for a node of b.locs.
func (b *builder) node(n, root int32) int32 {
	for len(b.nodes) < b.locs.Len() {
		b.nodes = append(b.nodes, 0)
	}
	b.path = b.path[:0]
	at := root
	for ; n > 0; n, _ = b.locs.Node(n) {
		if b.nodes[n] != 0 {
			at = b.nodes[n]
			break
		}
		b.path = append(b.path, n)
	}
	for i := len(b.path) - 1; i >= 0; i-- {
		_, l := b.locs.Node(b.path[i])
		switch l {
		case tally.Unknown:
			at = b.calls.Child(at, b.fn(b.v.GapFunc(stack.WhyLost), stack.KindError))
		case tally.NotSampled:
			at = b.calls.Child(at, b.fn(b.v.UnseenFunc(), stack.KindError))
		default:
			loc := b.v.Names.Locs()[l]
			for y := len(loc.Frames) - 1; y >= 0; y-- {
				at = b.calls.Child(at, b.fn(loc.Frames[y].Func, loc.Word.Kind()))
			}
		}
		b.nodes[b.path[i]] = at
	}
	return at
}

// fn returns the index of a function in Analysis.Funcs.
func (b *builder) fn(id int, kind stack.Kind) int32 {
	if n, ok := b.funcs[id]; ok {
		return n
	}
	f := &b.v.Names.Funcs[id]
	out := Func{Name: b.v.FuncName(id), File: view.Text(f.File, 512), Line: f.StartLine}
	if f.Module >= 0 && f.Module < len(b.v.Rec.Modules) {
		out.Module = view.Text(b.v.Rec.Modules[f.Module].Path, 512)
	}
	if kind != stack.KindNative {
		out.Kind = kind.String()
	}
	n := int32(len(b.a.Funcs))
	b.a.Funcs = append(b.a.Funcs, out)
	b.funcs[id] = n
	return n
}

// finish makes the tree. Of a tree that is too large, the nodes with the most time stay; a node's time
// includes that of its callees, so that its callers stay too.
func (b *builder) finish() {
	b.at(0)
	for n := int32(len(b.vals) - 1); n > 0; n-- { // callers come before what they call
		p, _ := b.calls.Node(n)
		b.vals[p].add(&b.vals[n])
	}
	b.columns()
}

// columns makes the tree of nodes whose values include their callees.
func (b *builder) columns() {
	limit := b.o.Nodes
	if limit <= 0 {
		limit = DefaultNodes
	}
	limit = min(limit, MaxNodes)
	size := func(n int) int64 { return b.vals[n].cpu + b.vals[n].wall + b.vals[n].idle }
	least := int64(-1)
	if len(b.vals) > limit {
		all := make([]int64, len(b.vals))
		for n := range all {
			all[n] = size(n)
		}
		slices.SortFunc(all, func(x, y int64) int { return cmp.Compare(y, x) })
		least = all[limit-1]
	}
	t := &Tree{Folded: b.locs.Folded + b.calls.Folded}
	number := make([]int32, len(b.vals))
	for n := range b.vals {
		parent, label := b.calls.Node(int32(n))
		if n > 0 && (size(n) < least || len(t.Parent) >= limit || number[parent] < 0) {
			number[n] = -1
			t.Folded++
			continue
		}
		number[n] = int32(len(t.Parent))
		x := &b.vals[n]
		if n == 0 {
			parent, label = 0, -1
		} else {
			parent = number[parent]
		}
		t.Parent = append(t.Parent, parent)
		t.Func = append(t.Func, label)
		t.Samples = append(t.Samples, x.samples)
		t.CPU = append(t.CPU, x.cpu)
		t.Wall = append(t.Wall, x.wall)
		t.Wait = append(t.Wait, x.wait)
		t.Lock = append(t.Lock, x.lock)
		t.Idle = append(t.Idle, x.idle)
	}
	t.Parent[0] = -1
	b.a.Tree = t
}
