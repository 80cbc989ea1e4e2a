package live

import (
	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// MetTasks returns the tasks that threads of the process were observed to run (asyncio, virtual threads of
// Java), in the form that a recording stores; nil: none.
func (t *Target) MetTasks() (out *trace.Tasks) {
	t.runtimes(func(rt lang.Runtime) bool {
		what, tasks := rt.Tasks()
		if len(tasks) == 0 {
			return false
		}
		out = &trace.Tasks{At: target.Now(), What: what}
		for _, x := range tasks {
			out.List = append(out.List, trace.Task{ID: x.ID, Name: x.Name, Stack: -1})
		}
		return false // see languages
	})
	return out
}
