package report

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// called is the function in which a thread waited from a time on.
type called struct {
	at stack.Time
	place
}

// calls returns the waits of a thread in system calls, in order. A scan of the tasks may have found another call of
// a task, or C code that runs, which has the same state.
func (g *taskGatherer) calls(thread int) []called {
	if list, ok := g.inCalls[thread]; ok {
		return list
	}
	f := &callFinder{v: g.v}
	f.replay = g.v.Replay(&g.v.Threads[thread], f)
	f.replay.Run()
	g.inCalls[thread] = f.out
	return f.out
}

// parts yields the parts of a wait of a task by place.
func (g *taskGatherer) parts(t *view.Task, s *view.TaskSpan, yield func(p place, ns int64)) {
	from := s.From
	if s.Thread >= 0 && s.Reason == view.SystemCall {
		list := g.calls(s.Thread)
		i, _ := slices.BinarySearchFunc(list, s.From+1, func(c called, at stack.Time) int { return cmp.Compare(c.at, at) })
		for i = max(i-1, 0); i < len(list) && list[i].at < s.To; i++ {
			to := s.To
			if i+1 < len(list) {
				to = min(to, list[i+1].at)
			}
			if to > from {
				yield(list[i].place, int64(to-from))
				from = to
			}
		}
	}
	if from < s.To {
		yield(g.placeOf(t, s), int64(s.To-from))
	}
}

// callFinder finds the functions in which a thread waited. It implements trace.SliceHandler.
type callFinder struct {
	v      *view.View
	replay *view.Replay
	out    []called
	open   bool       // a wait whose stack is not known yet
	since  stack.Time // its begin
}

// Begin implements trace.SliceHandler.
func (f *callFinder) Begin(stack.Time, int, *trace.Slice) {}

// End implements trace.SliceHandler.
func (f *callFinder) End(stack.Time, int, *trace.Slice) {}

// Other implements trace.SliceHandler.
func (f *callFinder) Other(e event.Event) {
	switch e.Kind() {
	case event.State:
		f.fill() // no sample found it, but its stack is the wait's
		s, _ := event.StateFields(e.Payload())
		f.open, f.since = s == stack.StateBlocked || s == stack.StateDisk, e.Time
	case event.Seen:
		f.fill()
	}
}

func (f *callFinder) fill() {
	if !f.open {
		return
	}
	f.open = false
	st := f.replay.Stack()
	i := f.v.Asker(st)
	if i < 0 {
		return
	}
	x := &st[i].Frame
	p := called{f.since, place{what: view.SystemCall, fn: f.v.FuncName(x.Func), file: view.Text(x.File, 512), line: x.Line}}
	if n := len(f.out); n == 0 || f.out[n-1].place != p.place {
		f.out = append(f.out, p)
	}
}
