package query

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// TestTasks queries the threads of a goroutine that moved from one thread to another.
func TestTasks(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	look := func(th *exporttest.Thread, at int64, id uint64) {
		th.Event(at, event.Task, event.TaskOf(stack.Task{ID: id, State: stack.TaskRunning}))
		th.Look(exporttest.Look{At: at, State: stack.StateRunning, Stack: "main:1"})
	}
	x, y := b.Thread(11, "x"), b.Thread(12, "y")
	look(x, 0, 7)
	x.Event(20*ms, event.Parked, event.TaskOf(stack.Task{ID: 7, State: stack.TaskWaiting, Reason: 1}))
	look(x, 20*ms, 0)
	look(y, 0, 0)
	look(y, 30*ms, 7)
	look(y, 50*ms, 0)
	rec := b.Finish(60 * ms)
	rec.Tasks = []trace.Tasks{{At: exporttest.Start, What: "goroutine", Reasons: []string{"", "chan receive"}}}
	const question = "select thread, (ts)/1000000, dur/1000000, state, reason from task_spans s join tasks t on t.id = s.task where t.id = 7 order by ts"
	d, err := Open(context.Background(), rec, view.Options{}, question)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rows, err := d.Rows(context.Background(), question)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	type row struct {
		thread        any
		ts, dur       int64
		state, reason any
	}
	var got []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.thread, &r.ts, &r.dur, &r.state, &r.reason); err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	want := []row{{int64(0), 0, 20, "running", nil}, {nil, 20, 10, "waiting", "chan receive"}, {int64(1), 30, 20, "running", nil}}
	if rows.Err() != nil || len(got) < 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%+v, want %+v (%v)", got, want, rows.Err())
	}
}

// TestTasksGone: a goroutine that a later scan of all goroutines does not find has ended at
// that scan, not at the end of the recording. If the scan skipped some, the goroutine may be
// one of them.
func TestTasksGone(t *testing.T) {
	const ms = exporttest.Ms
	at := func(n int64) stack.Time { return exporttest.Start + stack.Time(n*ms) }
	for _, c := range []struct {
		name  string
		looks []trace.Tasks
		to    stack.Time
		want  int64
	}{
		{"no look", nil, 0, 40},
		{"gone", []trace.Tasks{{At: at(58), Took: ms}}, 0, 0},
		{"there", []trace.Tasks{{At: at(58), Took: ms, List: []trace.Task{{ID: 7, State: stack.TaskWaiting, Reason: 1, Stack: -1}}}}, 0, 38},
		{"left out", []trace.Tasks{{At: at(58), Took: ms, Lost: 1}}, 0, 40},
		{"a look that had begun before", []trace.Tasks{{At: at(22), Took: 3 * ms}}, 0, 40},
		{"asyncio", []trace.Tasks{{At: at(58), What: "asyncio"}}, 0, 40},
		{"gone, in a part", []trace.Tasks{{At: at(58), Took: ms}}, at(40), 0},
		{"there after a part", []trace.Tasks{{At: at(58), Took: ms, List: []trace.Task{{ID: 7, Stack: -1}}}}, at(40), 20},
	} {
		b := exporttest.New(t)
		x := b.Thread(11, "x")
		look := func(at int64, id uint64) {
			x.Event(at, event.Task, event.TaskOf(stack.Task{ID: id, State: stack.TaskRunning}))
			x.Look(exporttest.Look{At: at, State: stack.StateRunning, Stack: "main:1"})
		}
		look(0, 7)
		x.Event(20*ms, event.Parked, event.TaskOf(stack.Task{ID: 7, State: stack.TaskWaiting, Reason: 1}))
		look(20*ms, 8)
		x.Look(exporttest.Look{At: 60 * ms, State: stack.StateRunning, Stack: "main:1"})
		rec := b.Finish(60 * ms)
		rec.Tasks = append([]trace.Tasks{{At: exporttest.Start - 1, Reasons: []string{"", "IO wait"}}}, c.looks...)
		for i := range rec.Tasks {
			rec.Tasks[i].What = cmp.Or(rec.Tasks[i].What, "goroutine")
		}
		got := int64(0)
		for _, k := range view.New(rec, view.Options{To: c.to}).Tasks().List {
			for _, s := range k.Spans {
				if k.ID == 7 && s.State == stack.TaskWaiting {
					got += int64(s.To-s.From) / ms
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: it waits for %d ms, want %d", c.name, got, c.want)
		}
	}
}

// TestTaskNames: goroutines that no scan has found are named after their entry function, also
// when one directly follows another. A goroutine at its very end has already left that
// function.
func TestTaskNames(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	x := b.Thread(11, "x")
	for i, look := range []struct {
		id    uint64
		stack string
	}{{7, "runtime.goexit:1 worker:1 step:2"}, {7, "runtime.goexit:1 worker:2"}, {8, "runtime.goexit:1 other:3 step:2"}, {0, "runtime.mstart:1 schedule:1"},
		{9, "runtime.mstart:1 schedule:1"}, {9, "runtime.goexit:1 late:1"}, {10, "runtime.mstart:1 runtime.mcall:1"}, {0, "runtime.mstart:1"},
		{11, "runtime.goexit:1 runtime.goexit1:1"}, {0, "runtime.mstart:1"}} {
		at := int64(i) * 10 * ms
		x.Event(at, event.Task, event.TaskOf(stack.Task{ID: look.id, State: stack.TaskRunning}))
		x.Look(exporttest.Look{At: at, State: stack.StateRunning, Stack: look.stack})
	}
	rec := b.Finish(100 * ms)
	rec.Tasks = []trace.Tasks{{At: exporttest.Start, What: "goroutine"}}
	tasks := view.New(rec, view.Options{}).Tasks()
	got := map[uint64]string{}
	for _, x := range tasks.List {
		got[x.ID] = x.Func
	}
	if want := map[uint64]string{7: "worker", 8: "other", 9: "late", 10: "", 11: ""}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestTaskNamesOfPart: a view of a part names its tasks by scans outside of the part, and lists no other tasks.
func TestTaskNamesOfPart(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	x := b.Thread(11, "x")
	for at := int64(0); at < 100*ms; at += 10 * ms {
		x.Event(at, event.Task, event.TaskOf(stack.Task{ID: 1 + uint64(at/(50*ms)), State: stack.TaskRunning}))
		x.Look(exporttest.Look{At: at, State: stack.StateRunning, Stack: "run:1"})
	}
	rec := b.Finish(100 * ms)
	scan := func(at int64, list ...trace.Task) {
		rec.Tasks = append(rec.Tasks, trace.Tasks{At: exporttest.Start + stack.Time(at), What: "asyncio", List: list})
	}
	scan(5*ms, trace.Task{ID: 1, State: stack.TaskRunning, Name: "poller", Stack: -1})
	scan(95*ms, trace.Task{ID: 2, State: stack.TaskRunning, Name: "writer", Parent: 1, Stack: -1})
	type named struct {
		id, parent uint64
		label, fn  string
	}
	for _, c := range []struct {
		from, to int64
		want     []named
	}{
		{0, 100, []named{{1, 0, "asyncio task 1 poller", "poller"}, {2, 1, "asyncio task 2 writer", "writer"}}},
		{20, 45, []named{{1, 0, "asyncio task 1 poller", "poller"}}},
		{55, 80, []named{{2, 1, "asyncio task 2 writer", "writer"}}},
	} {
		o := view.Options{From: exporttest.Start + stack.Time(c.from*ms), To: exporttest.Start + stack.Time(c.to*ms)}
		var got []named
		for _, k := range view.New(rec, o).Tasks().List {
			got = append(got, named{k.ID, k.Parent, k.Label, k.Func})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("from %d to %d ms: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

// TestTaskWords: asyncio tasks are named as tasks.
func TestTaskWords(t *testing.T) {
	b := exporttest.New(t)
	x := b.Thread(11, "x")
	x.Event(0, event.Task, event.TaskOf(stack.Task{ID: 1, State: stack.TaskRunning}))
	x.Look(exporttest.Look{State: stack.StateRunning, Stack: "run:1"})
	x.Look(exporttest.Look{At: 5 * exporttest.Ms, State: stack.StateRunning, Stack: "run:1"})
	rec := b.Finish(10 * exporttest.Ms)
	rec.Tasks = []trace.Tasks{{At: exporttest.Start, What: "asyncio", List: []trace.Task{{ID: 1, State: stack.TaskRunning, Name: "poller", Stack: -1}}}}
	tasks := view.New(rec, view.Options{}).Tasks()
	if tasks.What != "asyncio task" || len(tasks.List) != 1 || tasks.List[0].Label != "asyncio task 1 poller" {
		t.Errorf("%+v", tasks)
	}
}

// TestTasksInCalls: a goroutine waits while its thread is blocked in a system call: one that began during the recording,
// which samples of the thread show, and one that lasts from before its beginning to its end, which only looks at all goroutines do.
func TestTasksInCalls(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	x := b.Thread(11, "x")
	look := func(at int64, task stack.TaskState, state stack.State) {
		x.Event(at, event.Task, event.TaskOf(stack.Task{ID: 7, State: task}))
		x.Look(exporttest.Look{At: at, State: state, Stack: "main:1"})
	}
	look(0, stack.TaskRunning, stack.StateRunning)
	look(10*ms, stack.TaskCall, stack.StateRunning) // works in the kernel
	look(20*ms, stack.TaskCall, stack.StateBlocked)
	look(50*ms, stack.TaskRunning, stack.StateRunning)
	look(60*ms, stack.TaskRunning, stack.StateRunning)
	y := b.Thread(12, "y")
	y.Look(exporttest.Look{At: 0, State: stack.StateBlocked, Stack: "main:1"})
	y.Look(exporttest.Look{At: 60 * ms, State: stack.StateBlocked, Stack: "main:1"})
	rec := b.Finish(60 * ms)
	for _, at := range []int64{0, 60} {
		rec.Tasks = append(rec.Tasks, trace.Tasks{At: exporttest.Start + stack.Time(at*ms), What: "goroutine", Reasons: []string{""}, List: []trace.Task{
			{ID: 8, State: stack.TaskCall, TID: 12, Stack: -1}, {ID: 9, State: stack.TaskCall, TID: 99, Stack: -1}}})
	}
	type span struct {
		task     uint64
		from, to int64
		thread   int
		state    stack.TaskState
		waits    bool
	}
	var got []span
	ran := map[uint64]int64{}
	for _, k := range view.New(rec, view.Options{}).Tasks().List {
		ran[k.ID] = k.Ran / ms
		for _, s := range k.Spans {
			got = append(got, span{k.ID, int64(s.From-exporttest.Start) / ms, int64(s.To-exporttest.Start) / ms, s.Thread, s.State, s.Waits()})
		}
	}
	want := []span{{7, 0, 20, 0, stack.TaskCall, false}, {7, 20, 50, 0, stack.TaskCall, true}, {7, 50, 60, 0, stack.TaskRunning, false},
		{8, 0, 60, 1, stack.TaskCall, true}, {9, 0, 60, -1, stack.TaskCall, true}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if ran[7] != 30 || ran[8] != 0 || ran[9] != 0 {
		t.Errorf("on threads for %v ms", ran)
	}
}
