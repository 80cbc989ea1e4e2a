package ptrace

import (
	"sync"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
)

// asides is the program that reads memory for all clocks. It is loaded for the first one that needs it, and remains,
// since the clock of all CPUs may be used again at any time.
var asides = sync.OnceValues(kernel.OpenAsides)

// aside is what the clock of a thread copies beside the stack. The methods of nil do nothing.
type aside struct {
	all    *kernel.Asides
	tid    stack.TID
	blocks []kernel.AsideBlock
}

func openAside(tid stack.TID, x *unwind.Aside) (*aside, error) {
	all, err := asides()
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
	return a.all.Set(a.tid, &kernel.Aside{Blocks: x.Blocks, Pointer: x.Pointer, Len: x.Len, Lo: x.Lo, Hi: x.Hi, SP: x.SP})
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
