package live

import (
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// MetTasks returns the tasks of asyncio, or the virtual threads of Java, that threads
// of the process were observed to run, in the form that a recording stores; nil: none.
func (t *Target) MetTasks() *trace.Tasks {
	out := &trace.Tasks{At: target.Now(), What: "asyncio"}
	for _, x := range t.space.AsyncTasks() {
		out.List = append(out.List, trace.Task{ID: x.ID, Name: x.Name, Stack: -1})
	}
	if len(out.List) == 0 {
		out.What = "virtual thread"
		for _, x := range t.space.VirtualThreads() {
			out.List = append(out.List, trace.Task{ID: x.ID, Name: x.Name, Stack: -1})
		}
	}
	if len(out.List) == 0 {
		return nil
	}
	return out
}
