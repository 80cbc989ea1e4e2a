package unwind

import (
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/python"
)

// A greenlet runs on its thread's own stack: what others had there is copied away and back.
// Memory beyond its first function is left over from other greenlets: old frames of the one
// that started it, or anything else. Its stack ends there, and so does its chain of Python
// frames. That function is the first outside of Python's
// evaluations that belongs to the greenlet module and has called something else.

// isGreenlet reports whether a file is the module, as its releases have called it.
func isGreenlet(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.HasPrefix(name, "_greenlet.") || strings.HasPrefix(name, "greenlet.c") // greenlet.cpython-38-…
}

// greenlet gives how many of the frames, innermost first, are the running greenlet's; 0: the
// thread runs its main one, or that is not known.
func (in *interpreter) greenlet(w *Walker, frames []stack.Frame, s *python.Stack) int {
	if !w.snap.greenlets || s.Reason != stack.ReasonNone {
		return 0
	}
	evals, inside := 0, false // inside: of the module's code
	for i := range frames {
		f := &frames[i]
		if f.Kind != stack.KindNative {
			return 0
		}
		r := w.snap.find(f.PC - 1)
		was := inside
		if inside = r != nil && r.mod != nil && isGreenlet(r.mod.mapping.Path); inside && !was && i > 0 {
			if i+1 < len(frames) {
				in.rt.WithoutCFrame(s, f.CFA, frames[i+1].CFA)
			}
			if in.rt.Outermost(s, evals, f.CFA) {
				return i + 1
			}
		}
		if in.rt.Evaluates(f.Func) {
			evals++
		}
	}
	return 0
}
