package oneshot

import (
	"fmt"
	"io"
	"strings"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind/python"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/lock"
)

// interpreter is the CPython of a process that is looked at; nil: it has none.
type interpreter struct {
	rt    *python.Runtime
	mem   io.ReaderAt
	codes map[uint64]*python.Code
}

// memory is a process's as python reads it.
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

// code is the code object at addr, as it was when its first frame was seen; nil:
// it could not be read.
func (in *interpreter) code(addr uint64) *python.Code {
	c, ok := in.codes[addr]
	if !ok {
		c, _ = in.rt.Code(in.mem, addr)
		in.codes[addr] = c
	}
	return c
}

// learn reads what frames of Python are, which may be gone soon.
func (in *interpreter) learn(frames []stack.Frame) {
	for i := range frames {
		if frames[i].Kind == stack.KindPython {
			in.code(frames[i].Func)
		}
	}
}

// names are the names of all threads as threading has them, by TID in the
// process's own numbers.
func (in *interpreter) names() map[int32]string { return in.rt.NamesByTID(in.mem) }

// gil makes a wait for a word inside a global interpreter lock one for that
// lock. tid translates the numbers of the process's own.
func (in *interpreter) gil(pid int, info *wait.Info, tid func(int32) stack.TID) *wait.Info {
	if info == nil || info.Lock == nil || strings.HasPrefix(string(info.Lock.Kind), "go ") {
		return info
	}
	states, err := in.rt.Threads(in.mem)
	if err != nil {
		return info
	}
	seen := map[uint64]bool{}
	for _, s := range states {
		if seen[s.Interp] {
			continue
		}
		seen[s.Interp] = true
		g, err := in.rt.GIL(in.mem, s.Interp)
		if err != nil || info.Lock.Word < g.Addr || info.Lock.Word >= g.End {
			continue
		}
		out, l := *info, *info.Lock
		l.Addr, l.Kind, l.Type, l.Impl, l.Basis, l.Mutex, l.Note = g.Addr, lock.GIL, "", "cpython", lock.ByLayout, 0, ""
		l.Symbol, l.Module, l.Shared = "", "", false
		l.Key = wait.Key{PID: pid, Addr: g.Addr}
		l.Holder = lock.Holder{Why: "nobody holds it at the moment"}
		if g.Locked {
			l.Holder.Why = "its holder is no thread that lives"
			for _, o := range states {
				if o.Addr == g.Holder && tid(o.Native) != 0 {
					l.Holder = lock.Holder{TID: tid(o.Native), NSTID: o.Native, By: event.KnownByRuntime}
				}
			}
		}
		out.Lock, out.Args = &l, l.String()
		if out.Timeout != 0 {
			out.Args += ", timeout " + out.Timeout.String()
		}
		return &out
	}
	return info
}
