package unwind

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// A stepper is one runtime's part in walks. Machine code is walked by rules from any kind of table.
// Each adds its runtime's data to the copy of a thread's stack, steps over frames that
// no rule describes, and puts the runtime's functions between those of machine code. If a process
// has several runtimes, all of them take part.
//
// The calls for one copy of a thread's memory are, in order: plan and asks before the stop; more
// during the stop; then for the walk begin, covers and step at each frame, resume, holds, settle,
// merge, gap. State that a runtime keeps between walks of a thread is in its Thread. A runtime
// embeds noPart for the calls that it does not implement.
type stepper interface {
	// plan appends the blocks to copy of th in addition to its stack, predicted from the reads of
	// its last walk.
	plan(th *Thread, out []rule.Span) []rule.Span
	// asks reports whether more must be called during the stop, because plan could not predict the
	// blocks.
	asks(th *Thread) bool
	// more runs during the stop. It adds to th.more further blocks to copy, or reads the target's
	// memory itself and returns the number of reads.
	more(w *Walker, th *Thread, regs *stack.Regs, mem *Copy) (reads int)
	// begin is called at the start of each walk.
	begin(w *Walker, th *Thread, regs *stack.Regs)
	// covers reports whether step, and not rules, handles frames of the code at pc.
	covers(pc uint64) bool
	// step appends the frames of the code at pc and leaves their caller's registers in w.
	step(w *Walker, pc uint64, exact bool) step
	// resume may continue a walk that ended early, for the reason why, at a frame further out that
	// the runtime knows.
	resume(w *Walker, th *Thread, why stack.Reason) stack.Reason
	// holds reports whether the runtime data that the walk read is still valid. try counts the walks
	// of this copy from 1.
	holds(w *Walker, try int) verdict
	// settle runs at the walk's end. It moves the found frames to their final places and records
	// what the thread ran in th.tasks.
	settle(w *Walker, th *Thread)
	// merge puts the runtime's frames into a whole stack.
	merge(w *Walker, th *Thread, frames []stack.Frame) []stack.Frame
	// gap reports whether merge's result lacks frames of the runtime.
	gap(th *Thread) bool
}

// A verdict decides what happens to a walk.
type verdict uint8

const (
	valid verdict = iota
	again         // walk the copy once more
	void          // drop the frames: they may be wrong
)

// maxAgain bounds the walks of one copy.
const maxAgain = 4

// noPart is a stepper without effect.
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

// runtimes holds the runtimes found in a process so far. It is immutable.
type runtimes struct {
	golang   *goRuntime   // nil: none found
	jvm      *hotspot     // nil: see FollowJVM
	v8       *engine      // nil: see FollowV8
	python   *interpreter // nil: see FollowPython
	steppers []stepper    // the runtimes found, in the order in which they take part
}

// setRuntimes replaces the runtimes of the process by a copy that change has modified.
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

// walkAll walks a copy until all runtimes accept the result.
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
	return stop(stack.ReasonNoRule) // it belonged to another program
}
