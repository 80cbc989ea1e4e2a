package python

import (
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// All greenlets of a thread run on the thread's own stack: a switch copies the memory of others
// away and back. Memory above a greenlet's first function is stale: old frames of the greenlet that
// started it, or anything else. The stack and the chain of Python frames end at that function. It
// is the outermost function that belongs to the greenlet module, has called another one, and is not
// inside a Python evaluation.

// isGreenlet reports whether a file has one of the module's names in its releases.
func isGreenlet(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.HasPrefix(name, "_greenlet.") || strings.HasPrefix(name, "greenlet.c") // greenlet.cpython-38-…
}

// hasGreenlets reports whether the module is mapped.
func (x *pyWalk) hasGreenlets(w *unwind.Walker) bool {
	if nr := w.Generation(); x.nr != nr {
		x.nr, x.greenlets = nr, false
		w.Mapped(func(r unwind.Region) bool {
			x.greenlets = r.Exec && isGreenlet(r.Path)
			return !x.greenlets
		})
	}
	return x.greenlets
}

// greenlet returns the number of frames, innermost first, of the running greenlet. 0 means that the
// thread runs its main greenlet, or that the number is unknown.
func (in *interpreter) greenlet(w *unwind.Walker, x *pyWalk, frames []stack.Frame, s *Stack) int {
	if s.Reason != stack.ReasonNone || !x.hasGreenlets(w) {
		return 0
	}
	evals, inside := 0, false // inside: in the module's code
	for i := range frames {
		f := &frames[i]
		if f.Kind != stack.KindNative {
			return 0
		}
		r, known := w.Region(f.PC - 1)
		was := inside
		if inside = known && isGreenlet(r.Path); inside && !was && i > 0 {
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
