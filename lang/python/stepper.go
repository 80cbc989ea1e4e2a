package python

import (
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/meter"
	"github.com/sliverprof/sliver/unwind/rule"
)

// interpreter is the CPython of a process with its known threads.
type interpreter struct {
	unwind.NoPart
	rt    *Runtime
	mem   unwind.Memory
	table *managed.Table // assigns addresses to functions; nil: they keep their code's

	mu     sync.Mutex
	states map[stack.TID][]State // of each thread: one for each interpreter, the main one last
	codes  map[uint64]*held
	reads  uint64 // number of first reads of code objects and tasks so far
	async  asyncTasks
}

// maxCodes bounds the cached code objects. The cache is cleared when it is full.
const maxCodes = 1 << 17

// held is a cached code object.
type held struct {
	code *Code
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
	th     *Thread
	others []*Thread // the thread's States in other interpreters
	joined Stack
	// foreign: the last walk saw evaluation functions of an unknown State. doubtful: only the
	// innermost one may be of such a State. looked counts the Plans since then.
	foreign  bool
	doubtful bool
	looked   int
	newest   uint64 // the newest chunks of its data stacks, see chunk
	ahead    uint64 // the interpreter's reads at the last Aside
	stack    Stack  // of the copy that the next Walk uses
	have     bool
	live     *meter.Meter  // current memory, for the Walk or More in progress
	lock     stack.Span    // of its interpreter's global lock; Len 0: unknown
	lockOnly [1]stack.Span // of Aside
	locked   bool          // it held that lock at the last walk

	plan pyPlan // only with a table
}

// maxTried bounds the backoff between two searches for a thread's State, in Plans. A thread that
// was seen to run Python is searched for at each of the first soonTried Plans.
const (
	maxTried  = 64
	soonTried = 8
)

// pyWalk is a Walker's state for Python.
type pyWalk struct {
	merged    []stack.Frame
	nr        uint64 // of the mappings for which greenlets is valid
	greenlets bool   // Python's greenlet module is mapped
}

var (
	pyThreads unwind.Slot[pyThread]
	pyWalks   unwind.Slot[pyWalk]
)

// Stacks shows the functions of CPython. More then reads the Python frames, and Walk puts them between
// those of C. An error that says that the interpreter can never be read is a *VersionError.
//
// With a table, Func is a function's place in the table, PC is within Size of it, and frames are
// read from the copy. If the copy lacks something, Thread.Lacks reports that another copy will have
// more. Without a table, Func and PC are addresses of code objects, and More reads everything
// itself.
var Stacks = &unwind.Language{
	Name:       "Python",
	Properties: unwind.Beside,
	Find:       find,
	Expect:     expected,
}

func find(s *unwind.Space, table *managed.Table) (unwind.Stepper, error) {
	for c := range s.Code() {
		if c.Again || table != nil && !mayBePython(&c) {
			continue
		}
		if err := Other(c.Path); err != nil {
			return nil, err
		}
		bias, ok := c.Bias()
		if !ok {
			continue
		}
		img, err := pythonImage.Of(&c)
		var version *VersionError
		switch {
		case errors.As(err, &version):
			return nil, err
		case err != nil:
			continue // not Python, or not ELF
		}
		rt, err := New(img, bias, s.Memory())
		if err != nil {
			return nil, err
		}
		in := &interpreter{rt: rt, mem: s.Memory(), table: table, codes: map[uint64]*held{}}
		in.list()
		return in, nil
	}
	return nil, nil
}

// mayBePython reports whether a file is worth searching each time that files are mapped. Programs
// without Python must not pay for the search.
func mayBePython(c *unwind.Code) bool {
	return c.Own || strings.Contains(c.Path[strings.LastIndexByte(c.Path, '/')+1:], "python") || Other(c.Path) != nil
}

// pythonImage is the interpreter in a file.
var pythonImage = unwind.Fact[*Image]{Read: Load}

// Of returns the CPython whose functions walks show, or nil.
func Of(s *unwind.Space) *Runtime {
	if in, ok := s.Followed(Stacks).(*interpreter); ok {
		return in.rt
	}
	return nil
}

// list reads the list of threads. It uses whatever could be read.
func (in *interpreter) list() {
	states, _ := in.rt.Threads(in.mem)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.states = make(map[stack.TID][]State, len(states))
	for _, s := range states {
		if s.Native != 0 {
			tid := stack.TID(s.Native)
			in.states[tid] = append(in.states[tid], s)
		}
	}
}

// forked is Runtime.Forked for the known states.
func (in *interpreter) forked(tid stack.TID) (State, bool) {
	in.mu.Lock()
	all := make([]State, 0, min(len(in.states), maxForked))
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
func (in *interpreter) find(th *unwind.Thread) {
	p := pyThreads.Of(th)
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
			all = []State{s}
		}
	}
	if len(all) > 0 {
		p.tried = 0
		in.use(p, all)
	}
}

// use makes p read the given States.
func (in *interpreter) use(p *pyThread, all []State) {
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

func (in *interpreter) thread(p *pyThread, s State) *Thread {
	th := in.rt.Thread(s)
	if in.table != nil {
		th.Objects = (*codeTypes)(p)
	}
	return th
}

// maxOthers bounds the interpreters in which one thread runs, beside one.
const maxOthers = 8

// findOthers looks for th's States in other interpreters if a walk saw evaluations that may be of
// one. It backs off like find.
func (in *interpreter) findOthers(th *unwind.Thread) {
	p := pyThreads.Of(th)
	if !p.foreign && (!p.doubtful || in.rt.alone(in.mem, p.th.State().Interp)) {
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

// capture reads the frames of all States of p into s. ok is as in Thread.Capture.
func (in *interpreter) capture(p *pyThread, mem io.ReaderAt, s *Stack) (ok bool) {
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

// Begin implements Stepper. No Plan came before a copy of an unplanned moment.
func (in *interpreter) Begin(w *unwind.Walker, th *unwind.Thread, _ *stack.Regs) {
	if p := pyThreads.Of(th); p.of == in && w.Copied().Past {
		p.have = false
	} else {
		p.plan.torn = false
	}
}

// Asks implements Stepper.
func (in *interpreter) Asks(th *unwind.Thread) bool { return pyThreads.Of(th).asks() }

// More reads th's Python frames while the thread cannot run.
func (in *interpreter) More(w *unwind.Walker, th *unwind.Thread, _ *stack.Regs, mem *unwind.Copy, out []rule.Span) (spans []rule.Span, reads int) {
	p := pyThreads.Of(th)
	if p.of != in || p.th == nil {
		return out, 0
	}
	p.live = w.Reads()
	defer p.live.End()
	if in.table != nil {
		in.captureAll(p, mem)
	} else if p.have = in.capture(p, &copied{mem, in.mem}, &p.stack); !p.have {
		in.lost(p)
	}
	return out, p.live.Reads
}

// copied reads a Copy, and the target's memory for what the Copy lacks.
type copied struct {
	mem  *unwind.Copy
	live unwind.Memory
}

// ReadAt implements io.ReaderAt.
func (c *copied) ReadAt(b []byte, addr int64) (int, error) {
	if n, err := (blocks{c.mem}).ReadAt(b, addr); err == nil {
		return n, nil
	}
	return c.live.ReadAt(b, addr)
}

// holdsGIL reports whether the thread held its interpreter's global lock when the copy was made.
func (p *pyThread) holdsGIL(mem *unwind.Copy) bool {
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

// Report implements Stepper.
func (in *interpreter) Report(th *unwind.Thread) unwind.Report {
	p := pyThreads.Of(th)
	return unwind.Report{
		Gap:    p.unread || p.foreign || p.have && (p.plan.gaps || p.stack.Reason != stack.ReasonNone),
		Lacks:  p.plan.lacks,
		Torn:   p.plan.torn || p.plan.lacks && p.stack.Reason == stack.ReasonCorrupt,
		Locked: p.locked,
		Code:   p.plan.proof,
	}
}

// Merge puts the Python frames between those of C. An error frame replaces frames that could not be
// read.
func (in *interpreter) Merge(w *unwind.Walker, th *unwind.Thread, frames []stack.Frame) []stack.Frame {
	p := pyThreads.Of(th)
	p.unread, p.locked = false, false
	p.live = w.Meter()
	x := pyWalks.In(w)
	if p.of == in && in.table != nil && p.th != nil && !p.have {
		in.captureCopy(p, w.Copied())
	}
	if p.of != in || !p.have {
		merged, unread := in.rt.Unread(x.merged[:0], frames, in.table != nil)
		if p.unread = unread; unread {
			x.merged = merged
		} else { // it runs no Python
			p.foreign, p.plan.lacks = false, false
		}
		return merged
	}
	if p.th != nil { // captureCopy may have lost it
		p.locked = p.holdsGIL(w.Copied())
	}
	if in.table != nil && !w.Properties().Has(unwind.Tasks) {
		in.lookTask(th)
	}
	_, first := w.Start()
	n := in.greenlet(w, x, frames, &p.stack)
	own := frames
	if n > 0 {
		own = frames[:n]
	}
	if p.foreign, p.doubtful = in.rt.Foreign(own, first, &p.stack); !p.foreign && !p.doubtful {
		p.looked = 0
	}
	if n > 0 {
		x.merged = in.rt.Merge(x.merged[:0], own, first, &p.stack, in.table != nil)
		x.merged = append(x.merged, stack.Frame{PC: uint64(stack.ReasonParent), Kind: stack.KindError})
		w.Ends()
		return x.merged
	}
	if len(p.stack.Frames) > 0 || p.stack.Reason != stack.ReasonNone {
		x.merged = in.rt.Merge(x.merged[:0], frames, first, &p.stack, in.table != nil)
		return x.merged
	}
	return frames
}
