package sampler

import (
	"github.com/sliverprof/sliver/trace/event"
)

// tellTask records which of its runtime's tasks the thread runs as of the sample. It comes before
// the sample, because the frames are the task's.
func (g *group) tellTask(th *thread) {
	now, left, ok := th.walk.Task()
	if !ok {
		return
	}
	if left.ID != 0 {
		th.sink.Event(g.sample.Time, event.Parked, event.TaskOf(left))
	}
	if p := event.TaskOf(now); p != th.task {
		th.task = p
		th.sink.Event(g.sample.Time, event.Task, p)
	}
}
