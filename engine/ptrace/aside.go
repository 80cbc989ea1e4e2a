package ptrace

import (
	"sync"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
)

// asides are the programs that read memory for all clocks, without lists and with them. Each is loaded for the first clock
// that needs it, and remains, since the clock of all CPUs may be used again at any time.
var asides = [...]func() (*kernel.Asides, error){
	sync.OnceValues(func() (*kernel.Asides, error) { return kernel.OpenAsides(false) }),
	sync.OnceValues(func() (*kernel.Asides, error) { return kernel.OpenAsides(true) }),
}

// aside is what the clock of a thread copies beside the stack. The methods of nil do nothing.
type aside struct {
	all    *kernel.Asides
	tid    stack.TID
	blocks []kernel.Page
}

func openAside(tid stack.TID, x *unwind.Aside) (*aside, error) {
	open := asides[0]
	if x.List.Head.Len > 0 {
		open = asides[1]
	}
	all, err := open()
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
