package ruby

import "github.com/sliverprof/sliver/stack"

// Merge appends the C frames of a stack with its Ruby frames to out, innermost first, and returns it.
// eval is the address of the C function that runs Ruby code; 0: unknown. The frames that one run of it
// evaluates come before it, and so do the methods in C that they call, whose C frames are further
// inside. If the C stack ends early and Ruby's continues, the last C frame (KindError) stays as the gap
// and is repeated at the end. An error frame also replaces Ruby frames that could not be read, before
// each C function that runs some of them.
//
// The frames of the Fibers that resumed the running one follow, each after a mark
// (stack.ReasonParent); their C frames are on stacks of their own.
//
// A C function that evaluates is shown at its beginning, whichever instruction it executes. Otherwise
// each of these PCs would be a separate caller of the Ruby functions.
func (s *Stack) Merge(out, c []stack.Frame, eval uint64) []stack.Frame {
	var end []stack.Frame
	if n := len(c); n > 0 && c[n-1].Kind == stack.KindError {
		c, end = c[:n-1], c[n-1:]
	}
	evals, last := 0, -1
	for i := range c {
		if eval != 0 && c[i].Func == eval {
			evals, last = evals+1, i
		}
	}
	groups, open := s.Groups, 0
	if n := len(groups); n > 0 && groups[n-1].Open {
		groups, open = groups[:n-1], groups[n-1].N
	}
	lost := stack.Frame{PC: uint64(s.Reason), Kind: stack.KindError}
	g, next := 0, 0
	put := func(n int) {
		for range n {
			if f := &s.Frames[next]; !f.Hidden {
				out = append(out, f.frame())
			}
			next++
		}
	}
	// Frames and evaluations begin and end at slightly different times, so that the innermost ones may
	// not belong together. The outermost ones do.
	early := 0 // groups without an evaluation yet, or evaluations without a group
	if len(end) == 0 && s.Reason == stack.ReasonNone {
		early = len(groups) - evals
	}
	for ; g < early; g++ {
		put(groups[g].N)
	}
	if last < 0 && len(end) == 0 {
		put(open)
	}
	for i := range c {
		if eval == 0 || c[i].Func != eval {
			out = append(out, c[i])
			continue
		}
		switch {
		case early < 0:
			early++
		case g < len(groups):
			put(groups[g].N)
			g++
		case s.Reason != stack.ReasonNone:
			out = append(out, lost)
		}
		f := c[i]
		f.PC, f.Exact = f.Func, true
		out = append(out, f)
		if i == last && len(end) == 0 && g == len(groups) {
			put(open)
		}
	}
	resumed := 0
	for _, n := range s.Fibers {
		resumed += n
	}
	if next < len(s.Frames)-resumed {
		between := stack.Frame{PC: uint64(stack.ReasonNoRule), Kind: stack.KindError}
		if len(end) > 0 {
			between = end[0]
		}
		out = append(out, between)
		put(len(s.Frames) - resumed - next)
	}
	if s.Reason != stack.ReasonNone && g >= evals {
		out = append(out, lost)
	}
	out = append(out, end...)
	for _, n := range s.Fibers {
		out = append(out, stack.Frame{PC: uint64(stack.ReasonParent), Kind: stack.KindError})
		put(n)
	}
	if s.Cut {
		out = append(out, stack.Frame{PC: uint64(stack.ReasonMemory), Kind: stack.KindError})
	}
	return out
}

// Unread appends the C frames of a stack to out if none of its Ruby frames could be read, and returns
// it. A gap replaces the Ruby frames of each C function that evaluates. If there is none, Unread returns
// c.
func Unread(out, c []stack.Frame, eval uint64) (all []stack.Frame, gaps bool) {
	for i := range c {
		if eval != 0 && c[i].Func == eval {
			s := Stack{Reason: stack.ReasonMemory}
			return s.Merge(out, c, eval), true
		}
	}
	return c, false
}

func (f *Frame) frame() stack.Frame {
	if f.Lost {
		return stack.Frame{PC: uint64(stack.ReasonMemory), CFA: f.Addr, Kind: stack.KindError}
	}
	return stack.Frame{Func: f.Func, PC: f.Func + f.Off, CFA: f.Addr, Kind: stack.KindRuby, Trust: stack.TrustTable, Exact: true}
}
