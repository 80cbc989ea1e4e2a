package stacks

import (
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// line is a line of a printed stack: a frame, or the calls that a recursion leaves out.
type line struct {
	frame *Frame
	more  int      // number of frames left out; 0: the line is a frame
	of    []*Frame // the functions of these frames, innermost first; set with more
}

// leastFold is how many frames of direct recursion are folded into one line: the first and the
// last remain. Recursion over several functions is folded from leastCycles rounds on.
const (
	leastFold   = 5
	leastCycles = 4
	maxCycle    = 8 // functions in a round
)

// same reports whether two frames are calls of one function.
func same(f, g *Frame) bool {
	return f.Func != "" && f.Kind != stack.KindError && f.Func == g.Func && f.Module == g.Module && f.Kind == g.Kind && (f.Kind == stack.KindNative || f.File == g.File)
}

// period returns how many frames of fs repeat its first p frames, including these, in whole rounds.
func period(fs []*Frame, p int) int {
	n := p
	for n < len(fs) && same(fs[n-p], fs[n]) {
		n++
	}
	return n / p * p
}

// fold replaces the inner calls of recursions by one line each. A recursion may go over up to
// maxCycle functions. The first and the last round remain.
func fold(fs []*Frame) []line {
	out := make([]line, 0, len(fs))
	for i := 0; i < len(fs); {
		best, size := 0, 0
		for p := 1; p <= maxCycle && i+p < len(fs); p++ {
			n := period(fs[i:], p)
			least := p * leastCycles
			if p == 1 {
				least = leastFold
			}
			if n >= least && n > best {
				best, size = n, p
			}
		}
		if best == 0 {
			out = append(out, line{frame: fs[i]})
			i++
			continue
		}
		for _, f := range fs[i : i+size] {
			out = append(out, line{frame: f})
		}
		out = append(out, line{more: best - 2*size, of: fs[i : i+size]})
		for _, f := range fs[i+best-size : i+best] {
			out = append(out, line{frame: f})
		}
		i += best
	}
	return out
}

// visible returns the frames of a stack without those of the runtime that runs its managed functions, and
// how many those are: see stack.RuntimeFrames.
func visible(fs []Frame) (out []*Frame, hidden int) {
	hide := Runtime(fs)
	for i := range fs {
		if hide[i] {
			hidden++
		} else {
			out = append(out, &fs[i])
		}
	}
	return out, hidden
}

// Runtime reports which frames of a stack are those of the runtime that runs its managed functions.
func Runtime(fs []Frame) []bool {
	return stack.RuntimeFrames(len(fs), func(i int) stack.Place {
		f := &fs[i]
		return stack.Place{Kind: f.Kind, Module: f.Module, Func: f.Func, File: f.File}
	})
}

// maxParts is how many parts of a path outside of the program's folder are printed.
const maxParts = 3

// short shortens the path of a source file: it is relative to dir, the working folder of the
// program, or has its last parts only.
func short(file, dir string) string {
	if !strings.HasPrefix(file, "/") {
		return file
	}
	if dir != "" && dir != "/" {
		if rest, ok := strings.CutPrefix(file, strings.TrimSuffix(dir, "/")+"/"); ok {
			return rest
		}
	}
	parts := strings.Split(file, "/")
	if len(parts)-1 <= maxParts {
		return file
	}
	return "…/" + strings.Join(parts[len(parts)-maxParts+1:], "/")
}
