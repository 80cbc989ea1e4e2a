package stack

import (
	"path"
	"regexp"
	"strings"
)

// Place describes a frame: its function, the kind of that, and the paths of the file with its machine code and
// of its source file. Each text may be "".
type Place struct {
	Kind               Kind
	Module, Func, File string
}

// libc matches the base names of the C library's files.
var libc = regexp.MustCompile(`^(libc|libpthread|libm|ld-linux.*|ld-musl.*|libc-\d.*|libpthread-\d.*)(\.so.*)?$`)

// runtimeOwn reports whether a native frame is the runtime's own code.
func (p *Place) runtimeOwn() bool {
	if p.Kind != KindNative {
		return false
	}
	if p.Module == "" {
		return strings.HasPrefix(p.Func, "[") && strings.HasSuffix(p.Func, "]") // a stub of the JVM
	}
	return Interpreter(p.Module, p.Func, p.File)
}

func (p *Place) libcOwn() bool {
	return p.Kind == KindNative && libc.MatchString(path.Base(p.Module))
}

// starts are the functions of a program's own file at which a thread begins.
var starts = map[string]bool{"_start": true, "main": true, "_dl_relocate_static_pie": true}

// starts reports whether the frame may be one of those that begin a thread.
func (p *Place) starts() bool {
	return p.libcOwn() || p.Kind == KindNative && starts[p.Func]
}

// Begins reports whether the frame may be one of those that begin a thread of a managed program: the
// runtime's own, or the C library's.
func (p *Place) Begins() bool {
	return !strings.HasPrefix(p.Module, "[") && (p.runtimeOwn() || p.starts())
}

// RuntimeFrames reports which of the n frames of a stack, innermost first, are those of the runtime that runs
// its managed functions: the interpreter's own, and those of the C library that it calls or that start it. Of
// these, the innermost one is not reported if it is the leaf, which is what the thread does. Stacks without
// managed functions have none.
func RuntimeFrames(n int, at func(i int) Place) []bool {
	own := make([]bool, n)
	fs := make([]Place, n)
	managed := false
	for i := range fs {
		fs[i] = at(i)
		managed = managed || fs[i].Kind.Managed()
	}
	if managed {
		ownFrames(fs, own)
	}
	return own
}

func ownFrames(fs []Place, own []bool) {
	for i := range fs {
		own[i] = fs[i].runtimeOwn()
	}
	// What the runtime calls in the C library.
	for i := len(fs) - 2; i >= 0; i-- {
		own[i] = own[i] || own[i+1] && fs[i].libcOwn()
	}
	// What starts the thread, if that starts nothing but the runtime.
	root := len(fs)
	for root > 0 && !own[root-1] && fs[root-1].starts() {
		root--
	}
	if root > 0 && (own[root-1] || fs[root-1].Kind.Managed()) {
		for i := root; i < len(fs); i++ {
			own[i] = true
		}
	}
	if !own[0] {
		return
	}
	// The leaf: of the C library's functions, the one that the runtime calls.
	leaf := 0
	for leaf+1 < len(fs) && own[leaf+1] && fs[leaf].libcOwn() && fs[leaf+1].libcOwn() {
		leaf++
	}
	own[leaf] = false
}
