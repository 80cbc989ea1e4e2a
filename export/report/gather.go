package report

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/idle"
	"github.com/sliverprof/sliver/wait/kind"
)

// maxRows limits the rows counted separately in one table; later ones are combined as
// "[others]".
const maxRows = 1 << 16

const others = "[others]"

// gatherer processes one thread after another.
type gatherer struct {
	v   *view.View
	top int

	byCall map[callKey]*callRow
	byFunc map[int]*funcRow
	long   longest

	// State of the current thread.
	th     *view.Thread
	row    Thread
	replay *view.Replay
	cuts   view.Intervals
	open   []pending // intervals not yet yielded
	free   [][]trace.Slice
	// closing says that the end of the recording cuts the thread's last interval.
	closing   bool
	idle      int64 // ns of idle waits
	idleLocks int64 // ns of those for locks that exclude others
	blocked   int64 // ns of blocked intervals, including idle ones
	left      idle.Left
}

// pending holds the stack of an interval in progress.
type pending struct {
	stack []trace.Slice // as first confirmed
	asker int           // index of the asking function's frame in stack; -1: none
	exact bool          // the kernel's context switches show it
}

type callKey struct {
	call  string
	group kind.Group
	what  string
}

type callRow struct {
	Call
	last int // index plus 1 of the thread counted last
}

type funcRow struct {
	Function
	groups map[kind.Group]int64 // ns by group
	what   map[view.For]int64   // ns, at most maxWhat of them
}

// maxWhat limits the locks, files and peers counted separately for one function.
const maxWhat = 256

func newGatherer(v *view.View, top int) *gatherer {
	return &gatherer{v: v, top: top, byCall: map[callKey]*callRow{}, byFunc: map[int]*funcRow{}}
}

// thread adds a thread; listed is false if it is omitted from the tables.
func (g *gatherer) thread(th *view.Thread) (row Thread, listed bool) {
	g.th, g.open = th, g.open[:0]
	s := g.v.States(th)
	g.row = Thread{Seq: th.Seq, TID: th.TID, Name: th.Label, Held: g.v.Stats(th).PauseNS, Observed: s.Observed, CPU: s.Running, Runnable: s.Runnable,
		Blocked: s.Blocked, Locks: s.Locks, Disk: s.Disk + s.Fault, Stopped: s.Stopped, Switches: s.Switches}
	g.idle, g.idleLocks, g.blocked = 0, 0, 0
	g.cuts = view.Intervals{Yield: g.take}
	g.replay = g.v.Replay(th, g)
	end := g.replay.Run()
	g.closing = g.cuts.Open()
	g.cuts.Close(end)
	g.closing = false
	part := func(ns int64) int64 { // of the blocked time by the scheduler's account
		if g.blocked == 0 {
			return 0
		}
		return int64(float64(s.Blocked)*(float64(ns)/float64(g.blocked)) + .5)
	}
	g.row.Idle = part(g.idle)
	if g.v.ShowsIdle() {
		return g.row, true
	}
	g.row.Locks = max(g.row.Locks-part(g.idleLocks), 0) // the table of locks lacks them too
	g.left.Add(g.row.Idle, s.Observed-s.Runnable)
	return g.row, !idle.Thread(g.row.Idle, s.Observed-s.Runnable)
}

// Begin implements trace.SliceHandler.
func (g *gatherer) Begin(stack.Time, int, *trace.Slice) {}

// End implements trace.SliceHandler.
func (g *gatherer) End(stack.Time, int, *trace.Slice) {}

// Other implements trace.SliceHandler.
func (g *gatherer) Other(e event.Event) {
	g.cuts.Other(e)
	switch e.Kind() {
	case event.State:
		if n := len(g.open) - 1; n >= 0 && !g.open[n].exact {
			g.fill() // no sample found it, but its stack is the wait's
		}
		if s, _ := event.StateFields(e.Payload()); s != stack.StateUnknown && s != stack.StateDead {
			var buf []trace.Slice
			if n := len(g.free); n > 0 {
				buf, g.free = g.free[n-1], g.free[:n-1]
			}
			g.open = append(g.open, pending{stack: buf, asker: -1, exact: e.Payload()&event.StateExact != 0})
		}
	case event.Seen:
		g.fill()
	}
}

// fill gives the newest interval the stack at hand, if it has none.
func (g *gatherer) fill() {
	if n := len(g.open) - 1; n >= 0 && len(g.open[n].stack) == 0 {
		p := &g.open[n]
		p.stack = append(p.stack, g.replay.Stack()...)
		p.asker = g.v.Asker(p.stack)
	}
}

// take receives the thread's intervals.
func (g *gatherer) take(x *view.Interval) {
	if len(g.open) == 0 {
		return
	}
	p := g.open[0]
	g.open = append(g.open[:0], g.open[1:]...)
	defer func() { g.free = append(g.free, p.stack[:0]) }()
	ns := int64(x.End - x.Begin)
	s, nr := x.Waiting.State()
	switch s {
	case stack.StateBlocked, stack.StateDisk, stack.StateFault, stack.StateStopped, stack.StateTraced:
	default:
		return
	}
	idle := g.v.Idle(&x.Waiting, p.stack)
	if s == stack.StateBlocked {
		g.blocked += ns
	}
	if idle {
		if s == stack.StateBlocked && g.v.ForLock(&x.Waiting) {
			g.idleLocks += ns
		}
		if g.idle += ns; !g.v.ShowsIdle() {
			return
		}
	}
	g.row.Waits++
	call := g.v.Call(nr)
	if call == "" {
		call = s.String()
	}
	f := g.v.For(&x.Waiting, idle)
	what := f.What
	if f.Group == kind.GroupLock || f.Group == kind.GroupCall { // locks have a separate table
		what = ""
	}
	longest := ns
	if x.Fitted() {
		longest = 0
	}
	g.addCall(callKey{call, f.Group, what}, ns, longest)
	g.addFunc(p, f, x.Exact, ns, longest)
	if x.Fitted() {
		return
	}
	full := g.v.What(&x.Waiting)
	if full == "" {
		full = call
	}
	g.single(x, &p, s, full, ns)
}

func (g *gatherer) addCall(k callKey, ns, longest int64) {
	row := g.byCall[k]
	if row == nil {
		if len(g.byCall) >= maxRows {
			k = callKey{call: others}
			row = g.byCall[k]
		}
		if row == nil {
			row = &callRow{Call: Call{Call: k.call, Kind: k.group, For: k.what}}
			g.byCall[k] = row
		}
	}
	row.Waits++
	row.Total += ns
	row.Longest = max(row.Longest, longest)
	if row.last != g.th.Index+1 {
		row.last = g.th.Index + 1
		row.Threads++
	}
}

func (g *gatherer) addFunc(p pending, what view.For, exact bool, ns, longest int64) {
	id := -1
	switch {
	case p.asker >= 0:
		id = p.stack[p.asker].Frame.Func
	case len(p.stack) > 0:
		id = -2
	case exact: // a wait that the kernel saw, and no sample
		id = -3
	}
	row := g.byFunc[id]
	if row == nil {
		row = &funcRow{groups: map[kind.Group]int64{}, what: map[view.For]int64{}}
		switch row.Name = "[unknown]"; {
		case id == -2: // such as an idle thread of Go's
			row.Name = "[runtimes and libraries alone]"
		case id == -3:
			row.Name = trace.NotSampled
		case id >= 0:
			f := &g.v.Names.Funcs[id]
			row.Name, row.File, row.Line = g.v.FuncName(id), view.Text(f.File, 512), f.StartLine
		}
		g.byFunc[id] = row
	}
	row.Waits++
	row.Total += ns
	row.Longest = max(row.Longest, longest)
	row.groups[what.Group] += ns
	if _, ok := row.what[what]; !ok && len(row.what) >= maxWhat {
		what.What = ""
	}
	row.what[what] += ns
}

// mostly sets what the function waited for longest: first the group, then the object
// within it.
func (r *funcRow) mostly() {
	for group, ns := range r.groups {
		if ns > r.KindTotal || ns == r.KindTotal && group < r.Kind {
			r.Kind, r.KindTotal = group, ns
		}
	}
	best, all := int64(-1), 0
	var most view.For
	for f, ns := range r.what {
		if f.Group != r.Kind {
			continue
		}
		if all++; ns > best || ns == best && f.What < most.What {
			most, best = f, ns
		}
	}
	if r.For = most.String(); all > 1 {
		r.For += fmt.Sprintf(" and %d more", all-1)
	}
}

// single keeps the longest waits with their stacks.
func (g *gatherer) single(x *view.Interval, p *pending, s stack.State, what string, ns int64) {
	if likely := ns - min(x.Edge(), ns)/2; ns <= 0 || len(g.long) >= g.top && likely <= g.long[0].likely() {
		return
	}
	_, nr := x.Waiting.State()
	w := Wait{TID: g.th.TID, Thread: g.th.Label, Begin: int64(x.Begin - g.v.Begin()), Duration: ns, Edge: min(x.Edge(), ns), Samples: x.Samples, State: g.v.StateName(s, nr), For: what,
		Facts: []Fact{}, Stack: []Frame{}}
	for _, d := range g.v.Details(&x.Waiting, nil) {
		w.Facts = append(w.Facts, Fact{d.Name, d.Value})
	}
	if woken := g.v.Woken(x.Woken); woken != "" {
		w.Facts = append(w.Facts, Fact{view.DetailWoken, woken})
	}
	if s := g.v.KernelStack(x.Kernel); s != "" {
		w.Facts = append(w.Facts, Fact{view.DetailKernel, s})
	}
	for i := len(p.stack) - 1; i >= 0; i-- {
		f := &p.stack[i].Frame
		w.Stack = append(w.Stack, Frame{Func: g.v.FuncName(f.Func), File: view.Text(f.File, 512), Line: f.Line, Inlined: f.Inlined})
	}
	for i, own := range stack.RuntimeFrames(len(p.stack), func(i int) stack.Place { return g.v.Place(&p.stack[len(p.stack)-1-i]) }) {
		w.Stack[i].Runtime = own
	}
	w.thread, w.at = g.th.Index, x.Begin
	w.Cut = g.closing && len(g.open) == 0
	heap.Push(&g.long, w)
	if len(g.long) > g.top {
		heap.Pop(&g.long)
	}
}

// longest is a heap with the shortest wait on top.
type longest []Wait

func (l longest) Len() int           { return len(l) }
func (l longest) Less(i, j int) bool { return l[i].likely() < l[j].likely() }
func (l longest) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *longest) Push(x any)        { *l = append(*l, x.(Wait)) }
func (l *longest) Pop() any {
	x := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return x
}

// longest returns the kept waits, longest first, with their holders by the evidence of
// all threads.
func (g *gatherer) longest(c *contend.Contention) []Wait {
	out := append([]Wait{}, g.long...)
	slices.SortFunc(out, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(b.likely(), a.likely()), cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.TID, b.TID))
	})
	for i := range out {
		w := &out[i]
		j, ok := slices.BinarySearchFunc(c.Waits, w, func(x contend.Wait, w *Wait) int {
			return cmp.Or(cmp.Compare(x.Thread, w.thread), cmp.Compare(x.Begin, w.at))
		})
		if !ok {
			continue
		}
		x := &c.Waits[j]
		w.Cut = x.Cut
		w.Facts = slices.DeleteFunc(w.Facts, func(f Fact) bool {
			return f.Name == view.DetailHolder || f.Name == view.DetailKnownBy || f.Name == view.DetailNoHolder
		})
		if x.Holder != 0 {
			w.Facts = append(w.Facts, Fact{view.DetailHolder, g.v.ThreadName(x.Holder)}, Fact{view.DetailKnownBy, x.By.String()})
		} else if x.Why != "" {
			w.Facts = append(w.Facts, Fact{view.DetailNoHolder, x.Why})
		}
	}
	return out
}

func (g *gatherer) calls(top int) ([]Call, int) {
	out := []Call{}
	for _, r := range g.byCall {
		out = append(out, r.Call)
	}
	slices.SortFunc(out, func(a, b Call) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Call, b.Call), cmp.Compare(a.For, b.For), cmp.Compare(a.Kind, b.Kind))
	})
	return cut(out, top)
}

func (g *gatherer) functions(top int) ([]Function, int) {
	out := []Function{}
	for _, r := range g.byFunc {
		r.mostly()
		out = append(out, r.Function)
	}
	slices.SortFunc(out, func(a, b Function) int {
		last := func(f *Function) int { // nothing can be done with its time
			if f.Name == trace.NotSampled {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(last(&a), last(&b)), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File))
	})
	return cut(out, top)
}

// onCPU returns the functions that were on a CPU, by the kernel's account, and the part of it that is the own
// time of runtimes in stacks with functions that they run.
func onCPU(v *view.View, top int, value func(*tally.Values) int64) (rows []OnCPU, more int, runtime int64) {
	c := tally.ByCalls(v, false, value)
	own := make([]int64, c.Len())
	for n := range own {
		own[n] = max(c.Self[n], 0)
	}
	runtime = ofRuntime(v, c.Tree, own) // Totals adds callees to own
	self, total := tally.Totals(c.Tree, own, func(to, from *int64) { *to += *from }, func(label int32, dst []int) []int {
		if label >= 0 {
			dst = append(dst, int(label))
		}
		return dst
	})
	out := []OnCPU{}
	begins := map[OnCPU]int{} // 1: it only begins threads; such functions come last
	for l, ns := range total {
		if *ns == 0 {
			continue
		}
		f := &v.Names.Funcs[l]
		on := OnCPU{Name: v.FuncName(l), File: view.Text(f.File, 512), Line: f.StartLine, Total: *ns}
		if x := self[l]; x != nil {
			on.Self = *x
		}
		if on.Self == 0 && v.Rec.HidesRuntime() {
			if p := v.Place(&trace.Slice{Frame: trace.LocFrame{Func: l}}); p.Begins() {
				begins[on] = 1
			}
		}
		out = append(out, on)
	}
	slices.SortFunc(out, func(a, b OnCPU) int {
		return cmp.Or(cmp.Compare(b.Self, a.Self), cmp.Compare(begins[a], begins[b]), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	rows, more = cut(out, top)
	return rows, more, runtime
}

// ofRuntime sums the own times of a runtime's functions that functions which it runs call.
func ofRuntime(v *view.View, t *tally.Tree, own []int64) (ns int64) {
	managed := map[int32]bool{}
	locs := v.Names.Locs()
	for i := range locs {
		if !locs[i].Word.Kind().Managed() {
			continue
		}
		for _, f := range locs[i].Frames {
			managed[int32(f.Func)] = true
		}
	}
	inside := make([]bool, t.Len()) // by node: one of these functions is on the stack
	for n := 1; n < t.Len(); n++ {
		parent, label := t.Node(int32(n))
		inside[n] = inside[parent] || managed[label]
		if own[n] > 0 && inside[n] && label >= 0 && !managed[label] && v.Interpreter(int(label)) {
			ns += own[n]
		}
	}
	return ns
}
