package web_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/query"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
)

type tasks struct {
	What    string
	Count   int
	Idle    int
	Made    int
	From    int
	Reasons []string
	List    []task
}

type task struct {
	ID, Parent         uint64
	Func               string
	Ran, Ready, Waited int64
	Spans              [][7]float64
}

type taskInfo struct {
	task
	Row  int
	Span *struct {
		Start, End    float64
		Value         uint32
		State, Reason string
		Thread        int
	}
	Seen    float64
	Stack   []struct{ Name string }
	Reasons []struct {
		Reason         string
		Total, Longest int64
		Count          int
		At             float64
	}
	Prev, Next float64
}

// spanRow is a row of SQL's table task_spans.
type spanRow struct {
	ts, dur, thread int64
	state, reason   string
}

// sqlSpans returns the spans of all tasks, by task.
func sqlSpans(t *testing.T, rec *trace.Recording) map[uint64][]spanRow {
	t.Helper()
	const question = "select task, ts, dur, ifnull(thread, -1), state, ifnull(reason, '') from task_spans order by task, ts"
	d, err := query.Open(context.Background(), rec, view.Options{}, question)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rows, err := d.Rows(context.Background(), question)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[uint64][]spanRow{}
	for rows.Next() {
		var id uint64
		var r spanRow
		if err := rows.Scan(&id, &r.ts, &r.dur, &r.thread, &r.state, &r.reason); err != nil {
			t.Fatal(err)
		}
		out[id] = append(out[id], r)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return out
}

// TestTasksAreThoseOfSQL compares the tracks of tasks with the table task_spans: every span, and the sums
// by which the tracks are ordered.
func TestTasksAreThoseOfSQL(t *testing.T) {
	rec := recording(t, synth.Options{Seed: 3, Threads: 4, Interval: 1_000_000, Samples: 1500, Tasks: 40})
	want := sqlSpans(t, rec)
	s := serve(t, web.Options{Source: web.NewRecording(rec)})
	loaded(t, s)
	c := dial(t, s)
	ask := func(q client.Query) (out tasks) {
		t.Helper()
		q.Op = "tasks"
		if err := c.Ask(t.Context(), q, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	all := ask(client.Query{Max: 256})
	if all.What != "goroutine" || all.Count != len(all.List) || all.Idle != 3 || all.Count+all.Idle != len(want) || all.Count < 30 {
		t.Fatalf("%q: %d tasks in %d rows and %d idle ones, want %d", all.What, all.Count, len(all.List), all.Idle, len(want))
	}
	waiting := int64(0)
	for i, x := range all.List {
		one := ask(client.Query{From: i, Max: 1})
		if len(one.List) != 1 || one.From != i || one.List[0].ID != x.ID {
			t.Fatalf("row %d is %+v, want task %d", i, one.List, x.ID)
		}
		var got []spanRow
		for _, p := range one.List[0].Spans {
			r := spanRow{ts: int64(p[0]), dur: int64(p[1] - p[0]), thread: int64(p[4])}
			switch value := uint32(p[3]); {
			case stack.State(value) == stack.StateRunning:
				r.state = "running"
			case stack.State(value) == stack.StateRunnable:
				r.state = "runnable"
			case stack.State(value) == stack.StateBlocked && value>>24 != 0:
				r.state = "waiting"
			}
			if p[5] >= 0 {
				r.reason = one.Reasons[int(p[5])]
			}
			if p[2] != p[1]-p[0] || p[6] != 1 {
				t.Errorf("task %d: a span that is not merged is %v", x.ID, p)
			}
			got = append(got, r)
		}
		if !slices.Equal(got, want[x.ID]) {
			t.Fatalf("task %d has spans\n%+v, SQL says\n%+v", x.ID, got, want[x.ID])
		}
		ran, ready, waited := int64(0), int64(0), int64(0)
		for _, r := range want[x.ID] {
			switch {
			case r.thread >= 0:
				ran += r.dur
			case r.state == "runnable":
				ready += r.dur
			default:
				waited += r.dur
			}
		}
		waiting += waited
		if x.Ran != ran || x.Ready != ready || x.Waited != waited {
			t.Errorf("task %d ran for %d, was ready for %d and waited for %d ns, SQL says %d, %d and %d", x.ID, x.Ran, x.Ready, x.Waited, ran, ready, waited)
		}
		if i > 0 && x.Ran > all.List[i-1].Ran {
			t.Errorf("task %d, which ran for %d ns, follows one with %d", x.ID, x.Ran, all.List[i-1].Ran)
		}
	}
	if all.List[0].Ran == 0 || waiting == 0 {
		t.Error("no task ran, or none waited")
	}
	by := ask(client.Query{Max: 256, Mode: "wait"})
	if !slices.IsSortedFunc(by.List, func(a, b task) int { return int(min(max(b.Waited-a.Waited, -1), 1)) }) || by.List[0].Waited == 0 {
		t.Error("the tasks are not in the order of their waits")
	}
}

// TestTasksMerged checks that merged spans keep their number, their sum and the longest one's state, and
// that a range cuts nothing else off.
func TestTasksMerged(t *testing.T) {
	rec := recording(t, synth.Options{Seed: 4, Threads: 2, Interval: 100_000, Samples: 4000, Tasks: 12})
	want := sqlSpans(t, rec)
	s := serve(t, web.Options{Source: web.NewRecording(rec)})
	loaded(t, s)
	c := dial(t, s)
	merged := 0
	for _, bin := range []float64{1e6, 5e6, 1e9} {
		var got tasks
		if err := c.Ask(t.Context(), client.Query{Op: "tasks", Bin: bin}, &got); err != nil {
			t.Fatal(err)
		}
		for _, x := range got.List {
			n, busy, sum := 0.0, 0.0, int64(0)
			for i, p := range x.Spans {
				n, busy = n+p[6], busy+p[2]
				if p[6] > 1 {
					merged++
				}
				if p[1] < p[0] || i > 0 && p[0] < x.Spans[i-1][1] {
					t.Fatalf("task %d: span %v follows %v", x.ID, p, x.Spans[max(i-1, 0)])
				}
			}
			for _, r := range want[x.ID] {
				sum += r.dur
			}
			if int(n) != len(want[x.ID]) || int64(busy) != sum {
				t.Errorf("bin %g: task %d has %g spans with %g ns, want %d with %d", bin, x.ID, n, busy, len(want[x.ID]), sum)
			}
		}
	}
	if merged == 0 {
		t.Error("nothing was merged")
	}
	var part tasks
	if err := c.Ask(t.Context(), client.Query{Op: "tasks", T0: 100e6, T1: 200e6, Bin: 1}, &part); err != nil {
		t.Fatal(err)
	}
	for _, x := range part.List {
		n := 0
		for _, r := range want[x.ID] {
			if float64(r.ts+r.dur) > 100e6 && float64(r.ts) < 200e6 {
				n++
			}
		}
		got := 0
		for _, p := range x.Spans {
			got += int(p[6])
		}
		if got != n {
			t.Errorf("task %d has %d spans from 100 to 200 ms, want %d", x.ID, got, n)
		}
	}
}

// TestTask asks for a task at the beginning of each of its spans, and where it waits.
func TestTask(t *testing.T) {
	rec := recording(t, synth.Options{Seed: 3, Threads: 4, Interval: 1_000_000, Samples: 1500, Tasks: 40})
	want := sqlSpans(t, rec)
	s := serve(t, web.Options{Source: web.NewRecording(rec)})
	loaded(t, s)
	c := dial(t, s)
	found := 0
	for _, id := range []uint64{4, 5, 7, 12} {
		for i, r := range want[id] {
			var x taskInfo
			if err := c.Ask(t.Context(), client.Query{Op: "task", Task: id, At: float64(r.ts)}, &x); err != nil {
				t.Fatal(err)
			}
			if x.Span == nil || int64(x.Span.Start) != r.ts || int64(x.Span.End) != r.ts+r.dur || x.Span.State != r.state || x.Span.Reason != r.reason || int64(x.Span.Thread) != r.thread {
				t.Fatalf("task %d at %d: %+v, want %+v", id, r.ts, x.Span, r)
			}
			var row tasks
			if err := c.Ask(t.Context(), client.Query{Op: "tasks", From: x.Row, Max: 1}, &row); err != nil || row.List[0].ID != id {
				t.Fatalf("task %d says that its row is %d, there is %+v (%v)", id, x.Row, row.List, err)
			}
			prev, next := -1.0, -1.0
			if i > 0 {
				prev = float64(want[id][i-1].ts)
			}
			if i+1 < len(want[id]) {
				next = float64(want[id][i+1].ts)
			}
			if x.Prev != prev || x.Next != next {
				t.Errorf("task %d at %d: neighbors %g and %g, want %g and %g", id, r.ts, x.Prev, x.Next, prev, next)
			}
			if len(x.Stack) > 0 {
				found++
				// The last frame is the entry function.
				if r.state != "waiting" || x.Stack[0].Name != "__lll_lock_wait" || x.Stack[len(x.Stack)-1].Name != x.Func {
					t.Errorf("task %d of %s, %s: stack %v", id, x.Func, r.state, x.Stack)
				}
			}
			sum := int64(0)
			for _, w := range x.Reasons {
				sum += w.Total
			}
			if sum != x.Waited {
				t.Errorf("task %d waited for %d ns, its reasons for %d", id, x.Waited, sum)
			}
		}
	}
	if found == 0 {
		t.Error("no span has the stack of a wait")
	}
	var x taskInfo
	if err := c.Ask(t.Context(), client.Query{Op: "task", Task: 1 << 40}, &x); err == nil {
		t.Error("a task that does not exist was found")
	}
	if err := c.Ask(t.Context(), client.Query{Op: "task", Task: 1}, &x); err == nil {
		t.Error("a task of the runtime was found")
	}
}

// TestNoTasks asks a recording without tasks for them.
func TestNoTasks(t *testing.T) {
	s := serve(t, web.Options{})
	loaded(t, s)
	var got tasks
	if err := dial(t, s).Ask(t.Context(), client.Query{Op: "tasks"}, &got); err != nil || got.What != "" || got.Count != 0 || len(got.List) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestTasksOfMany pages through 10,000 tasks.
func TestTasksOfMany(t *testing.T) {
	const n = 10_000
	s := serve(t, web.Options{Source: web.NewRecording(recording(t, synth.Options{Seed: 1, Threads: 8, Interval: 1_000_000, Samples: 2000, Tasks: n}))})
	loaded(t, s)
	c := dial(t, s)
	seen := map[uint64]bool{}
	for from := 0; from < n; from += 256 {
		var got tasks
		if err := c.Ask(t.Context(), client.Query{Op: "tasks", From: from, Max: 256, Bin: 1e6}, &got); err != nil {
			t.Fatal(err)
		}
		if got.Count != n-3 || got.From != from || len(got.List) != min(256, n-3-from) {
			t.Fatalf("from row %d: %d rows from %d, of %d tasks", from, len(got.List), got.From, got.Count)
		}
		for _, x := range got.List {
			if seen[x.ID] {
				t.Fatal(fmt.Sprint("task ", x.ID, " has two rows"))
			}
			seen[x.ID] = true
		}
	}
}
