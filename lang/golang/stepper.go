package golang

import (
	"debug/elf"
	"errors"
	"io"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/rule"
)

// mayBeGo reports whether a file may have Go's tables. Searching a whole file for them takes tens
// of milliseconds. Go's linker writes some of these sections (src/cmd/link/internal/ld/data.go),
// also with an external linker, and strip keeps them. A file without sections is searched.
func mayBeGo(f *elf.File) bool {
	if len(f.Sections) == 0 {
		return true
	}
	for _, s := range f.Sections {
		switch s.Name {
		case ".go.buildinfo", ".gopclntab", ".data.rel.ro.gopclntab", ".note.go.buildid":
			return true
		}
	}
	return false
}

// Stacks is Go's part in walks. A process's runtime is found with the tables of its first file that has
// them.
var Stacks = &unwind.Language{
	Name:       "Go",
	Properties: unwind.Beside | unwind.Guesses | unwind.TLS | unwind.Tasks,
	Tables:     tables,
	Adopt: func(s *unwind.Space, t unwind.Tables, bias uint64) unwind.Stepper {
		return &goRuntime{rt: gopcln.NewRuntime(t.(*gopcln.Table), bias), mem: s.Memory()}
	},
}

// tables opens the tables of Go's linker if the file has them.
func tables(f *elf.File, file io.ReaderAt, arch rule.Arch) (unwind.Tables, error) {
	if !mayBeGo(f) {
		return nil, nil
	}
	t, err := gopcln.Load(file, arch)
	switch {
	case err == nil:
		return t, nil
	case errors.Is(err, gopcln.ErrNotGo):
		err = nil
	}
	return nil, err
}

// goRuntime is the Go runtime of a process. Its code is walked by rules. They mark the frames where
// a stack continues elsewhere (Cross).
type goRuntime struct {
	unwind.NoPart
	rt  *gopcln.Runtime
	mem unwind.Memory
}

// goThread is a Thread's state for Go.
type goThread struct {
	of      *gopcln.Runtime // that th belongs to
	th      *gopcln.Thread
	guessed goGuess
	stack   goStack // of the goroutine in the last walk that found it
	g       uint64  // address of the data of the goroutine that the thread ran; 0: none
	id      uint64  // its number
	spans   []rule.Span
	aside   []rule.Span // of Aside
	past    bool        // the last walk was of a copy of the past
}

// goWalk is a Walker's state for Go.
type goWalk struct{ crossing stack.Regs }

var (
	goThreads unwind.Slot[goThread]
	goWalks   unwind.Slot[goWalk]
)

// thread returns the Go data of th.
func (p *goRuntime) thread(th *unwind.Thread) *goThread {
	t := goThreads.Of(th)
	if t.of != p.rt {
		t.of, t.th = p.rt, p.rt.Thread(th.TID)
	}
	return t
}

// Peek implements Stepper: pointers may have changed since the last sample.
func (p *goRuntime) Peek(th *unwind.Thread) { p.thread(th).th.Peek(p.mem) }

// Plan implements Stepper.
func (p *goRuntime) Plan(th *unwind.Thread, out []rule.Span) []rule.Span {
	t := p.thread(th)
	t.guessed.asked = false
	return t.th.Plan(th.Regs(), out)
}

// goGuess records how well Plan predicts the memory that a walk of a thread needs. Calling More
// while the thread is stopped takes several times as long as a stop that a stopper does alone.
// Stops are therefore made without More, and the copy is checked before the walk. If it lacks
// something, another stop is made that calls More, and so do the next ones; their number grows with
// the number of wrong plans.
type goGuess struct {
	asked   bool // More was called for the copy of the last Plan
	lacks   bool // that copy lacks something that another stop would get
	tried   bool // a thread's first stop calls More
	wait    int  // number of stops with More before the plan is trusted again
	penalty int
}

// mostPenalty is the number of stops with More after repeated wrong plans.
const mostPenalty = 64

// checked records whether the plan was right at a stop without More.
func (x *goGuess) checked(lacks bool) {
	if x.lacks = lacks; lacks {
		x.penalty = min(max(2*x.penalty, 2), mostPenalty)
		x.wait = x.penalty
	} else {
		x.penalty /= 2
	}
}

// Asks implements Stepper.
func (p *goRuntime) Asks(th *unwind.Thread) bool {
	x := &p.thread(th).guessed
	return !x.tried || x.lacks || x.wait > 0
}

// Aside implements Stepper.
func (p *goRuntime) Aside(th *unwind.Thread) (x unwind.Aside, ok bool) {
	t := p.thread(th)
	t.aside, x.Pointer, x.Len, ok = t.th.Aside(th.Regs(), t.aside[:0])
	x.Blocks, x.Lo, x.Hi, x.SP = t.aside, gopcln.StackLo, gopcln.StackHi, gopcln.SavedSP
	return x, ok
}

// More implements Stepper.
func (p *goRuntime) More(_ *unwind.Walker, th *unwind.Thread, regs *stack.Regs, mem *unwind.Copy, out []rule.Span) ([]rule.Span, int) {
	t := p.thread(th)
	t.guessed.asked = true
	return t.th.More(regs, mem, out), 0
}

// Begin implements Stepper.
func (p *goRuntime) Begin(w *unwind.Walker, th *unwind.Thread, regs *stack.Regs) {
	t := p.thread(th)
	if t.past = w.Copied().Past; t.past { // it says nothing about the plan, and what it lacks has changed since
		t.th.BeginPast(regs, w.Copied())
		return
	}
	if x := &t.guessed; x.asked {
		x.tried, x.lacks, x.wait = true, false, max(x.wait-1, 0)
	} else {
		t.spans = t.th.More(regs, w.Copied(), t.spans[:0])
		x.checked(len(t.spans) > 0)
	}
	t.th.Begin(regs, w.Live())
}

// Report implements Stepper.
func (p *goRuntime) Report(th *unwind.Thread) unwind.Report {
	t := p.thread(th)
	return unwind.Report{Lacks: t.guessed.lacks && !t.past}
}

// Of returns the Go runtime of a process, nil if it has none. unwind.Space.Preload finds it.
func Of(s *unwind.Space) *gopcln.Runtime {
	if p, ok := s.Followed(Stacks).(*goRuntime); ok {
		return p.rt
	}
	return nil
}

// Census makes a census of the process's goroutines. It returns nil if no Go runtime was found, or if the
// target's memory cannot be read.
func Census(s *unwind.Space) *gopcln.Census {
	rt := Of(s)
	if rt == nil || s.Memory() == nil {
		return nil
	}
	return rt.NewCensus(s.Memory())
}

// Walk is unwind.Walker.WalkParked for a goroutine that no thread runs, or that is in a system call. If it
// moves during the walk, the caller compares g with a later look.
func Walk(w *unwind.Walker, g *gopcln.Goroutine) ([]stack.Frame, stack.Reason) {
	return w.WalkParked(&unwind.Parking{PC: g.PC, SP: g.SP, FP: g.FP, Lo: g.Lo, Hi: g.Hi, Exact: g.PC == g.Func}) // Exact: it has not started yet
}

// goStack holds the bounds of a goroutine's stack and the offset that Settle adds to CFAs in it.
type goStack struct{ id, lo, hi, shift uint64 }

// Settle makes the CFAs of frames on a goroutine's stack independent of the stack's address. A
// stack that grows or shrinks is copied to another place, and its activations keep their distance
// from the upper end; Settle maps their CFAs to those of the first look. If another goroutine gets
// the same stack, Settle makes the CFAs differ from the previous owner's.
func (p *goRuntime) Settle(w *unwind.Walker, th *unwind.Thread) {
	t := p.thread(th)
	s := &t.stack
	t.look(th, w.Needed())
	if id, lo, hi, ok := t.th.Goroutine(w.Needed()); ok {
		switch {
		case s.hi == 0:
			*s = goStack{id: id, lo: lo, hi: hi}
		case id != s.id:
			*s = goStack{id: id, lo: lo, hi: hi, shift: id << 48}
		case hi != s.hi:
			s.shift += s.hi - hi
			s.lo, s.hi = lo, hi
		}
	}
	regs, _ := w.Registers()
	if sp := regs[w.Arch().SP()]; sp >= s.lo && sp < s.hi {
		w.SetReach(s.hi + s.shift)
	}
	if s.shift == 0 {
		return
	}
	w.Relocated()
	frames := w.Frames()
	for i := range frames {
		if f := &frames[i]; f.CFA > s.lo && f.CFA <= s.hi {
			f.CFA += s.shift
		}
	}
}

// look records which goroutine the thread ran, from its copy. Looking at the same copy again changes
// nothing. The data of the previous goroutine is in each copy, because plans expect it to run again.
func (t *goThread) look(th *unwind.Thread, mem rule.Words) {
	g, ok := t.th.Current(mem)
	now := stack.Task{}
	if ok && g != 0 {
		now, ok = t.th.Task(g, mem)
	}
	if !ok {
		if th.HasTasks() {
			th.SetTask(stack.Task{}, false)
		}
		return
	}
	if t.g != 0 && (g != t.g || now.ID != t.id) {
		switch left, ok := t.th.Task(t.g, mem); {
		case !ok:
			th.SetLeft(stack.Task{ID: t.id})
		case left.ID != t.id: // another goroutine uses its data by now
			th.SetLeft(stack.Task{ID: t.id, State: stack.TaskDone})
		default:
			th.SetLeft(left)
		}
	}
	t.g, t.id = g, now.ID
	th.SetTask(now, true)
}

// Cross implements Stepper.
func (p *goRuntime) Cross(w *unwind.Walker, th *unwind.Thread, f *stack.Frame, r *rule.Rule) (s unwind.Step, apply, ok bool) {
	g := &goWalks.In(w).crossing
	regs, known := w.Registers()
	leaf, _ := w.Start()
	*g = stack.Regs{PC: f.PC, Known: *known, TLS: leaf.TLS}
	copy(g.R[:], regs[:])
	how := p.thread(th).th.Cross(r, g, f.Exact, w.Needed())
	copy(regs[:], g.R[:])
	*known = g.Known
	switch how {
	case gopcln.Apply:
		return s, true, true
	case gopcln.Jump, gopcln.Exact:
		return unwind.Step{PC: g.PC, Exact: how == gopcln.Exact, Trust: stack.TrustTable}, false, true
	case gopcln.Base:
		return unwind.Step{End: true}, false, true
	}
	return unwind.Stop(stack.ReasonMemory), false, true
}
