package python

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/stack"
)

// Join adds the frames of more, another State of the same thread, to s. A thread has a State in each
// interpreter in which it runs. Their evaluations alternate on the C stack, so the groups are sorted
// by their anchors. A group without an anchor stays behind the inner one of its State. The frames of
// more are copied.
func (s *Stack) Join(more *Stack) {
	if len(more.Groups) == 0 {
		s.Reason = max(s.Reason, more.Reason)
		return
	}
	type part struct {
		group  Group
		anchor uint64 // by which to sort
		frames []Frame
	}
	parts := make([]part, 0, len(s.Groups)+len(more.Groups))
	add := func(x *Stack) {
		frames, last := x.Frames, uint64(0)
		for _, g := range x.Groups {
			if g.Anchor != 0 {
				last = g.Anchor
			}
			parts = append(parts, part{g, last, frames[:g.N]})
			frames = frames[g.N:]
		}
	}
	frames := slices.Clone(s.Frames)
	add(&Stack{Frames: frames, Groups: s.Groups})
	add(more)
	slices.SortStableFunc(parts, func(a, b part) int {
		return cmp.Compare(a.anchor, b.anchor)
	})
	s.Frames, s.Groups = s.Frames[:0], s.Groups[:0]
	for _, p := range parts {
		s.Frames = append(s.Frames, p.frames...)
		s.Groups = append(s.Groups, p.group)
	}
	s.generators = s.generators || more.generators
	if s.Reason == stack.ReasonNone {
		s.Reason = more.Reason
	}
}

// Foreign reports whether C frames that evaluate Python have none of s's groups: they run in another
// interpreter. sp is the stack pointer at the first frame. The innermost one may also be about to
// begin or to end, so it does not count: maybe reports that it has no group.
func (r *Runtime) Foreign(c []stack.Frame, sp uint64, s *Stack) (foreign, maybe bool) {
	if s.Reason != stack.ReasonNone || r.img.Minor < 11 {
		return false, false
	}
	low, g, evals := sp, 0, 0
	for i := range c {
		cfa := c[i].CFA
		if cfa <= low {
			continue
		}
		was := g
		g = r.last(s, g, low, cfa)
		low = cfa
		if !r.evaluates(c[i].Func) {
			continue
		}
		evals++
		if g == was && evals > 1 {
			s.foreign = true
			return true, maybe
		}
		maybe = maybe || g == was
	}
	return false, maybe
}
