package sampler

import (
	"errors"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// Copied is a thread whose registers and memory someone else copies, for example the kernel at the
// end of a system call. It belongs to the Once that made it.
type Copied struct{ t *thread }

// NewCopied returns a thread without files of its own.
func (o *Once) NewCopied(in *stack.ThreadInfo) *Copied {
	t := newThread(*in, nil, &o.sink)
	t.acc.pauses = &o.pauses
	return &Copied{t}
}

// Gaps reports whether the last walk lacks frames of a runtime.
func (c *Copied) Gaps() bool { return c.t.walk.Gaps() }

// Code returns the memory of code that the last walk lacked.
func (c *Copied) Code() []stack.Span { return c.t.walk.Code() }

// PlanCopied returns the memory to copy beside the thread's stack. It is valid until the next walk.
func (o *Once) PlanCopied(c *Copied) []stack.Span { return o.g.walker.Plan(&c.t.walk) }

// LinksCopied returns the list of the thread's frames that the kernel can follow.
func (o *Once) LinksCopied(c *Copied) (stack.Links, bool) { return o.g.walker.Links(&c.t.walk) }

// Beyond returns the address that the last walk of any thread lacked, if it ended because the copied stack was too short.
func (o *Once) Beyond() uint64 { return o.g.walker.Beyond() }

// LearnCopied looks at the live thread once, as Look does, so that the first plan has what its runtime
// needs. An error leaves the plan as it was.
func (o *Once) LearnCopied(c *Copied, th Thread) error {
	c.t.file = th
	defer func() { c.t.file = nil }()
	err := o.g.look(c.t)
	if errors.Is(err, ErrTimeout) {
		o.settle()
	}
	return err
}

// WalkCopied walks a copy: memory of PlanCopied, then the stack as the last block. Memory as it is now
// must not be among the blocks, since frames have moved since. Code does not move: live reads that of
// functions that are not known yet. The sample is valid until the next walk.
func (o *Once) WalkCopied(c *Copied, at stack.Time, regs *stack.Regs, blocks []unwind.Block, live func([]stack.Span) []unwind.Block) *stack.Sample {
	g := &o.g
	v, s := &g.view, &g.sample
	g.cur.thread = c.t
	*v = View{More: v.More, Regs: regs, Call: stack.Call{Nr: -1}, Asked: at, Stopped: at, Resumed: at}
	v.Mem.Blocks = blocks
	walk := func() {
		*s = stack.Sample{Time: at, Way: stack.WayRead, CPU: -1, State: stack.StateRunning, Call: stack.Call{Nr: -1}, Stack: s.Stack[:0]}
		g.walkView(c.t, s)
	}
	walk()
	if code := c.t.walk.Code(); c.t.walk.Gaps() && len(code) > 0 {
		last := len(blocks) - 1
		v.Mem.Blocks = append(append(blocks[:last:last], live(code)...), blocks[last])
		g.walker.Plan(&c.t.walk) // plans the captured spans, too
		walk()
	}
	return s
}

// Exec forgets the walked program: the process runs another one.
func (o *Once) Exec() { o.g.walker = unwind.NewWalker(o.g.s.target.Space()) }
