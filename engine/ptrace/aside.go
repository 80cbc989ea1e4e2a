package ptrace

import (
	"fmt"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
)

// asides are the programs that read memory for all clocks, without lists and with them. Each is loaded for the first clock
// that needs it, and remains, since the clock of all CPUs may be used again at any time.
var asides [2]loader[*kernel.Asides]

// asidesOf returns the program for plans with lists or without. The error is sampler.ErrAsideLater until it is loaded.
func asidesOf(lists bool) (*kernel.Asides, error) {
	of := &asides[0]
	if lists {
		of = &asides[1]
	}
	switch x := of.get(func() (*kernel.Asides, error) { return kernel.OpenAsides(lists) }); {
	case x == nil:
		return nil, sampler.ErrAsideLater
	case x.err != nil:
		return nil, fmt.Errorf("%w: %w", sampler.ErrAside, x.err)
	default:
		return x.of, nil
	}
}

// aside is what the clock of a thread copies beside the stack. The methods of nil do nothing.
type aside struct {
	all    *kernel.Asides
	tid    stack.TID
	blocks []kernel.Page
}

func openAside(tid stack.TID, x *unwind.Aside) (*aside, error) {
	all, err := asidesOf(x.List.Head.Len > 0)
	if err != nil {
		return nil, err
	}
	a := &aside{all: all, tid: tid}
	return a, a.set(x)
}

func (a *aside) set(x *unwind.Aside) error {
	if a == nil {
		return nil
	}
	return a.all.Set(a.tid, &kernel.Aside{Blocks: x.Blocks, Pointer: x.Pointer, Len: x.Len, Lo: x.Lo, Hi: x.Hi, SP: x.SP, List: x.List})
}

// take appends the blocks of a copy. If they were lost, the walk of the copy finds out.
func (a *aside) take(x *target.ClockCopy, out []unwind.Block) []unwind.Block {
	if a == nil {
		return out
	}
	a.blocks, _ = a.all.Take(a.tid, x.At, x.SP(), x.Regs.PC, a.blocks[:0])
	for _, b := range a.blocks {
		out = append(out, unwind.Block{Addr: b.Addr, Data: b.Data})
	}
	return out
}

func (a *aside) close() {
	if a != nil {
		a.all.Drop(a.tid)
	}
}
