package sampler

import (
	"hash/maphash"

	"github.com/sliverprof/sliver/stack"
)

// Borrowed registers: a look without a stop shows only SP and PC. If the thread is at the place
// of its last stop, with the same stack, the callers' registers of that stop are still valid.

var seed = maphash.MakeSeed()

// stackHash identifies n bytes of the stack from SP up; 0 if they were not copied.
func (g *group) stackHash(n uint64) uint64 {
	v := &g.view
	if len(v.Mem.Blocks) == 0 {
		return 0
	}
	b := &v.Mem.Blocks[len(v.Mem.Blocks)-1]
	o := g.sp(v.Regs) - b.Addr
	if o > uint64(len(b.Data)) || n > uint64(len(b.Data))-o {
		return 0
	}
	return maphash.Bytes(seed, b.Data[o:o+n]) | 1
}

// lastStop is a thread's state at its last stop. The registers remain valid while later looks
// without a stop show the same PC, SP and stack.
type lastStop struct {
	regs  stack.Regs
	bytes uint64 // of stack from SP to the outermost frame
	hash  uint64 // of these; 0: none
}

// keepRegs saves the registers of a stop in a system call, or in a process stopped by a signal,
// for later looks that show only SP and PC.
func (g *group) keepRegs(th *thread) {
	th.reuse.stop.hash = 0
	if g.sample.Reason != stack.ReasonNone || g.sample.Call.Nr < 0 && !g.view.Group {
		return
	}
	end := g.walker.StackEnd()
	if sp := g.sp(g.view.Regs); end > sp {
		th.reuse.stop.regs, th.reuse.stop.bytes = *g.view.Regs, end-sp
		th.reuse.stop.hash = g.stackHash(th.reuse.stop.bytes)
	}
}

// borrowRegs completes the registers of a look without a stop by those of the last stop, if the
// thread is at the same place with the same stack: then its callers' registers, which unwinding
// needs, are the same too.
func (g *group) borrowRegs(th *thread) bool {
	r := g.view.Regs
	if th.reuse.stop.hash == 0 || r.PC != th.reuse.stop.regs.PC || g.sp(r) != g.sp(&th.reuse.stop.regs) || g.stackHash(th.reuse.stop.bytes) != th.reuse.stop.hash {
		return false
	}
	*r = th.reuse.stop.regs
	return true
}

// sp returns the stack pointer of the target's machine.
func (g *group) sp(r *stack.Regs) uint64 { return r.R[g.s.target.Space().Arch().SP()] }
