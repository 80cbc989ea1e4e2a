package view

import (
	"regexp"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// matcher caches which functions' names match a regular expression.
type matcher struct {
	re    *regexp.Regexp
	names *trace.Names
	known []int8 // by function: 0 not checked, 1 matches, -1 does not
}

func (m *matcher) function(i int) bool {
	for len(m.known) <= i {
		m.known = append(m.known, make([]int8, len(m.names.Funcs)-len(m.known))...)
	}
	if m.known[i] == 0 {
		m.known[i] = -1
		if m.re.MatchString(m.names.Funcs[i].Name) {
			m.known[i] = 1
		}
	}
	return m.known[i] > 0
}

func (m *matcher) loc(l *trace.Loc) bool {
	for i := range l.Frames {
		if m.function(l.Frames[i].Func) {
			return true
		}
	}
	return false
}

// focus filters the slices between a clip and a handler. It passes on the time in which a
// matching function is on the stack, with its callers, which are clipped to that time,
// and all callees.
type focus struct {
	h     trace.SliceHandler
	m     *matcher
	c     *clip
	depth int // of the outermost matching slice; -1: none
	now   inForce
}

func (f *focus) Begin(t stack.Time, depth int, s *trace.Slice) {
	begins := f.depth < 0
	if begins {
		if !f.m.function(s.Frame.Func) {
			return
		}
		f.depth = depth
		for i := range depth {
			f.h.Begin(t, i, &f.c.s.Stack[i])
		}
	}
	f.h.Begin(t, depth, s)
	if begins {
		f.now.begin(t, f.h.Other)
	}
}

func (f *focus) End(t stack.Time, depth int, s *trace.Slice) {
	if f.depth < 0 {
		return
	}
	f.h.End(t, depth, s)
	if depth > f.depth {
		return
	}
	f.depth = -1
	for i := depth - 1; i >= 0; i-- {
		f.h.End(t, i, &f.c.s.Stack[i])
	}
	f.now.end(t, f.h.Other)
}

func (f *focus) Other(e event.Event) {
	f.now.note(e)
	if f.depth >= 0 {
		f.h.Other(e)
	}
}

// inForce is the current state and wait of a thread.
type inForce struct{ diff.Waiting }

func (n *inForce) note(e event.Event) { n.Apply(e) }

// begin emits the current state and wait at t.
func (n *inForce) begin(t stack.Time, other func(event.Event)) {
	for _, e := range n.Append(nil, t) {
		other(e)
	}
}

// end says that the thread's activity from t on is not shown.
func (n *inForce) end(t stack.Time, other func(event.Event)) {
	if n.Waiting != (diff.Waiting{}) {
		other(event.Make(t, event.State, event.StateOf(stack.StateUnknown, -1)))
	}
}

// focusSteps is focus for Steps.
type focusSteps struct {
	h    Steps
	m    *matcher
	hits []bool // hits[i]: one of the real frames 0..i matches; filled up to valid
	in   bool
	now  inForce
	ns   int64 // passed on
}

// on reports whether the stack real is in focus from at on.
func (f *focusSteps) on(real []diff.Frame, known bool, at stack.Time) bool {
	in := false
	if known && len(real) > 0 {
		for i := len(f.hits); i < len(real); i++ {
			f.hits = append(f.hits, i > 0 && f.hits[i-1] || f.m.loc(f.m.names.Resolve(real[i].Word, at)))
		}
		in = f.hits[len(real)-1]
	}
	if in != f.in {
		f.in = in
		other := func(e event.Event) { f.h.Other(e, real, known) }
		if in {
			f.now.begin(at, other)
		} else {
			f.now.end(at, other)
		}
	}
	return in
}

// Spent implements Steps.
func (f *focusSteps) Spent(real []diff.Frame, known bool, at stack.Time, ns int64) {
	if f.on(real, known, at) {
		f.ns += ns
		f.h.Spent(real, known, at, ns)
	}
}

// Changed implements Steps.
func (f *focusSteps) Changed(depth int) {
	f.hits = f.hits[:min(len(f.hits), depth)]
	f.h.Changed(depth)
}

// Other implements Steps.
func (f *focusSteps) Other(e event.Event, real []diff.Frame, known bool) {
	f.now.note(e)
	if e.Kind() == event.Seen {
		f.on(real, known, e.Time)
	}
	if f.in {
		f.h.Other(e, real, known)
	}
}

// Ran implements Steps.
func (f *focusSteps) Ran(real []diff.Frame, known bool, at stack.Time, ns int64) {
	if f.on(real, known, at) {
		f.h.Ran(real, known, at, ns)
	}
}

// Unseen drops the time: it has no stack, so it is not in focus.
func (f *focusSteps) Unseen(Unsampled) {}

// Found returns the threads of v, by Seq, that have anything to show.
func (v *View) Found() []int {
	out := []int{}
	for i := range v.Threads {
		s := &search{}
		r := v.Replay(&v.Threads[i], s)
		s.c = r.c
		r.Run()
		if s.found {
			out = append(out, v.Threads[i].Seq)
		}
	}
	return out
}

// search stops a replay at the first slice.
type search struct {
	c     *clip
	found bool
}

func (s *search) Begin(stack.Time, int, *trace.Slice) { s.found, s.c.done = true, true }
func (s *search) End(stack.Time, int, *trace.Slice)   {}
func (s *search) Other(event.Event)                   {}
