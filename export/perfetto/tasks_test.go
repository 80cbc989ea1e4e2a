package perfetto

import (
	"reflect"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// TestTasks: a goroutine that alternates between two threads has one track, with its
// calls on both and its waits in between.
func TestTasks(t *testing.T) {
	b := exporttest.New(t)
	on := func(th *exporttest.Thread, at int64, id uint64) {
		th.Event(at, event.Task, event.TaskOf(stack.Task{ID: id, State: stack.TaskRunning}))
	}
	look := func(th *exporttest.Thread, at int64, frames string) {
		th.Look(exporttest.Look{At: at, CPU: at, State: stack.StateRunning, Stack: frames})
	}
	x, y := b.Thread(11, "x"), b.Thread(12, "y")
	on(x, 0, 7)
	look(x, 0, "start7:1 work:2 spin:3")
	look(x, 10*ms, "start7:1 work:2")
	x.Event(20*ms, event.Parked, event.TaskOf(stack.Task{ID: 7, State: stack.TaskWaiting, Reason: 1}))
	on(x, 20*ms, 8)
	look(x, 20*ms, "start8:1 other:2")
	look(x, 50*ms, "start8:1 other:2")
	on(y, 0, 0)
	look(y, 0, "idle:1")
	on(y, 30*ms, 7)
	look(y, 30*ms, "start7b:1 work:4")
	look(y, 50*ms, "start7b:1 work:4")
	rec := b.Finish(60 * ms)
	rec.Tasks = []trace.Tasks{{At: exporttest.Start + 5*ms, What: "goroutine", Reasons: []string{"", "chan receive"}, List: []trace.Task{
		{ID: 7, State: stack.TaskRunning, Name: "work", Stack: -1}, {ID: 9, Parent: 7, State: stack.TaskWaiting, Reason: 1, Name: "sleeper", Stack: -1}}},
		{At: exporttest.Start + 55*ms, What: "goroutine", Reasons: []string{"", "chan receive"}, List: []trace.Task{
			{ID: 9, Parent: 7, State: stack.TaskWaiting, Reason: 1, Name: "sleeper", Stack: -1}}}}
	rows := exporttest.Ask(t, export(t, rec, view.Options{}), `select k.name track, s.name name, s.ts ts, s.dur dur, s.depth depth from slice s join track k on s.track_id = k.id
		join track g on k.parent_id = g.id where g.name = 'goroutines' order by k.name, s.ts, s.depth`)[0]
	type slice struct {
		track, name      string
		from, dur, depth int64
	}
	var got []slice
	for _, r := range rows {
		got = append(got, slice{r.Text("track"), r.Text("name"), (r.Int("ts") - int64(exporttest.Start)) / ms, (r.Int("dur") + 1) / ms, r.Int("depth")})
	}
	want := []slice{
		{"goroutine 7 work", "start7", 0, 20, 0}, {"goroutine 7 work", "work", 0, 20, 1}, {"goroutine 7 work", "spin", 0, 10, 2},
		{"goroutine 7 work", "waiting: chan receive", 20, 10, 0},
		{"goroutine 7 work", "start7b", 30, 20, 0}, {"goroutine 7 work", "work", 30, 20, 1},
		{"goroutine 8", "start8", 20, 30, 0}, {"goroutine 8", "other", 20, 30, 1},
		{"goroutine 9 sleeper", "waiting: chan receive", 5, 50, 0},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
