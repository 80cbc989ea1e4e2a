package page

import (
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// steps takes the shares of the CPU time from a replay: see view.Steps.
type steps struct {
	b   *builder
	end int64 // when the last call ends, in units
}

func (steps) Spent([]diff.Frame, bool, stack.Time, int64) {}
func (steps) Changed(int)                                 {}
func (steps) Other(event.Event, []diff.Frame, bool)       {}

func (s steps) Ran(_ []diff.Frame, _ bool, at stack.Time, ns int64) {
	b := s.b
	t := max(min(b.units(at), s.end-1), b.ran) // a stack has its last sample before it ends
	b.cols[colRanTime].put(t - b.ran)
	b.cols[colRan].put(ns)
	b.ran = t
}

func (s steps) Unseen(u view.Unsampled) {
	b := s.b
	from := max(b.units(u.From), b.miss)
	to := max(b.units(u.To), from)
	b.cols[colMissTime].put(from - b.miss)
	b.cols[colMissLen].put(to - from)
	b.cols[colMiss].put(u.NS)
	b.miss = to
}
