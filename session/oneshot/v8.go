package oneshot

import (
	"fmt"

	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/unwind/managed"
)

// javascript adds the process's functions of JavaScript to its stacks, if it has V8.
func (v *view) javascript() {
	table := managed.NewTable(managed.JS, nil)
	rt, err := v.t.FollowV8(table)
	if err != nil {
		v.lacks = append(v.lacks, fmt.Sprintf("process %d: %v", v.p.PID(), err))
	}
	if rt != nil {
		v.names.js = table
		v.js = rt
	}
}

// doubts returns the reasons why functions of JavaScript are missing on the sampled stacks.
func (v *view) doubts() (out []string) {
	if v.js != nil {
		if err := v.js.Problem(); err != nil {
			out = append(out, fmt.Sprintf("process %d: %v", v.p.PID(), err))
		}
	}
	return out
}

// script returns a frame of JavaScript; ok is false if it is not one.
func (n *names) script(in *stack.Frame, f stacks.Frame) (out stacks.Frame, ok bool) {
	if in.Kind != stack.KindJS || n.js == nil {
		return f, false
	}
	if fn := n.js.Find(in.PC); fn != nil {
		s := naming.ManagedFrame(fn, in.PC)
		f.Func, f.NoOffset, f.File, f.Line = s.Func, true, s.File, s.Line
	}
	return f, true
}
