package unwind

import "github.com/sliverprof/sliver/stack"

// A Parking is the state of a task of a runtime that no thread runs.
type Parking struct {
	PC, SP, FP uint64
	Lo, Hi     uint64 // bounds of its stack
	Exact      bool   // PC is the next instruction, not a return address
}

// WalkParked is Walk for a task that no thread runs, or that is in a system call. It reads the target's
// memory as it is now. If the task moves during the walk, the stack ends early or shows its state before
// the move.
func (w *Walker) WalkParked(p *Parking) ([]stack.Frame, stack.Reason) {
	w.frames = w.frames[:0]
	n := min(p.Hi-p.SP, MaxStack)
	if p.SP < p.Lo || p.SP >= p.Hi || w.space.mem == nil {
		return w.frames, stack.ReasonEmpty
	}
	if uint64(cap(w.parked)) < n {
		w.parked = make([]byte, n)
	}
	b := w.parked[:n]
	k, _ := w.space.mem.ReadAt(b, int64(p.SP))
	regs := stack.Regs{PC: p.PC}
	regs.Set(w.sp, p.SP)
	regs.Set(w.fp, p.FP)
	mem := Copy{Blocks: []Block{{Addr: p.SP, Data: b[:max(k, 0)]}}}
	return w.walkFrom(&w.nobody, &regs, &mem, p.Exact)
}
