package perfetto

import (
	"fmt"
	"testing"

	exact "github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

// TestTracedCalls: Perfetto's own reader finds each traced call once, with its exact times and arguments, as a slice
// of its thread; those of tasks and of threads that were not sampled are on tracks of their own.
func TestTracedCalls(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for at, stacks := range []string{"main:1 serve:2", "main:1 serve:2", "main:1 serve:2 handle:3", "main:1 serve:2", "main:1 serve:2", "main:1 serve:2 handle:3", "main:1 serve:2"} {
		th.Look(exporttest.Look{At: int64(at) * 10 * ms, State: stack.StateRunning, Stack: stacks})
	}
	b.Exact(1234, "libparse", "handle:3", 12*ms+1, 12*ms+7, exact.Returned)
	b.Exact(1234, "handle", "serve:2", 11*ms, 29*ms+123, exact.Returned)
	b.Exact(1234, "handle", "serve:2", 29*ms+123, 29*ms+123, exact.Jumped)
	b.Exact(1234, "libfar", "another:2", 34*ms, 35*ms, exact.Returned).Unsure = true
	b.Exact(1234, "handle", "serve:2", 44*ms, 55*ms, exact.Left)
	b.Exact(1234, "handle", "serve:2", 50*ms, 70*ms, exact.Open).Task = 0xc000
	b.Exact(99, "handle", "serve:2", 80*ms, 81*ms, exact.Returned)
	rows := exporttest.Ask(t, export(t, b.Finish(100*ms), view.Options{}),
		`select k.name track, coalesce(tid, -1) tid, s.name, s.ts - 5000000000 ts, s.dur, s.depth, extract_arg(s.arg_set_id, 'debug.ended') ended, extract_arg(s.arg_set_id, 'debug.caller') caller,
			extract_arg(s.arg_set_id, 'source.file_name') file, extract_arg(s.arg_set_id, 'debug.hits_lost') lost, extract_arg(s.arg_set_id, 'debug.caller_not_sampled') orphan
			from slice s join track k on k.id = s.track_id left join thread_track tt on tt.id = k.id left join thread t using (utid)
			where s.category = 'traced' order by s.ts, s.depth, s.dur desc`, calls+` order by ts, depth`)
	want := []string{
		"map[caller:<nil> depth:2 dur:18000123 ended:returned file:/src/handle.c lost:<nil> name:handle orphan:<nil> tid:1234 track:<nil> ts:11000000]",
		"map[caller:<nil> depth:3 dur:6 ended:returned file:/src/libparse.c lost:<nil> name:libparse orphan:<nil> tid:1234 track:<nil> ts:12000001]",
		"map[caller:<nil> depth:2 dur:0 ended:tail call file:/src/handle.c lost:<nil> name:handle orphan:<nil> tid:1234 track:<nil> ts:29000123]",
		"map[caller:<nil> depth:2 dur:1000000 ended:returned file:/src/libfar.c lost:1 name:libfar orphan:1 tid:1234 track:<nil> ts:34000000]",
		"map[caller:<nil> depth:2 dur:11000000 ended:left file:/src/handle.c lost:<nil> name:handle orphan:<nil> tid:1234 track:<nil> ts:44000000]",
		"map[caller:serve depth:0 dur:20000000 ended:open file:/src/handle.c lost:<nil> name:handle orphan:<nil> tid:1234 track:traced calls ts:50000000]",
		"map[caller:serve depth:0 dur:1000000 ended:returned file:/src/handle.c lost:<nil> name:handle orphan:<nil> tid:-1 track:traced calls of thread 99 ts:80000000]",
	}
	if len(rows[0]) != len(want) {
		t.Errorf("%d calls, want %d: %v", len(rows[0]), len(want), rows[0])
	}
	for i := range min(len(want), len(rows[0])) {
		if got := fmt.Sprint(rows[0][i]); got != want[i] {
			t.Errorf("call %d\n%s\nwant\n%s", i, got, want[i])
		}
	}
	if got := len(rows[1]); got != 2+5 { // main, serve and the calls
		t.Errorf("%d slices of the thread: %v", got, rows[1])
	}
}

// TestCrowdedCalls: calls that get no track are counted in the trace.
func TestCrowdedCalls(t *testing.T) {
	b := exporttest.New(t)
	b.Thread(1234, "main").Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1"})
	for i := range int64(300) {
		b.Exact(99, "main", "start:1", i, ms+i, exact.Returned) // each across the one before
	}
	rows := exporttest.Ask(t, export(t, b.Finish(2*ms), view.Options{}), `select name, count(*) n, count(distinct track_id) tracks from slice where category = 'traced' group by 1 order by 2`)
	if got := fmt.Sprint(rows[0]); got != "[map[n:1 name:44 traced calls are on no track: too many overlap tracks:1] map[n:256 name:main tracks:256]]" {
		t.Error(got)
	}
}
