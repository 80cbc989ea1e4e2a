package report_test

import (
	"testing"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// A goroutine waits in a system call where the stack of its thread shows it, not where a scan found another call.
func TestTaskWaitsInCalls(t *testing.T) {
	b := exporttest.New(t)
	x := b.Thread(11, "x")
	look := func(at, cpu int64, s stack.State, st string) {
		task, call := stack.Task{ID: 7, State: stack.TaskCall}, int32(36)
		if s == stack.StateRunning {
			task.State, call = stack.TaskRunning, 0
		}
		x.Event(at*ms, event.Task, event.TaskOf(task))
		x.Look(exporttest.Look{At: at * ms, CPU: cpu * ms, Times: uint64(cpu), State: s, Call: call, Way: stack.WayRead, Stack: st})
	}
	look(0, 1, stack.StateRunning, "runtime.goexit:1 main.work:1")
	look(10, 10, stack.StateBlocked, "runtime.goexit:1 main.work:2 c_sleep:3 clock_nanosleep:1")
	look(40, 10, stack.StateBlocked, "runtime.goexit:1 main.work:2 c_sleep:3 clock_nanosleep:1")
	look(50, 11, stack.StateBlocked, "runtime.goexit:1 main.work:4 c_read:3 __read:1")
	look(60, 11, stack.StateRunning, "runtime.goexit:1 main.work:5")
	rec := b.Finish(100 * ms)
	rec.Tasks = []trace.Tasks{{At: exporttest.Start + stack.Time(5*ms), What: "goroutine", Reasons: []string{""},
		List: []trace.Task{{ID: 7, State: stack.TaskCall, TID: 11, Stack: -1}}}}
	got := map[string]int64{}
	for _, w := range report.Of(rec, view.Options{}, 0).Tasks.Waits {
		if w.For != view.SystemCall || w.Line != 3 || w.Waits != 1 {
			t.Errorf("%+v", w)
		}
		got[w.Func] += w.Total
	}
	if len(got) != 2 || got["c_sleep"] < 35*ms || got["c_sleep"] > 40*ms || got["c_read"] < 5*ms || got["c_read"] > 10*ms {
		t.Errorf("%v", got)
	}
}
