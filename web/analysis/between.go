package analysis

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Arrow is a wait of a thread that another process ended. Times are in ns from the page's time 0.
type Arrow struct {
	Thread int     `json:"thread"` // the one that waited
	Begin  float64 `json:"begin"`
	End    float64 `json:"end"`
	By     int     `json:"by"`   // the thread that ended the wait, or the first one of its process
	Text   string  `json:"text"` // what ended it: "cc1 (1234) ended"
}

// Crossing is an Arrow in absolute times.
type Crossing struct {
	Thread, By int
	Begin, End stack.Time
	Text       string
}

// At returns the arrow on a page whose time 0 is base.
func (c *Crossing) At(base stack.Time) Arrow {
	return Arrow{c.Thread, float64(c.Begin - base), float64(c.End - base), c.By, c.Text}
}

// Crossings finds the crossings of b, by end. number returns the number of a thread of a view; -1: it has no track.
func Crossings(b *between.Between, number func(view, thread int) int) (out []Crossing) {
	for k := range b.Waits {
		w := &b.Waits[k]
		if w.Waker < 0 {
			continue
		}
		by := b.Processes[w.Waker].View
		if by < 0 {
			continue
		}
		c := Crossing{number(w.View, w.Thread), number(by, max(w.WakerThread, 0)), w.Begin, w.End, b.Woken(w)}
		if c.Thread >= 0 && c.By >= 0 {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b Crossing) int { return cmp.Compare(a.End, b.End) })
	return out
}

// Longest returns the n longest crossings, by end, and how many are left out.
func Longest(all []Crossing, n int) (out []Crossing, more int) {
	if more = len(all) - n; more <= 0 {
		return all, 0
	}
	out = slices.Clone(all)
	slices.SortStableFunc(out, func(a, b Crossing) int { return cmp.Compare(b.End-b.Begin, a.End-a.Begin) })
	out = out[:n]
	slices.SortStableFunc(out, func(a, b Crossing) int { return cmp.Compare(a.End, b.End) })
	return out, more
}

// NumberIn returns the number of a thread of a view whose threads have numbers by their Seq; -1: it has none.
func NumberIn(v *view.View, thread int, number func(seq int) int) int {
	if thread >= len(v.Threads) {
		return -1
	}
	return number(v.Threads[thread].Seq)
}

// PathStep is a step of the critical path: see report.Step.
type PathStep struct {
	Thread  int     `json:"thread"` // a thread of its process; -1: it has no track
	Name    string  `json:"name"`
	PID     int     `json:"pid"`
	Command string  `json:"command,omitempty"`
	Begin   float64 `json:"begin"` // ns from the page's time 0, as At computes them
	End     float64 `json:"end"`
	Waiter  string  `json:"waiter,omitempty"` // "gcc (1234)"
	How     string  `json:"how,omitempty"`
	begin   stack.Time
	end     stack.Time
}

// At returns the step on a page whose time 0 is base.
func (x PathStep) At(base stack.Time) PathStep {
	x.Begin, x.End = float64(x.begin-base), float64(x.end-base)
	return x
}

// path returns the critical path of a recording of several processes, by time, and how many steps are left out. number is as
// in Crossings.
func path(rec *trace.Recording, b *between.Between, views []*view.View, number func(view, thread int) int) (out []PathStep, more int) {
	from, to := rec.Span()
	if end := rec.End; end != nil && end.Gone > from {
		to = end.Gone
	}
	if began := rec.Process.StartTime; began < from {
		whole, _ := rec.WholeSpan()
		from = max(began, whole)
	}
	steps, more, _ := b.Path(from, to)
	for i := range steps {
		x := &steps[i]
		p := &b.Processes[x.Process]
		step := PathStep{Thread: -1, Name: p.Name, PID: p.PID, How: x.How, begin: x.Begin, end: x.End}
		if p.View >= 0 {
			step.Thread = number(p.View, 0)
			step.Command = view.Command(views[p.View].Rec.Process.Cmdline)
		}
		if x.Waiter >= 0 {
			step.Waiter = b.Processes[x.Waiter].String()
		}
		out = append(out, step)
	}
	return out, more
}
