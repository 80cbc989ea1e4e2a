// Package between resolves which processes of a recording waited for which other ones: parents for children,
// readers and writers of pipes and sockets for the other end, and waiters for a lock for its holder. It joins
// the waits of all views with the lives of the processes. Package view describes one process at a time.
//
// A Between is built by one goroutine and read-only afterwards.
package between

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/kind"
)

// Between holds the waits of processes for each other.
type Between struct {
	Processes []Process
	Waits     []Wait // by view, then thread, then time
	// Dropped is the number of waits beyond MaxWaits.
	Dropped int

	views  []*view.View
	slack  stack.Time    // precision of ends that the kernel did not report
	byPID  map[int][]int // indexes of Processes, by Born
	kids   [][]int       // by process: its children, by Born
	ending [][]int       // by process: its children that ended, by Gone
	first  []int         // by view: index of its first wait
	own    []int         // by view: its process
	reaped []bool        // by process: its end ended a wait
}

// Process is a process of the recording, or one without samples that the kernel reported.
type Process struct {
	PID, Parent int // Parent: 0: unknown
	Name        string
	View        int        // index in the views; -1: none
	Born        stack.Time // 0: unknown
	Gone        stack.Time // 0: it did not end while it was recorded
	Exact       bool       // Gone is as the kernel reported it; otherwise it is the time of the last sample
}

// Wait is a wait of a thread for other processes.
type Wait struct {
	View, Thread int // indexes of the view and in View.Threads
	// The wait ended after Seen and at or before End.
	Begin, Seen, End stack.Time
	Kind             kind.Wait
	For              []int // Processes that it was for, oldest first
	More             int   // further ones, beyond MaxFor
	// Waker is the process that ended the wait, -1 if unknown; WakerThread the thread, as an index in the Threads of its
	// view, -1 if unknown. At is when it did so, as far as that is known.
	Waker, WakerThread int
	At                 stack.Time
	By                 By
}

// By says how the waker of a Wait is known.
type By uint8

// Values of By.
const (
	Unknown   By = iota
	ByKernel     // the kernel's context switches show it
	ByEnd        // it ended, and the wait was for its end
	ByEndOnly    // it is the only child that ended when the wait did, and the call waits for signals too
	ByPeer       // it is the only process with the other end of the pipe or socket
	ByHolder     // it held the lock
)

var byNames = [...]string{ByKernel: "kernel", ByEnd: "end", ByEndOnly: "inferred", ByPeer: "peer", ByHolder: "holder"}

// String returns the word for tables; "" for Unknown.
func (b By) String() string {
	if int(b) < len(byNames) {
		return byNames[b]
	}
	return ""
}

// Ways returns the words of all ways in which a waker is known.
func Ways() []string { return byNames[Unknown+1:] }

// Limits.
const (
	MaxWaits = 1 << 19 // some 100 MB
	// MaxFor is how many processes a Wait names.
	MaxFor = 8
	// maxKids bounds how many children, newest first, are searched for those that lived during a wait.
	maxKids = 1 << 12
	// soon is the precision of the end of a wait, and of reports of the kernel, in ns: a thread that is woken waits for
	// a CPU, and is seen in another call.
	soon = 1_000_000
)

// Of resolves the waits of views, which are of rec and its Others. It finds nothing in a recording of one process.
func Of(rec *trace.Recording, views []*view.View) *Between {
	b := &Between{views: views, byPID: map[int][]int{}, first: make([]int, len(views)+1), own: make([]int, len(views))}
	if len(rec.Others) == 0 {
		return b
	}
	b.slack = stack.Time(2 * max(rec.Process.Interval, 0))
	b.lives(rec)
	for i, v := range views {
		b.first[i] = len(b.Waits)
		g := &gatherer{b: b, n: i, v: v}
		for t := range v.Threads {
			g.thread(&v.Threads[t])
		}
	}
	b.first[len(views)] = len(b.Waits)
	b.threads()
	return b
}

// None returns a Between that knows nothing.
func None() *Between { return &Between{} }

// View returns the index of the view of the process that had a PID at t; -1: there is none.
func (b *Between) View(pid int, t stack.Time) int {
	if i := b.find(pid, t); i >= 0 {
		return b.Processes[i].View
	}
	return -1
}

// Of returns the waits of the threads of a view.
func (b *Between) Of(view int) []Wait {
	if view < 0 || view >= len(b.views) {
		return nil
	}
	return b.Waits[b.first[view]:b.first[view+1]]
}

// At returns the wait of a thread that began at t; nil: there is none.
func (b *Between) At(view, thread int, t stack.Time) *Wait {
	ws := b.Of(view)
	i, ok := slices.BinarySearchFunc(ws, t, func(w Wait, t stack.Time) int { return cmp.Or(cmp.Compare(w.Thread, thread), cmp.Compare(w.Begin, t)) })
	if !ok {
		return nil
	}
	return &ws[i]
}

// String names a process: "gcc (1234)".
func (p *Process) String() string { return fmt.Sprintf("%s (%d)", p.Name, p.PID) }

// Text names the processes that w was for: "cc1 (1234), as (1235) and 2 more"; "" if none is known.
func (b *Between) Text(w *Wait) string {
	var names []string
	for _, i := range w.For {
		names = append(names, b.Processes[i].String())
	}
	s := strings.Join(names, ", ")
	if w.More > 0 {
		s += fmt.Sprintf(" and %d more", w.More)
	}
	return s
}

// Woken describes what ended w: "cc1 (1234) ended"; "" if that is unknown.
func (b *Between) Woken(w *Wait) string {
	if w.Waker < 0 {
		return ""
	}
	p := &b.Processes[w.Waker]
	s := p.String()
	if w.WakerThread >= 0 && p.View >= 0 {
		if th := &b.views[p.View].Threads[w.WakerThread]; int(th.TID) != p.PID {
			s += fmt.Sprintf(", thread %s (%d)", th.Label, th.TID)
		}
	}
	switch w.By {
	case ByEnd:
		s += " ended"
	case ByEndOnly:
		s += " ended (inferred)"
	}
	return s
}

// lives lists the processes.
func (b *Between) lives(rec *trace.Recording) {
	of := map[*trace.Recording]int{}
	for i, v := range b.views {
		of[v.Rec] = i
	}
	all := rec.All()
	last := stack.Time(0)
	for _, one := range all {
		_, to := one.Span()
		last = max(last, to)
	}
	for _, one := range all {
		p := Process{PID: one.Process.PID, Parent: one.Process.Parent, Name: view.Text(one.Process.Comm, 256), View: -1, Born: one.Process.StartTime}
		if i, ok := of[one]; ok {
			p.View = i
			b.own[i] = len(b.Processes)
		}
		if _, to := one.Span(); one.End != nil {
			switch {
			case one.End.Gone > 0:
				p.Gone, p.Exact = one.End.Gone, true
			case one.End.Reason == "target ended" || to < last-b.slack:
				p.Gone = to
			}
		}
		b.Processes = append(b.Processes, p)
	}
	if rec.Left != nil {
		for i := range rec.Left.Processes {
			if l := &rec.Left.Processes[i]; l.Gone > 0 {
				b.Processes = append(b.Processes, Process{PID: l.PID, Parent: l.Parent, Name: view.Text(l.Name, 256), View: -1, Born: l.Born, Gone: l.Gone, Exact: true})
			}
		}
	}
	b.relate()
}

// relate finds the children of the processes.
func (b *Between) relate() {
	for i := range b.Processes {
		b.byPID[b.Processes[i].PID] = append(b.byPID[b.Processes[i].PID], i)
	}
	for _, is := range b.byPID {
		slices.SortStableFunc(is, func(x, y int) int { return cmp.Compare(b.Processes[x].Born, b.Processes[y].Born) })
	}
	b.reaped = make([]bool, len(b.Processes))
	b.kids, b.ending = make([][]int, len(b.Processes)), make([][]int, len(b.Processes))
	for i := range b.Processes {
		p := &b.Processes[i]
		if p.Parent == 0 || p.Parent == p.PID {
			continue
		}
		if of := b.find(p.Parent, p.Born); of >= 0 {
			b.kids[of] = append(b.kids[of], i)
			if p.Gone > 0 {
				b.ending[of] = append(b.ending[of], i)
			}
		}
	}
	for i := range b.kids {
		slices.SortStableFunc(b.kids[i], func(x, y int) int { return cmp.Compare(b.Processes[x].Born, b.Processes[y].Born) })
		slices.SortStableFunc(b.ending[i], func(x, y int) int { return cmp.Compare(b.Processes[x].Gone, b.Processes[y].Gone) })
	}
}

// bornWithin is the precision of a process's start time, in ns: /proc counts it in ticks of 10 ms.
const bornWithin = 20_000_000

// find returns the process that had a PID at t, the newest if several may have had it; -1: none.
func (b *Between) find(pid int, t stack.Time) int {
	is := b.byPID[pid]
	for k := len(is) - 1; k >= 0; k-- {
		if p := &b.Processes[is[k]]; p.Born <= t+bornWithin && (p.Gone == 0 || p.Gone >= t-b.edge(p)) {
			return is[k]
		}
	}
	return -1
}

// edge is the precision of a process's end.
func (b *Between) edge(p *Process) stack.Time {
	if p.Exact {
		return soon
	}
	return b.slack + soon
}

// gatherer finds the waits of one process.
type gatherer struct {
	b  *Between
	n  int // index of v
	v  *view.View
	th *view.Thread
	at stack.Time // beginning of the last interval
}

// others passes on events that do not change a stack's shape.
type others struct{ *view.Intervals }

func (others) Begin(stack.Time, int, *trace.Slice) {}
func (others) End(stack.Time, int, *trace.Slice)   {}

func (g *gatherer) thread(th *view.Thread) {
	g.th = th
	in := &view.Intervals{Yield: g.take}
	end := g.v.Slices(th, others{in})
	n, open := len(g.b.Waits), in.Open()
	in.Close(end)
	if k := len(g.b.Waits) - 1; open && k >= n {
		w := &g.b.Waits[k]
		if w.Begin == g.at && w.End >= end { // nothing ended it
			w.Waker, w.WakerThread, w.By, w.At = -1, -1, Unknown, 0
		}
	}
}

func (g *gatherer) take(x *view.Interval) {
	g.at = x.Begin
	if s, _ := x.Waiting.State(); s != stack.StateBlocked && s != stack.StateDisk {
		return
	}
	w := Wait{View: g.n, Thread: g.th.Index, Begin: x.Begin, Seen: x.Seen, End: x.End, Waker: -1, WakerThread: -1}
	if !g.resolve(&w, x) {
		return
	}
	if len(g.b.Waits) >= MaxWaits {
		g.b.Dropped++
		return
	}
	g.b.Waits = append(g.b.Waits, w)
}

// resolve reports whether w was for another process, or was ended by one.
func (g *gatherer) resolve(w *Wait, x *view.Interval) bool {
	d := g.v.Wait(&x.Waiting)
	if d != nil {
		w.Kind = d.Kind
		switch {
		case d.Kind == kind.WaitChild || d.ChildPID != 0:
			g.child(w, d)
		case d.PeerPID != 0:
			g.peer(w, d, d.Timeout > 0 && int64(x.End-x.Begin) >= d.Timeout-d.Timeout/50)
		}
	}
	g.holder(w, &x.Waiting)
	if k, soft := g.v.WakerOf(x.Woken); k != nil && k.PID != g.v.Rec.Process.PID {
		g.measured(w, k, soft)
	}
	if w.Waker < 0 && len(w.For) == 0 && signalled(w.Kind) {
		g.signal(w)
	}
	return len(w.For) > 0 || w.Waker >= 0
}

// child resolves a wait for the end of a child.
func (g *gatherer) child(w *Wait, d *trace.Wait) {
	b, own := g.b, g.b.own[g.n]
	if d.ChildPID != 0 {
		if i := b.find(d.ChildPID, w.Begin); i >= 0 {
			w.For = []int{i}
			if b.endedIn(&b.Processes[i], w.Begin, w.End) {
				b.end(w, i, ByEnd)
			}
		}
		return
	}
	kids := b.kids[own] // one that was born after Seen was made by a thread that waited no more
	for k, n := b.bornBy(kids, w.Seen), 0; k > 0 && n < maxKids; n++ {
		k--
		if p := &b.Processes[kids[k]]; p.Gone == 0 || p.Gone > w.Begin {
			if len(w.For) == MaxFor {
				w.For, w.More = w.For[:MaxFor-1], w.More+1 // the oldest are named
			}
			w.For = slices.Insert(w.For, 0, kids[k])
		}
	}
	if i := b.ended(own, w); len(i) > 0 {
		b.end(w, i[0], ByEnd)
		if !slices.Contains(w.For, w.Waker) {
			if w.For = append(w.For, w.Waker); len(w.For) > MaxFor {
				w.For, w.More = w.For[1:], w.More+1
			}
		}
	}
}

// bornBy returns the number of kids that were born before t.
func (b *Between) bornBy(kids []int, t stack.Time) int {
	n, _ := slices.BinarySearchFunc(kids, t, func(i int, t stack.Time) int { return cmp.Compare(b.Processes[i].Born, t) })
	return n
}

// endedIn reports whether the end of p may have ended a wait after from and at or before to. Its parent is woken after
// the kernel's report: on a busy machine p waits for a CPU before that.
func (b *Between) endedIn(p *Process, from, to stack.Time) bool {
	return p.Gone > 0 && p.Gone > from-late-b.edge(p) && p.Gone <= to+b.edge(p)
}

// Limits of the search for the child whose end ended a wait.
const (
	late     = 20_000_000 // ns from the kernel's report of an end until the parent is woken
	maxEnded = 64         // candidates
)

// ended returns the children of a process whose end may have ended w, and ended no wait before, by time. If the kernel
// reported the ends of any of them, those are the only ones.
func (b *Between) ended(process int, w *Wait) (out []int) {
	kids := b.ending[process]
	from := max(w.Begin, w.Seen) - late
	at, _ := slices.BinarySearchFunc(kids, from-b.slack-soon, func(i int, t stack.Time) int { return cmp.Compare(b.Processes[i].Gone, t) })
	exact := false
	for ; at < len(kids) && b.Processes[kids[at]].Gone <= w.End+b.slack+soon && len(out) < maxEnded; at++ {
		if p := &b.Processes[kids[at]]; !b.reaped[kids[at]] && b.endedIn(p, max(w.Begin, w.Seen), w.End) {
			out = append(out, kids[at])
			exact = exact || p.Exact
		}
	}
	if exact {
		out = slices.DeleteFunc(out, func(i int) bool { return !b.Processes[i].Exact })
	}
	return out
}

// end makes the end of a child the reason why w ended.
func (b *Between) end(w *Wait, child int, by By) {
	b.reaped[child] = true
	w.Waker, w.By, w.At = child, by, b.Processes[child].Gone
}

// peer resolves a wait for the other end of a pipe or socket. timeout: it ended by its timeout.
func (g *gatherer) peer(w *Wait, d *trace.Wait, timeout bool) {
	i := g.b.find(d.PeerPID, w.Begin)
	if i < 0 || i == g.b.own[g.n] {
		return
	}
	w.For = []int{i}
	if timeout {
		return
	}
	w.Waker, w.By, w.At = i, ByPeer, w.End
	if p := &g.b.Processes[i]; p.Gone > 0 && g.b.endedIn(p, w.Seen, w.End) { // it closed its end at the latest then
		w.At = min(p.Gone, w.End)
	}
}

// holder resolves a wait for a lock that a thread of another process holds.
func (g *gatherer) holder(w *Wait, x *diff.Waiting) {
	tid, _ := x.Holder()
	if tid == 0 {
		return
	}
	if _, ok := g.v.ByTID(tid); ok {
		return
	}
	if k := g.b.find(int(tid), w.Begin); k >= 0 && k != g.b.own[g.n] {
		w.For, w.More, w.Waker, w.WakerThread, w.By, w.At = []int{k}, 0, k, -1, ByHolder, w.End
		return
	}
	for n, v := range g.b.views {
		if th, ok := v.ByTID(tid); ok && n != g.n && th.Since <= w.End {
			w.For, w.More, w.Waker, w.WakerThread, w.By, w.At = []int{g.b.own[n]}, 0, g.b.own[n], th.Index, ByHolder, w.End
			return
		}
	}
}

// measured applies what the kernel saw. soft: an interrupt found the thread on its CPU, as when a packet of the same
// machine is received.
func (g *gatherer) measured(w *Wait, k *trace.Waker, soft bool) {
	i := g.b.find(k.PID, w.End)
	if i < 0 || soft && !slices.Contains(w.For, i) {
		return
	}
	by := ByKernel
	if w.By == ByEnd && w.Waker == i {
		by = ByEnd
	}
	if w.Waker != i || w.By != ByEnd {
		w.At = w.End
	}
	w.Waker, w.WakerThread, w.By = i, -1, by
	if p := &g.b.Processes[i]; p.View >= 0 {
		if th, ok := g.b.views[p.View].ByTID(k.TID); ok {
			w.WakerThread = th.Index
		}
	}
	if len(w.For) == 0 {
		w.For = []int{i}
	}
}

// signalled reports whether a wait of this kind may be ended by SIGCHLD.
func signalled(k kind.Wait) bool {
	switch k {
	case kind.WaitPoll, kind.WaitPipe, kind.WaitSignal:
		return true
	}
	return false
}

// signal finds the only child whose end may have ended w: make waits for a slot or the end of a child in one call.
func (g *gatherer) signal(w *Wait) {
	if i := g.b.ended(g.b.own[g.n], w); len(i) == 1 && g.b.Processes[i[0]].Exact {
		w.For = i
		g.b.end(w, i[0], ByEndOnly)
	}
}

// threads finds the threads of wakers that are known by their process: the one that lived, or the only one that ran
// while the wait ended.
func (b *Between) threads() {
	runs := map[int][][]span{} // by view
	for i := range b.Waits {
		w := &b.Waits[i]
		if w.Waker < 0 || w.WakerThread >= 0 {
			continue
		}
		n := b.Processes[w.Waker].View
		if n < 0 {
			continue
		}
		v := b.views[n]
		switch {
		case w.By == ByEnd || w.By == ByEndOnly || w.By == ByHolder: // a process ends with its main thread
			w.WakerThread = mainOf(v)
			continue
		case len(v.Threads) == 1:
			w.WakerThread = 0
			continue
		}
		if _, ok := runs[n]; !ok {
			runs[n] = runsOf(v)
		}
		w.WakerThread = onlyOne(runs[n], w)
	}
}

func mainOf(v *view.View) int {
	for i := range v.Threads {
		if v.Threads[i].Main {
			return i
		}
	}
	return -1
}

// span is a time in which a thread may have run.
type span struct{ from, to stack.Time }

// maxSpans bounds the spans of one process.
const maxSpans = 1 << 18

// runsOf returns when the threads of a process may have run: all times but those between the first and last sight of
// a wait.
func runsOf(v *view.View) [][]span {
	out := make([][]span, len(v.Threads))
	left := maxSpans
	for i := range v.Threads {
		in := &view.Intervals{Yield: func(x *view.Interval) {
			s := span{x.Begin, x.End}
			if x.Waits() {
				s.from = x.Seen
			}
			if k := len(out[i]) - 1; k >= 0 && s.from <= out[i][k].to {
				out[i][k].to = max(out[i][k].to, s.to)
				return
			}
			if left > 0 {
				left--
				out[i] = append(out[i], s)
			}
		}}
		in.Close(v.Slices(&v.Threads[i], others{in}))
	}
	return out
}

// onlyOne returns the only thread that ran while w may have ended; -1: none or several.
func onlyOne(runs [][]span, w *Wait) int {
	found := -1
	for i, all := range runs {
		k, _ := slices.BinarySearchFunc(all, w.Seen, func(s span, t stack.Time) int { return cmp.Compare(s.to, t) })
		if k == len(all) || all[k].from > w.End {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}
