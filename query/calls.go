package query

import (
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// exact says how the traced call of a slice ended; NULL: it is sampled.
func exact(x *trace.Exact) any {
	if x == nil {
		return nil
	}
	return x.How.String()
}

// calls writes the traced calls.
func (f *filler) calls() {
	if !f.asked("calls") || f.v.Rec.Traced == nil {
		return
	}
	callerOf, timer := f.v.Callers(), f.v.CallTimer()
	f.v.Calls(func(c *view.Call) bool {
		var thread any
		if c.Thread >= 0 {
			thread = f.thread(f.v.Threads[c.Thread].Seq)
		}
		var cpu, delay, off, exact, woken any
		if t, ok := timer.Of(c); ok {
			cpu, delay, off, exact, woken = t.CPU, t.Delay, t.Off, t.Exact, orNull(f.v.Woken(t.Woken))
		}
		x := f.v.Rec.Traced.Functions[c.Fn]
		f.row("calls", int64(c.TID), thread, f.v.TracedName(c.Fn), orNull(x.Module), f.ts(c.Enter), c.Duration(), c.How.String(), c.Before, c.Unsure,
			cpu, delay, off, exact, woken, orNull(callerOf(c)), zeroNull(int64(c.Task)), f.process)
		return f.err == nil
	})
}
