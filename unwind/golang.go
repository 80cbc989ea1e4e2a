package unwind

import (
	"debug/elf"
	"encoding/binary"

	"github.com/sliverprof/sliver/stack"
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

// adoptGo makes m's Go runtime the process's if it has none yet. If there are several (a program
// and a plugin built as C library), the first one is followed. Stacks of the others end where they
// cross into another runtime's code.
func (s *Space) adoptGo(m *module, bias uint64) {
	if m.golang == nil || s.runtimes.Load().golang != nil {
		return
	}
	s.setRuntimes(func(r *runtimes) {
		if r.golang == nil {
			r.golang = &goRuntime{rt: gopcln.NewRuntime(m.golang, bias)}
		}
	})
}

// goRuntime is the Go runtime of a process. Its code is walked by rules. They mark the frames where
// a stack continues elsewhere (Walker.cross).
type goRuntime struct {
	noPart
	rt *gopcln.Runtime
}

// thread returns the Go data of th.
func (p *goRuntime) thread(th *Thread) *gopcln.Thread {
	if th.runtime != p.rt {
		th.runtime, th.golang = p.rt, p.rt.Thread(th.TID)
	}
	return th.golang
}

func (p *goRuntime) plan(th *Thread, out []rule.Span) []rule.Span {
	th.guessed.asked = false
	return p.thread(th).Plan(&th.regs, out)
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

func (p *goRuntime) asks(th *Thread) bool {
	x := &th.guessed
	return !x.tried || x.lacks || x.wait > 0
}

// Guesses reports whether a stop of th without More may lack something, which then requires another
// stop.
func (w *Walker) Guesses(*Thread) bool { return w.space.runtimes.Load().golang != nil }

func (p *goRuntime) more(_ *Walker, th *Thread, regs *stack.Regs, mem *Copy) int {
	th.guessed.asked = true
	th.more = p.thread(th).More(regs, mem, th.more)
	return 0
}

func (p *goRuntime) begin(w *Walker, th *Thread, regs *stack.Regs) {
	w.golang = p.thread(th)
	if x := &th.guessed; x.asked {
		x.tried, x.lacks, x.wait = true, false, max(x.wait-1, 0)
	} else {
		th.more = w.golang.More(regs, w.mem, th.more[:0])
		x.checked(len(th.more) > 0)
	}
	w.golang.Begin(regs, (*live)(w))
}

// GoFunc returns the name of the Go function that contains pc. ok is false if pc is not in the
// process's Go program.
func (s *Space) GoFunc(pc uint64) (name string, ok bool) {
	if p := s.runtimes.Load().golang; p != nil {
		return p.rt.Func(pc)
	}
	return "", false
}

// Managed reports whether the process has a runtime whose stacks continue at places that registers
// and tables do not show. If so, call More.
func (s *Space) Managed() bool {
	r := s.runtimes.Load()
	return r.golang != nil || r.python != nil
}

// Go reports whether a Go runtime was found (see Preload).
func (s *Space) Go() bool { return s.runtimes.Load().golang != nil }

// Census makes a census of the process's goroutines. It returns nil if no Go runtime was found (see
// Preload), or if the target's memory cannot be read.
func (s *Space) Census() *gopcln.Census {
	p := s.runtimes.Load().golang
	if p == nil || s.mem == nil {
		return nil
	}
	return p.rt.NewCensus(s.mem)
}

// Goroutine is Walk for a goroutine that no thread runs, or that is in a system call. It reads the
// target's memory as it is now. If the goroutine moves during the walk, the stack ends early or
// shows its state before the move; the caller compares g with a later look.
func (w *Walker) Goroutine(g *gopcln.Goroutine) ([]stack.Frame, stack.Reason) {
	w.frames = w.frames[:0]
	n := min(g.Hi-g.SP, MaxStack)
	if g.SP < g.Lo || g.SP >= g.Hi || w.space.mem == nil {
		return w.frames, stack.ReasonEmpty
	}
	if uint64(cap(w.goStack)) < n {
		w.goStack = make([]byte, n)
	}
	b := w.goStack[:n]
	k, _ := w.space.mem.ReadAt(b, int64(g.SP))
	regs := stack.Regs{PC: g.PC}
	regs.Set(w.sp, g.SP)
	regs.Set(w.fp, g.FP)
	mem := Copy{Blocks: []Block{{Addr: g.SP, Data: b[:max(k, 0)]}}}
	return w.walkFrom(&w.nobody, &regs, &mem, g.PC == g.Func) // it has not started yet
}

// goStack holds the bounds of a goroutine's stack and the offset that settle adds to CFAs in it.
type goStack struct{ id, lo, hi, shift uint64 }

// settle makes the CFAs of frames on a goroutine's stack independent of the stack's address. A
// stack that grows or shrinks is copied to another place, and its activations keep their distance
// from the upper end; settle maps their CFAs to those of the first look. If another goroutine gets
// the same stack, settle makes the CFAs differ from the previous owner's.
func (p *goRuntime) settle(w *Walker, th *Thread) {
	s := &th.stack
	th.tasks.look(w.golang, (*frozen)(w))
	if id, lo, hi, ok := w.golang.Goroutine((*frozen)(w)); ok {
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
	if sp := w.regs[w.sp]; sp >= s.lo && sp < s.hi {
		w.reach = s.hi + s.shift
	}
	if s.shift == 0 {
		return
	}
	w.end = w.stackEnd()
	for i := range w.frames {
		if f := &w.frames[i]; f.CFA > s.lo && f.CFA <= s.hi {
			f.CFA += s.shift
		}
	}
}

// live is a Walker's memory for self-validating data: the copy, or the target's current memory if
// the copy lacks it.
type live Walker

// Word implements rule.Words.
func (l *live) Word(addr uint64) (uint64, bool) {
	w := (*Walker)(l)
	if v, ok := w.word(addr); ok {
		return v, true
	}
	return readWord(&w.meter, w.buf[:8], addr)
}

func readWord(m Memory, b []byte, addr uint64) (uint64, bool) {
	if addr > 1<<63-8 {
		return 0, false
	}
	if n, _ := m.ReadAt(b, int64(addr)); n < 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b), true
}

// frozen is a Walker's memory for data that must come from the copy.
type frozen Walker

// Word implements rule.Words.
func (f *frozen) Word(addr uint64) (uint64, bool) {
	v, ok := (*Walker)(f).word(addr)
	if !ok {
		f.wanted = addr
	}
	return v, ok
}

// cross continues the walk where Go's runtime data says. If apply is true, w's registers are ready
// for the rule itself.
func (w *Walker) cross(f *stack.Frame, r *rule.Rule) (s step, apply bool) {
	if w.golang == nil {
		return stop(stack.ReasonNoRule), false
	}
	g := &w.crossing
	*g = stack.Regs{PC: f.PC, Known: w.known, TLS: w.leaf.TLS}
	copy(g.R[:], w.regs[:])
	w.wanted = 0
	how := w.golang.Cross(r, g, f.Exact, (*frozen)(w))
	copy(w.regs[:], g.R[:])
	w.known = g.Known
	switch how {
	case gopcln.Apply:
		return s, true
	case gopcln.Jump, gopcln.Exact:
		return step{pc: g.PC, exact: how == gopcln.Exact, trust: stack.TrustTable}, false
	case gopcln.Base:
		return step{end: true}, false
	}
	return stop(stack.ReasonMemory), false
}
