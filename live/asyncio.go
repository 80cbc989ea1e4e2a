package live

import (
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// AsyncTasks are the tasks of asyncio that threads of the process were seen to run, as a
// recording keeps them; nil: none.
func (t *Target) AsyncTasks() *trace.Tasks {
	all := t.space.AsyncTasks()
	if len(all) == 0 {
		return nil
	}
	out := &trace.Tasks{At: target.Now(), What: "asyncio", List: make([]trace.Task, len(all))}
	for i, x := range all {
		out.List[i] = trace.Task{ID: x.ID, Name: x.Name, Stack: -1}
	}
	return out
}
