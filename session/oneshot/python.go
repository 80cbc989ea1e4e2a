package oneshot

import (
	"fmt"
	"io"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind/python"
)

// interpreter is the CPython of a sampled process; nil: it has none.
type interpreter struct {
	rt    *python.Runtime
	mem   io.ReaderAt
	codes map[uint64]*python.Code
}

// memory adapts a process's memory to package python.
type memory struct{ p *target.Process }

func (m memory) ReadAt(b []byte, addr int64) (int, error) { return m.p.ReadAt(b, uint64(addr)) }

// python finds the process's interpreter.
func (v *view) python() {
	rt, err := v.t.Space().FollowPython(nil)
	if err != nil {
		v.lacks = append(v.lacks, fmt.Sprintf("process %d: %v", v.p.PID(), err))
	}
	if rt != nil {
		v.py = &interpreter{rt: rt, mem: memory{v.p}, codes: map[uint64]*python.Code{}}
		v.names.py = v.py
	}
}

// code returns the code object at addr, as it was when its first frame was sampled;
// nil: unreadable.
func (in *interpreter) code(addr uint64) *python.Code {
	c, ok := in.codes[addr]
	if !ok {
		c, _ = in.rt.Code(in.mem, addr)
		in.codes[addr] = c
	}
	return c
}

// learn reads the code objects of Python's frames, which may be freed soon, and drops
// the frames of shims.
func (in *interpreter) learn(frames []stack.Frame) []stack.Frame {
	return slices.DeleteFunc(frames, func(f stack.Frame) bool {
		if f.Kind != stack.KindPython {
			return false
		}
		c := in.code(f.Func)
		return c != nil && c.Shim()
	})
}

// names returns the names of all threads in Python's threading, by TID in the process's
// own namespace.
func (in *interpreter) names() map[int32]string { return in.rt.NamesByTID(in.mem) }
