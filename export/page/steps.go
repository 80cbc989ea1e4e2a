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
func (steps) Unseen(int64)                                {}

func (s steps) Ran(_ []diff.Frame, _ bool, at stack.Time, ns int64) {
	b := s.b
	t := max(min(b.units(at), s.end-1), b.ran) // a stack has its last sample before it ends
	b.cols[colRanTime].put(t - b.ran)
	b.cols[colRan].put(ns)
	b.ran = t
}

// missed puts the CPU time that no sample has.
func (b *builder) missed(th *view.Thread) {
	at := int64(0)
	for _, u := range b.v.Unsampled(th) {
		from := max(b.units(u.From), at)
		to := max(b.units(u.To), from)
		b.cols[colMissTime].put(from - at)
		b.cols[colMissLen].put(to - from)
		b.cols[colMiss].put(u.NS)
		at = to
	}
}
