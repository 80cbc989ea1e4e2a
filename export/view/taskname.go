package view

import (
	"strings"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// firsts names goroutines that existed only between two scans of all goroutines. Their
// entry function is the one above runtime.goexit on the stack of the thread that ran
// them.
func (g *taskGatherer) firsts() {
	if g.looks[0].What != "goroutine" {
		return
	}
	blank := false
	for _, p := range g.of {
		blank = blank || p.fn == ""
	}
	for i := range g.v.Threads {
		if !blank {
			return
		}
		g.firstsOf(&g.v.Threads[i])
	}
}

func (g *taskGatherer) firstsOf(th *Thread) {
	var of *taskParts // of the goroutine that it runs; nil: named already, or no goroutine
	var since stack.Time
	s := trace.NewSlices(g.v.Names, nobody{})
	name := func() {
		if of != nil {
			if of.fn = g.first(s.Real(), since); of.fn != "" {
				of = nil
			}
		}
	}
	for e := range g.v.Rec.Fitted(th.Seq) {
		if e.Time > since { // the stack is from the sample that reported the goroutine, or a later one
			name()
		}
		s.Apply(e)
		switch e.Kind() {
		case event.Task:
			since = e.Time
			if of = g.of[event.TaskFields(e.Payload()).ID]; of != nil && of.fn != "" {
				of = nil
			}
		case event.Gap:
			if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
				of = nil
			}
		case event.Mark:
			if why := stack.Why(e.Payload()); why == stack.WhyGone || why == stack.WhyExec {
				of = nil
			}
		}
	}
	name()
}

// first returns the entry function of a goroutine from its stack, outermost first; "":
// not on the stack.
func (g *taskGatherer) first(real []diff.Frame, at stack.Time) string {
	if len(real) < 2 || real[1].Word.Kind() == stack.KindError {
		return ""
	}
	if n := g.outer(real[0], at); !strings.HasPrefix(n, "runtime.goexit") {
		return ""
	}
	fn := g.outer(real[1], at)
	if strings.HasPrefix(fn, "runtime.goexit") { // its function has returned to goexit, which calls goexit1
		return ""
	}
	return fn
}

// outer returns the function of a frame into which the others are inlined.
func (g *taskGatherer) outer(f diff.Frame, at stack.Time) string {
	fs := g.v.Names.Resolve(f.Word, at).Frames
	return g.v.FuncName(fs[len(fs)-1].Func)
}

// This handler ignores slices.
type nobody struct{}

func (nobody) Begin(stack.Time, int, *trace.Slice) {}
func (nobody) End(stack.Time, int, *trace.Slice)   {}
func (nobody) Other(event.Event)                   {}
