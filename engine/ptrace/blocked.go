package ptrace

import (
	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// blocked is the program that reads registers of blocked threads, for all processes. It is loaded once one is needed.
var blocked loader[*kernel.Blocked]

// UseKernel lets the Engine use programs of the kernel, where they are allowed, to read blocked threads.
func (e *Engine) UseKernel() { e.kernel = true }

// Registers implements sampler.Engine.
func (e *Engine) Registers() (more bool) {
	if !e.kernel || e.w.Registers != nil {
		return false
	}
	x := blocked.get(kernel.OpenBlocked)
	if x == nil || x.err != nil { // then such a thread is stopped, if that is harmless
		return false
	}
	b := x.of
	var buf kernel.BlockedRegs // the Engine belongs to one goroutine
	e.w.Registers = func(tid stack.TID, r *stack.Regs) bool {
		return b.Read(tid, &buf) && target.BlockRegs(buf.Block(), buf.TLS(), r)
	}
	return true
}
