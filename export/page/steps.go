package page

import (
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// steps takes the shares of the CPU time from a replay: see view.Steps.
type steps struct{ b *builder }

func (steps) Spent([]diff.Frame, bool, stack.Time, int64) {}
func (steps) Changed(int)                                 {}
func (steps) Other(event.Event, []diff.Frame, bool)       {}
func (steps) Unseen(int64)                                {}

func (s steps) Ran(_ []diff.Frame, _ bool, at stack.Time, ns int64) {
	b := s.b
	t := max(b.units(at), b.ran)
	b.cols[colRanTime].put(t - b.ran)
	b.cols[colRan].put(ns)
	b.ran = t
}
