package ptrace

import (
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// blocked is the program that reads registers of blocked threads, for all processes. It is loaded once one is needed, beside
// the samples, since that takes some 20 ms, and remains.
var blocked struct {
	load sync.Once
	prog atomic.Pointer[kernel.Blocked] // nil: not loaded yet, or not allowed
}

func loadBlocked() {
	if b, err := kernel.OpenBlocked(); err == nil { // else such a thread is stopped, if that is harmless
		blocked.prog.Store(b)
	}
}

// UseKernel lets the Engine use programs of the kernel, where they are allowed, to read blocked threads.
func (e *Engine) UseKernel() { e.kernel = true }

// Registers implements sampler.Engine.
func (e *Engine) Registers() (more bool) {
	if !e.kernel || e.w.Registers != nil {
		return false
	}
	blocked.load.Do(func() { go loadBlocked() })
	b := blocked.prog.Load()
	if b == nil {
		return false
	}
	var buf kernel.BlockedRegs // the Engine belongs to one goroutine
	e.w.Registers = func(tid stack.TID, r *stack.Regs) bool {
		return b.Read(tid, &buf) && target.BlockRegs(buf.Block(), buf.TLS(), r)
	}
	return true
}
