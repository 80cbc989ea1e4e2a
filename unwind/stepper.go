package unwind

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// A stepper is one runtime's part in walks. Machine code is walked by rules, whatever table
// they come from; a stepper says which of a runtime's data is copied with a thread's
// stack, steps over frames that no rule describes, and puts the runtime's functions among
// those of machine code. Of a process that has several runtimes each takes part.
//
// For one copy of a thread's memory the order is plan and asks before the stop, more inside
// of it, and for the walk of the copy begin, covers and step at each frame, resume, holds, settle,
// merge, gap. What a thread's runtime needs to know from one walk to the next is in its Thread. A
// runtime without a part in one of these embeds noPart.
type stepper interface {
	// plan appends the blocks to copy of th besides its stack: guesses by what its last
	// walk wanted.
	plan(th *Thread, out []rule.Span) []rule.Span
	// asks reports whether more is to be called while th stands, for what plan could not tell.
	asks(th *Thread) bool
	// more is for while th stands. It adds to th.more what is to be copied besides, or reads
	// the target's memory itself, so many times.
	more(w *Walker, th *Thread, regs *stack.Regs, mem *Copy) (reads int)
	// begin is for the start of each walk.
	begin(w *Walker, th *Thread, regs *stack.Regs)
	// covers reports whether frames of the code at pc are stepped over by step, and not by rules.
	covers(pc uint64) bool
	// step appends the frames of the code at pc, and leaves the registers of their caller in w.
	step(w *Walker, pc uint64, exact bool) step
	// resume may go on with a walk that ended early, for that reason, where the runtime
	// knows a place further out.
	resume(w *Walker, th *Thread, why stack.Reason) stack.Reason
	// holds reports whether what the walk read of the runtime's data is there still. try
	// counts the walks of this copy, the first being 1.
	holds(w *Walker, try int) verdict
	// settle is for the walk's end: frames that were found get their final places, and
	// th.tasks what the thread ran.
	settle(w *Walker, th *Thread)
	// merge puts the runtime's frames into a whole stack.
	merge(w *Walker, th *Thread, frames []stack.Frame) []stack.Frame
	// gap reports whether frames of the runtime are missing in what merge gave.
	gap(th *Thread) bool
}

// A verdict says what is to become of a walk.
type verdict uint8

const (
	valid verdict = iota
	again         // the copy is walked once more
	void          // what was found may be wrong, and is not shown
)

// maxAgain bounds the walks of one copy.
const maxAgain = 4

// noPart is a stepper that changes nothing.
type noPart struct{}

func (noPart) plan(_ *Thread, out []rule.Span) []rule.Span                    { return out }
func (noPart) asks(*Thread) bool                                              { return false }
func (noPart) more(*Walker, *Thread, *stack.Regs, *Copy) int                  { return 0 }
func (noPart) begin(*Walker, *Thread, *stack.Regs)                            {}
func (noPart) covers(uint64) bool                                             { return false }
func (noPart) step(*Walker, uint64, bool) step                                { return stop(stack.ReasonNoRule) }
func (noPart) resume(_ *Walker, _ *Thread, why stack.Reason) stack.Reason     { return why }
func (noPart) holds(*Walker, int) verdict                                     { return valid }
func (noPart) settle(*Walker, *Thread)                                        {}
func (noPart) merge(_ *Walker, _ *Thread, frames []stack.Frame) []stack.Frame { return frames }
func (noPart) gap(*Thread) bool                                               { return false }

// runtimes are those that were found in a process so far, immutable.
type runtimes struct {
	golang   *goRuntime   // nil: none was seen
	jvm      *hotspot     // nil: see FollowJVM
	v8       *engine      // nil: see FollowV8
	python   *interpreter // nil: see FollowPython
	steppers []stepper    // those above that there are, in the order in which they take part
}

// setRuntimes replaces the runtimes of the process by what change makes of them.
func (s *Space) setRuntimes(change func(*runtimes)) {
	s.found.Lock()
	defer s.found.Unlock()
	next := *s.runtimes.Load()
	change(&next)
	next.steppers = nil
	if next.golang != nil {
		next.steppers = append(next.steppers, next.golang)
	}
	if next.jvm != nil {
		next.steppers = append(next.steppers, next.jvm)
	}
	if next.v8 != nil {
		next.steppers = append(next.steppers, next.v8)
	}
	if next.python != nil {
		next.steppers = append(next.steppers, next.python)
	}
	s.runtimes.Store(&next)
}

// walkAll is the walk of a copy until all runtimes agree that it holds.
func (w *Walker) walkAll(th *Thread, regs *stack.Regs, exact bool) (reason stack.Reason) {
	for try := 1; ; try++ {
		reason = w.walk(regs.PC, exact)
		for _, s := range w.with.steppers {
			reason = s.resume(w, th, reason)
		}
		found := valid
		for _, s := range w.with.steppers {
			found = max(found, s.holds(w, try))
		}
		switch {
		case found == void:
			w.frames = w.frames[:0]
			return stack.ReasonMemory
		case found == valid || try == maxAgain:
			return reason
		}
		w.begin(regs)
	}
}

// stepRuntime walks over a frame of a runtime's code.
func (w *Walker) stepRuntime(key, pc uint64, exact bool) step {
	for _, s := range w.with.steppers {
		if s.covers(key) {
			return s.step(w, pc, exact)
		}
	}
	return stop(stack.ReasonNoRule) // it was another program's
}
