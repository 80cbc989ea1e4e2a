package view

import (
	"fmt"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
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

// Span returns the time from the begin of the first to the end of the last of several views.
func Span(all []*View) (begin, end stack.Time) {
	begin, end = all[0].Begin(), all[0].End()
	for _, v := range all[1:] {
		begin, end = min(begin, v.Begin()), max(end, v.End())
	}
	return begin, end
}

// Title names the processes of several views: "make (12) and 57 other processes".
func Title(all []*View) string {
	switch n := len(all) - 1; n {
	case 0:
		return all[0].Process()
	case 1:
		return all[0].Process() + " and 1 other process"
	default:
		return fmt.Sprintf("%s and %s", all[0].Process(), plural.Of(n, "other process"))
	}
}
