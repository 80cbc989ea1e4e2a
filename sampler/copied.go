package sampler

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// Copied is a thread whose registers and memory someone else copies, for example the kernel at the
// end of a system call. It belongs to the Once that made it.
type Copied struct{ t *thread }

// NewCopied returns a thread without files of its own.
func (o *Once) NewCopied(in *stack.ThreadInfo) *Copied {
	t := newThread(*in, nil, &o.sink)
	t.pauses = &o.pauses
	return &Copied{t}
}

// PlanCopied returns the memory to copy beside the thread's stack. It is valid until the next walk.
func (o *Once) PlanCopied(c *Copied) []stack.Span { return o.g.walker.Plan(&c.t.walk) }

// WalkCopied walks a copy: the memory of PlanCopied in its order, then the stack. read returns memory
// as it is now, for what a runtime's data leads to; blocks that it cannot read are empty. The sample
// is valid until the next walk.
func (o *Once) WalkCopied(c *Copied, at stack.Time, regs *stack.Regs, blocks []unwind.Block, read func([]stack.Span) []unwind.Block) *stack.Sample {
	g := &o.g
	v, s := &g.view, &g.sample
	g.now = c.t
	*v = View{More: v.More, Regs: regs, Call: stack.Call{Nr: -1}, Asked: at, Stopped: at, Resumed: at}
	last := blocks[len(blocks)-1]
	for try := 1; ; try++ {
		v.Mem.Blocks = blocks
		for range copiedMore {
			spans, _ := g.walker.More(&c.t.walk, regs, &v.Mem)
			if len(spans) == 0 {
				break
			}
			n := len(v.Mem.Blocks) - 1
			v.Mem.Blocks = append(append(v.Mem.Blocks[:n:n], read(spans)...), last)
		}
		*s = stack.Sample{Time: at, Way: stack.WayRead, CPU: -1, State: stack.StateRunning, Call: stack.Call{Nr: -1}, Stack: s.Stack[:0]}
		g.walkView(c.t, s)
		if !c.t.again(s.Reason, try) {
			return s
		}
		// What the walk lacked may still be there.
		blocks = append(read(g.walker.Plan(&c.t.walk)), last)
	}
}

// Exec forgets the walked program: the process runs another one.
func (o *Once) Exec() { o.g.walker = unwind.NewWalker(o.g.s.target.Space()) }

// copiedMore is how often a runtime may ask for more memory.
const copiedMore = 3
