package stacks

import (
	"path"
	"regexp"
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

// libc matches the base names of the C library's files.
var libc = regexp.MustCompile(`^(libc|libpthread|libm|ld-linux.*|ld-musl.*|libc-\d.*|libpthread-\d.*)(\.so.*)?$`)

// runtimeOwn reports whether a native frame is the runtime's own code.
func runtimeOwn(f *Frame) bool {
	if f.Kind != stack.KindNative {
		return false
	}
	if f.Module == "" {
		return strings.HasPrefix(f.Func, "[") && strings.HasSuffix(f.Func, "]") // a stub of the JVM
	}
	return stack.Interpreter(f.Module, f.Func, f.File)
}

func libcOwn(f *Frame) bool {
	return f.Kind == stack.KindNative && libc.MatchString(path.Base(f.Module))
}

// starts are the functions of a program's own file at which a thread begins.
var starts = map[string]bool{"_start": true, "main": true, "_dl_relocate_static_pie": true}

// visible returns the frames of a stack without those of the runtime that runs its managed functions:
// the interpreter's own, and those of the C library that it calls or that start it. Of these, the
// innermost one remains if it is the leaf. Stacks without managed functions are returned whole.
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
	hide := make([]bool, len(fs))
	managed := false
	for i := range fs {
		managed = managed || fs[i].Kind.Managed()
	}
	if managed {
		hideRuntime(fs, hide)
	}
	return hide
}

func hideRuntime(fs []Frame, hide []bool) {
	for i := range fs {
		hide[i] = runtimeOwn(&fs[i])
	}
	// What the runtime calls in the C library.
	for i := len(fs) - 2; i >= 0; i-- {
		hide[i] = hide[i] || hide[i+1] && libcOwn(&fs[i])
	}
	// What starts the thread, if that starts nothing but the runtime.
	root := len(fs)
	for root > 0 && !hide[root-1] && (libcOwn(&fs[root-1]) || starts[fs[root-1].Func] && fs[root-1].Kind == stack.KindNative) {
		root--
	}
	if root > 0 && (hide[root-1] || fs[root-1].Kind.Managed()) {
		for i := root; i < len(fs); i++ {
			hide[i] = true
		}
	}
	if len(fs) == 0 || !hide[0] {
		return
	}
	// The leaf: of the C library's functions, the one that the runtime calls.
	leaf := 0
	for leaf+1 < len(fs) && hide[leaf+1] && libcOwn(&fs[leaf]) && libcOwn(&fs[leaf+1]) {
		leaf++
	}
	hide[leaf] = false
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
