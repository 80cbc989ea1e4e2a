package jvm

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// heapCopy is a copy of the frames that a carrier's virtual thread has in the heap, made while the carrier
// did not run.
type heapCopy struct {
	have   bool
	pc, sp uint64 // the carrier's registers, to recognize the stack that belongs to it
	chunks []Chunk
	buf    []byte
	why    stack.Reason // of missing chunks
	sought int          // searches for the fields that lead to chunks
}

// plan drops the copy, and looks for the fields that lead to the next one.
func (c *heapCopy) plan(rt *Runtime, on *carrier) {
	c.have = false
	if !on.is || rt.HasChunks() {
		return
	}
	if c.sought++; c.sought&(c.sought-1) == 0 || c.sought%maxTried == 0 {
		_ = rt.FindChunks(on.at) // or later: most often it runs no virtual thread
	}
}

// Asks implements Stepper. What a virtual thread has in the heap is read during the stop.
func (h *hotspot) Asks(th *unwind.Thread) bool {
	j := javaThreads.Of(th)
	return j.of == h && j.carrier.is && h.rt.HasChunks()
}

// More implements Stepper.
func (h *hotspot) More(w *unwind.Walker, th *unwind.Thread, regs *stack.Regs, mem *unwind.Copy, out []rule.Span) ([]rule.Span, int) {
	j := javaThreads.Of(th)
	c := &j.heap
	if c.have || !h.Asks(th) {
		return out, 0
	}
	own, ok1 := mem.Word(j.carrier.at.Own)
	mounted, ok2 := mem.Word(j.carrier.at.Mounted)
	if !ok1 || !ok2 || own == mounted {
		return out, 0
	}
	m := w.Reads()
	defer m.End()
	c.chunks, c.buf, c.why = h.rt.On(m).Chunks(j.carrier.at, mounted, c.chunks[:0], c.buf[:0])
	c.have, c.pc, c.sp = true, regs.PC, regs.R[rsp]
	return out, m.Reads
}

// inHeap returns the frames in the heap that belong to the walk's stack.
func (j *javaWalk) inHeap() ([]Chunk, stack.Reason) {
	if j.thread == nil {
		return nil, stack.ReasonHeap
	}
	c := &j.thread.heap
	if !c.have || c.pc != j.pc || c.sp != j.sp {
		return nil, stack.ReasonHeap
	}
	return c.chunks, c.why
}
