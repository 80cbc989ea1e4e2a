package unwind

import (
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/meter"
	"github.com/sliverprof/sliver/unwind/python"
)

// interpreter is the CPython of a process with its known threads.
type interpreter struct {
	noPart
	rt    *python.Runtime
	mem   Memory
	table *managed.Table // assigns addresses to functions; nil: they keep their code's

	mu     sync.Mutex
	states map[stack.TID][]python.State // of each thread: one for each interpreter, the main one last
	codes  map[uint64]*held
	reads  uint64 // number of first reads of code objects and tasks so far
	async  asyncTasks
}

// maxCodes bounds the cached code objects. The cache is cleared when it is full.
const maxCodes = 1 << 17

// held is a cached code object.
type held struct {
	code *python.Code
	addr uint64 // in the table
	size uint64
	// nr is the sequence number of the read, by the thread whose copy needed it. The read does not
	// validate memory that was copied earlier: see pyThread.holds.
	nr uint64
	by *pyThread
}

// pyThread holds the Python state of one thread.
type pyThread struct {
	of    *interpreter
	tried int // Plans without a State for the thread
	// unread: the last walk saw evaluation functions, but no State is known.
	unread bool
	th     *python.Thread
	others []*python.Thread // the thread's States in other interpreters
	joined python.Stack
	// foreign: the last walk saw evaluation functions of an unknown State. looked counts the Plans
	// since then.
	foreign bool
	looked  int
	newest  uint64       // the newest chunks of its data stacks, see chunk
	stack   python.Stack // of the copy that the next Walk uses
	have    bool
	live    *meter.Meter // current memory, for the Walk or More in progress
	lock    stack.Span   // of its interpreter's global lock; Len 0: unknown
	locked  bool         // it held that lock at the last walk

	plan pyPlan // only with a table
}

// maxTried bounds the backoff between two searches for a thread's State, in Plans. A thread that
// was seen to run Python is searched for at each of the first soonTried Plans.
const (
	maxTried  = 64
	soonTried = 8
)

// FollowPython makes walks show the functions of CPython if the process has it mapped. More then
// reads the Python frames, and Walk puts them between those of C. It returns the interpreter, or
// nil if there is none. An error says why the interpreter cannot be read, now or ever
// (*python.VersionError); its stacks then show C only.
//
// With a table, Func is a function's place in the table, PC is within Size of it, and frames are
// read from the copy. If the copy lacks something, Thread.Lacks reports that another copy will have
// more. Without a table, Func and PC are addresses of code objects, and More reads everything
// itself.
func (s *Space) FollowPython(table *managed.Table) (*python.Runtime, error) {
	if s.mem == nil {
		return nil, nil
	}
	snap := s.snap.Load()
	seen := map[*module]bool{}
	for i := range snap.regions {
		r := &snap.regions[i]
		if !r.exec || r.mod == nil || seen[r.mod] || r.mod.mapping.Inode == 0 || table != nil && !mayBePython(r.mod, i) {
			continue
		}
		seen[r.mod] = true
		if err := python.Other(r.mod.mapping.Path); err != nil {
			return nil, err
		}
		r.mod.load()
		bias, ok := r.mod.bias(r)
		if !ok {
			continue
		}
		img, err := r.mod.pythonImage()
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
		in := &interpreter{rt: rt, mem: s.mem, table: table, codes: map[uint64]*held{}}
		in.list()
		s.setRuntimes(func(r *runtimes) { r.python = in })
		s.shown.Add(1)
		return rt, nil
	}
	return nil, nil
}

// mayBePython reports whether a file is worth searching each time that files are mapped. region is
// its first. Programs without Python must not pay for the search.
func mayBePython(m *module, region int) bool {
	return region < firstFile || strings.Contains(m.mapping.Path[strings.LastIndexByte(m.mapping.Path, '/')+1:], "python") || python.Other(m.mapping.Path) != nil
}

// pythonImage searches a file for the interpreter, once.
func (m *module) pythonImage() (*python.Image, error) {
	m.python.once.Do(func() { m.python.img, m.python.err = python.Load(m.file) })
	return m.python.img, m.python.err
}

// firstFile is the number of regions that may belong to the program's own file.
const firstFile = 4

// Python returns the CPython whose functions walks show, or nil.
func (s *Space) Python() *python.Runtime {
	if in := s.runtimes.Load().python; in != nil {
		return in.rt
	}
	return nil
}

// ForgetPython undoes FollowPython, for a process that has become another program.
func (s *Space) ForgetPython() { s.setRuntimes(func(r *runtimes) { r.python = nil }) }

// list reads the list of threads. It uses whatever could be read.
func (in *interpreter) list() {
	states, _ := in.rt.Threads(in.mem)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.states = make(map[stack.TID][]python.State, len(states))
	for _, s := range states {
		if s.Native != 0 {
			tid := stack.TID(s.Native)
			in.states[tid] = append(in.states[tid], s)
		}
	}
}

// forked is python.Runtime.Forked for the known states.
func (in *interpreter) forked(tid stack.TID) (python.State, bool) {
	in.mu.Lock()
	all := make([]python.State, 0, min(len(in.states), maxForked))
	for _, ss := range in.states {
		if len(all)+len(ss) <= maxForked {
			all = append(all, ss...)
		}
	}
	in.mu.Unlock()
	return in.rt.Forked(in.mem, all, int32(tid))
}

// maxForked bounds the threads that a process may have had before a fork.
const maxForked = 64

// find looks up th's Python thread. Call it between two stops.
func (in *interpreter) find(th *Thread) {
	p := &th.python
	if p.of != in {
		*p = pyThread{of: in}
	}
	p.have = false
	if p.th != nil {
		in.findOthers(th)
		return
	}
	// Back off: a thread that runs no Python, or whose Python cannot be found, must not cause a read
	// of the list each time.
	listed := false
	if p.tried++; p.unread && p.tried <= soonTried || p.tried > 1 && p.tried&(p.tried-1) == 0 || p.tried%maxTried == 0 {
		in.list()
		listed = true
	}
	in.mu.Lock()
	all := in.states[th.TID]
	in.mu.Unlock()
	if len(all) == 0 && (listed || p.tried == 1) {
		if s, ok := in.forked(th.TID); ok {
			all = []python.State{s}
		}
	}
	if len(all) > 0 {
		p.tried = 0
		in.use(p, all)
	}
}

// use makes p read the given States.
func (in *interpreter) use(p *pyThread, all []python.State) {
	last := len(all) - 1
	p.th, p.others = in.thread(p, all[last]), p.others[:0]
	p.lock = in.rt.GILSpan(in.mem, all[last].Interp)
	if in.rt.Anchored() {
		for _, s := range all[max(0, last-maxOthers):last] {
			p.others = append(p.others, in.thread(p, s))
		}
	}
	if in.table != nil {
		p.plan.chunks = p.plan.chunks[:0]
		in.chunks(p, in.mem)
	}
}

func (in *interpreter) thread(p *pyThread, s python.State) *python.Thread {
	th := in.rt.Thread(s)
	if in.table != nil {
		th.Objects = (*codeTypes)(p)
	}
	return th
}

// maxOthers bounds the interpreters in which one thread runs, beside one.
const maxOthers = 8

// findOthers looks for th's States in other interpreters if a walk saw evaluations of one. It backs
// off like find.
func (in *interpreter) findOthers(th *Thread) {
	p := &th.python
	if !p.foreign {
		return
	}
	if p.looked++; p.looked > soonTried && p.looked&(p.looked-1) != 0 && p.looked%maxTried != 0 {
		return
	}
	in.list()
	in.mu.Lock()
	all := in.states[th.TID]
	in.mu.Unlock()
	if len(all) > 0 {
		in.use(p, all)
	}
}

// capture reads the frames of all States of p into s. ok is as in python.Thread.Capture.
func (in *interpreter) capture(p *pyThread, mem io.ReaderAt, s *python.Stack) (ok bool) {
	if !p.th.Capture(mem, s) {
		return false
	}
	kept := p.others[:0]
	for _, th := range p.others {
		if th.Capture(mem, &p.joined) {
			s.Join(&p.joined)
			kept = append(kept, th)
		} else if r, copy := mem.(*pyReader); copy && r.short {
			s.Reason = max(s.Reason, stack.ReasonMemory) // not known in this copy
			kept = append(kept, th)
		}
	}
	p.others = kept
	return true
}

func (in *interpreter) asks(th *Thread) bool { return th.python.asks() }

// more reads th's Python frames while the thread cannot run.
func (in *interpreter) more(w *Walker, th *Thread, _ *stack.Regs, mem *Copy) (reads int) {
	p := &th.python
	if p.of != in || p.th == nil {
		return 0
	}
	w.beginReads()
	defer w.meter.End()
	p.live = &w.meter
	if in.table != nil {
		in.captureAll(p, mem)
	} else if p.have = in.capture(p, &copied{mem, in.mem}, &p.stack); !p.have {
		in.lost(p)
	}
	return w.meter.Reads
}

// copied reads a Copy, and the target's memory for what the Copy lacks.
type copied struct {
	mem  *Copy
	live Memory
}

// ReadAt implements io.ReaderAt.
func (c *copied) ReadAt(b []byte, addr int64) (int, error) {
	for i := len(c.mem.Blocks) - 1; i >= 0; i-- {
		if n, ok := c.mem.Blocks[i].read(b, uint64(addr)); ok {
			return n, nil
		}
	}
	return c.live.ReadAt(b, addr)
}

// read fills b from addr if the block has all of it.
func (k *Block) read(b []byte, addr uint64) (int, bool) {
	if o := addr - k.Addr; o < uint64(len(k.Data)) && uint64(len(k.Data))-o >= uint64(len(b)) {
		return copy(b, k.Data[o:]), true
	}
	return 0, false
}

// holdsGIL reports whether the thread held its interpreter's global lock when the copy was made.
func (p *pyThread) holdsGIL(mem *Copy) bool {
	if p.lock.Len == 0 {
		return false
	}
	for i := range mem.Blocks {
		if b := &mem.Blocks[i]; b.Addr == p.lock.Addr && len(b.Data) >= p.lock.Len {
			s := p.th.State()
			return s.HoldsGIL(b.Data)
		}
	}
	return false
}

// HoldsGIL reports whether the thread held its interpreter's global lock at the last walk.
func (th *Thread) HoldsGIL() bool { return th.python.locked }

func (in *interpreter) gap(th *Thread) bool {
	p := &th.python
	return p.unread || p.foreign || p.have && (p.plan.gaps || p.stack.Reason != stack.ReasonNone)
}

// merge puts the Python frames between those of C. An error frame replaces frames that could not be
// read.
func (in *interpreter) merge(w *Walker, th *Thread, frames []stack.Frame) []stack.Frame {
	p := &th.python
	p.unread, p.locked = false, false
	p.live = &w.meter
	if p.of == in && in.table != nil && p.th != nil && !p.have {
		in.captureCopy(p, w.mem)
	}
	if p.of != in || !p.have {
		merged, unread := in.rt.Unread(w.merged[:0], frames, in.table != nil)
		if p.unread = unread; unread {
			w.merged = merged
		}
		return merged
	}
	if p.th != nil { // captureCopy may have lost it
		p.locked = p.holdsGIL(w.mem)
	}
	if in.table != nil && w.golang == nil {
		in.lookTask(th)
	}
	n := in.greenlet(w, frames, &p.stack)
	own := frames
	if n > 0 {
		own = frames[:n]
	}
	if p.foreign = in.rt.Foreign(own, w.first, &p.stack); !p.foreign {
		p.looked = 0
	}
	if n > 0 {
		w.merged = in.rt.Merge(w.merged[:0], own, w.first, &p.stack, in.table != nil)
		w.merged = append(w.merged, stack.Frame{PC: uint64(stack.ReasonParent), Kind: stack.KindError})
		w.ended = true
		return w.merged
	}
	if len(p.stack.Frames) > 0 || p.stack.Reason != stack.ReasonNone {
		w.merged = in.rt.Merge(w.merged[:0], frames, w.first, &p.stack, in.table != nil)
		return w.merged
	}
	return frames
}
