package python

import (
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/wait"
)

// Language is Python.
var Language = &lang.Language{
	Name:   "Python",
	Stacks: Stacks,
	Range:  managed.Of(stack.KindPython),
	Direct: true,
	Runs:   func(file string) bool { return files.MatchString(path.Base(file)) },
	Final: func(err error) bool {
		var version *VersionError
		return errors.As(err, &version)
	},
	Open: func(s *unwind.Space, st unwind.Stepper) lang.Runtime {
		in := st.(*interpreter)
		return &process{in: in, rt: in.rt, mem: s.Memory(), codes: map[uint64]*Code{}}
	},
}

// files matches the base names of CPython's files, whose threads run Python functions.
var files = regexp.MustCompile(`^(libpython\d.*|python[\d.]*t?d?)$`)

// process is the CPython of a process beside its stacks.
type process struct {
	lang.None
	in  *interpreter
	rt  *Runtime
	mem io.ReaderAt

	mu    sync.Mutex // guards the fields below
	at    time.Time  // of the last look for locks
	locks []gil
	codes map[uint64]*Code // of frames, as they were at their first sample; nil: unreadable
}

// gil is the location of the GIL of an interpreter.
type gil struct {
	interp    uint64
	addr, end uint64
}

// gilsEach is how long the locations of the locks are cached: interpreters come and go
// rarely.
const gilsEach = time.Second

// gilTries bounds how often a lock is read if it changes hands during the read.
const gilTries = 3

// ThreadNames implements lang.Runtime.
func (x *process) ThreadNames() map[int32]string { return x.rt.NamesByTID(x.mem) }

// Tasks implements lang.Runtime.
func (x *process) Tasks() (what string, tasks []lang.Task) { return "asyncio", x.in.tasks() }

// GlobalLock implements lang.Runtime.
func (x *process) GlobalLock(_ int32, word uint64) (wait.GIL, bool) {
	for _, l := range x.findLocks() {
		if word < l.addr || word >= l.end {
			continue
		}
		var out wait.GIL
		for range gilTries {
			g, err := x.rt.GIL(x.mem, l.interp)
			if err != nil || g.Addr != l.addr {
				return wait.GIL{}, false
			}
			out = wait.GIL{Addr: g.Addr, Impl: "cpython", Locked: g.Locked, Holder: x.rt.Owner(x.mem, l.interp, &g)}
			if !out.Locked || out.Holder != 0 {
				break
			}
		}
		return out, true
	}
	return wait.GIL{}, false
}

func (x *process) findLocks() []gil {
	x.mu.Lock()
	defer x.mu.Unlock()
	if time.Since(x.at) < gilsEach {
		return x.locks
	}
	x.at, x.locks = time.Now(), nil
	interps, _ := x.rt.Interpreters(x.mem) // the readable ones
	for _, in := range interps {
		if g, err := x.rt.GIL(x.mem, in); err == nil {
			x.locks = append(x.locks, gil{in, g.Addr, g.End})
		}
	}
	return x.locks
}

// code returns the code object at addr, as it was when its first frame was sampled; nil: unreadable.
func (x *process) code(addr uint64) *Code {
	x.mu.Lock()
	defer x.mu.Unlock()
	c, ok := x.codes[addr]
	if !ok {
		c, _ = x.rt.Code(x.mem, addr)
		x.codes[addr] = c
	}
	return c
}

// Frames reads the code objects of Python's frames, which may be freed soon, and drops the frames of shims.
func (x *process) Frames(frames []stack.Frame) []stack.Frame {
	return slices.DeleteFunc(frames, func(f stack.Frame) bool {
		if f.Kind != stack.KindPython {
			return false
		}
		c := x.code(f.Func)
		return c != nil && c.Shim()
	})
}

// Function implements lang.Runtime.
func (x *process) Function(f *stack.Frame) (fn lang.Function, ok bool) {
	if f.Kind != stack.KindPython {
		return fn, false
	}
	c := x.code(f.Func)
	if c == nil {
		return fn, false
	}
	fn = lang.Function{Name: c.Name, File: c.File, Line: c.Line(f.PC - f.Func)}
	if fn.Line == 0 {
		fn.Line = c.First
	}
	return fn, true
}
