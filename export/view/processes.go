package view

import (
	"fmt"

	"github.com/sliverprof/sliver/trace"
)

// All returns a view of each process of rec. A process of which o selects no thread is left
// out; there is at least one view.
func All(rec *trace.Recording, o Options) (out []*View) {
	first := o
	first.Rest = nil
	for i, one := range rec.All() {
		part := first
		if i > 0 {
			part.Threads = nil
			if o.Rest != nil {
				part.Threads = []int{}
				if i <= len(o.Rest) && o.Rest[i-1] != nil {
					part.Threads = o.Rest[i-1]
				}
			}
		}
		v := New(one, part)
		if i == 0 || len(v.Threads) > 0 {
			out = append(out, v)
		}
	}
	if len(out) > 1 && len(out[0].Threads) == 0 {
		out = out[1:]
	}
	return out
}

// Process names the process of the view: its program and number.
func (v *View) Process() string {
	name := Text(v.Rec.Process.Comm, maxThreadName)
	if name == "" {
		name = "process"
	}
	return fmt.Sprintf("%s (%d)", name, v.PID())
}
