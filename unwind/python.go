package unwind

import (
	"errors"
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/python"
)

// interpreter is the CPython of a process, with the threads that it knows.
type interpreter struct {
	rt  *python.Runtime
	mem Memory

	mu     sync.Mutex
	states map[stack.TID]python.State
}

// pyThread is what is known of one thread's Python.
type pyThread struct {
	of    *interpreter
	tried int // Plans without a State for the thread
	th    *python.Thread
	stack python.Stack // of the copy that the next Walk is about
	have  bool
}

// maxTried bounds the pauses between two looks for a thread's State, in Plans.
const maxTried = 64

// FollowPython has walks show the functions of CPython, if the process has it
// mapped: after it, More reads the frames of Python, and Walk puts them among
// those of C. It gives the interpreter, nil if there is none. An error says why
// one that is there cannot be read; its stacks are those of C.
func (s *Space) FollowPython() (*python.Runtime, error) {
	if s.mem == nil {
		return nil, nil
	}
	snap := s.snap.Load()
	seen := map[*module]bool{}
	for i := range snap.regions {
		r := &snap.regions[i]
		if !r.exec || r.mod == nil || seen[r.mod] || r.mod.mapping.Inode == 0 {
			continue
		}
		seen[r.mod] = true
		r.mod.load()
		bias, ok := r.mod.bias(r)
		if !ok {
			continue
		}
		img, err := python.Load(r.mod.file)
		var version *python.VersionError
		switch {
		case errors.As(err, &version):
			return nil, err
		case err != nil:
			continue // not Python, or not ELF
		}
		rt, err := python.New(img, bias, s.mem)
		if err != nil {
			return nil, err
		}
		in := &interpreter{rt: rt, mem: s.mem}
		in.list()
		s.python.Store(in)
		return rt, nil
	}
	return nil, nil
}

// list reads which threads there are; what could be read counts.
func (in *interpreter) list() {
	states, _ := in.rt.Threads(in.mem)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.states = make(map[stack.TID]python.State, len(states))
	for _, s := range states {
		if s.Native != 0 {
			in.states[stack.TID(s.Native)] = s
		}
	}
}

// find looks up th's Python thread; it is for between two stops.
func (in *interpreter) find(th *Thread) {
	p := &th.python
	if p.of != in {
		*p = pyThread{of: in}
	}
	p.have = false
	if p.th != nil {
		return
	}
	// A thread that runs no Python must not have the list read each time.
	if p.tried++; p.tried > 1 && p.tried&(p.tried-1) == 0 || p.tried%maxTried == 0 {
		in.list()
	}
	in.mu.Lock()
	s, ok := in.states[th.TID]
	in.mu.Unlock()
	if ok {
		p.th, p.tried = in.rt.Thread(s), 0
	}
}

// capture reads th's frames of Python while the thread cannot run.
func (in *interpreter) capture(th *Thread, mem *Copy) {
	p := &th.python
	if p.of != in || p.th == nil {
		return
	}
	if p.have = p.th.Capture(&copied{mem, in.mem}, &p.stack); !p.have {
		p.th = nil // its State is another thread's by now
	}
}

// copied is a Copy, and the target's memory for what is not in it.
type copied struct {
	mem  *Copy
	live Memory
}

// ReadAt implements io.ReaderAt.
func (c *copied) ReadAt(b []byte, addr int64) (int, error) {
	for i := len(c.mem.Blocks) - 1; i >= 0; i-- {
		k := &c.mem.Blocks[i]
		if o := uint64(addr) - k.Addr; o < uint64(len(k.Data)) && uint64(len(k.Data))-o >= uint64(len(b)) {
			return copy(b, k.Data[o:]), nil
		}
	}
	return c.live.ReadAt(b, addr)
}

// withPython puts the frames of Python among w's.
func (w *Walker) withPython(th *Thread) []stack.Frame {
	in := w.space.python.Load()
	if p := &th.python; in != nil && p.of == in && p.have && len(p.stack.Frames) > 0 {
		w.merged = in.rt.Merge(w.merged[:0], w.frames, w.first, &p.stack)
		return w.merged
	}
	return w.frames
}
