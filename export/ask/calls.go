package ask

import (
	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
)

// calls writes the traced calls.
func (f *filler) calls() {
	if !f.asked("calls") || f.v.Rec.Traced == nil {
		return
	}
	callers := map[uint64]any{}
	f.v.Calls(func(c *view.Call) bool {
		var thread any
		if c.Thread >= 0 {
			thread = f.thread(f.v.Threads[c.Thread].Seq)
		}
		caller, ok := callers[c.Ret]
		if !ok && c.Ret != 0 {
			l := f.v.Names.Resolve(event.WordOf(&stack.Frame{PC: c.Ret}), c.Enter)
			caller = f.v.FuncName(l.Frames[0].Func)
			if len(callers) < maxCallers {
				callers[c.Ret] = caller
			}
		}
		x := f.v.Rec.Traced.Functions[c.Fn]
		f.row("calls", int64(c.TID), thread, f.v.TracedName(c.Fn), orNull(x.Module), f.ts(c.Enter), c.Duration(), c.How.String(), c.Before, c.Unsure,
			caller, zeroNull(int64(c.Task)), f.process)
		return f.err == nil
	})
}

// maxCallers bounds the return addresses whose names are kept.
const maxCallers = 1 << 16
