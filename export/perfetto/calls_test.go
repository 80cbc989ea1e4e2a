package perfetto

import (
	"fmt"
	"testing"

	exact "github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

// TestTracedCalls: Perfetto's own reader finds each traced call once, with its exact times and arguments, on a
// track below its thread's, nested where calls nest; and the thread's slices are as without tracing.
func TestTracedCalls(t *testing.T) {
	record := func(traced bool) string {
		b := exporttest.New(t)
		th := b.Thread(1234, "main")
		for at := int64(0); at <= 100*ms; at += 10 * ms {
			th.Look(exporttest.Look{At: at, State: stack.StateRunning, Stack: "main:1 serve:2 handle:3"})
		}
		if traced {
			b.Exact(1234, "libparse", "handle:3", 12*ms+1, 12*ms+7, exact.Returned)
			b.Exact(1234, "handle", "serve:2", 11*ms, 29*ms+123, exact.Returned)
			b.Exact(1234, "handle", "serve:2", 29*ms+123, 29*ms+123, exact.Jumped)
			b.Exact(1234, "handle", "serve:2", 40*ms, 60*ms, exact.Left)
			b.Exact(1234, "handle", "serve:2", 50*ms, 70*ms, exact.Open) // of another task
			b.Exact(99, "handle", "serve:2", 80*ms, 81*ms, exact.Returned)
		}
		return export(t, b.Finish(100*ms), view.Options{})
	}
	const sampled = calls + ` order by ts, depth`
	rows := exporttest.Ask(t, record(true),
		`select k.name track, coalesce(tid, -1) tid, s.name, s.ts - 5000000000 ts, s.dur, s.depth, extract_arg(s.arg_set_id, 'debug.ended') ended, extract_arg(s.arg_set_id, 'debug.caller') caller,
			extract_arg(s.arg_set_id, 'debug.module') module, extract_arg(s.arg_set_id, 'source.file_name') file
			from slice s join track k on k.id = s.track_id left join thread_track tt on tt.id = k.id left join thread t using (utid)
			where s.category = 'traced' order by s.ts, s.depth, s.dur desc`, sampled)
	want := []string{
		"map[caller:serve depth:0 dur:18000123 ended:returned file:/src/handle.c module:/opt/app/server name:handle tid:1234 track:traced calls ts:11000000]",
		"map[caller:handle depth:1 dur:6 ended:returned file:/src/libparse.c module:/usr/lib/libwork.so.1 name:libparse tid:1234 track:traced calls ts:12000001]",
		"map[caller:serve depth:0 dur:0 ended:tail call file:/src/handle.c module:/opt/app/server name:handle tid:1234 track:traced calls ts:29000123]",
		"map[caller:serve depth:0 dur:20000000 ended:left file:/src/handle.c module:/opt/app/server name:handle tid:1234 track:traced calls ts:40000000]",
		"map[caller:serve depth:0 dur:20000000 ended:open file:/src/handle.c module:/opt/app/server name:handle tid:1234 track:traced calls ts:50000000]",
		"map[caller:serve depth:0 dur:1000000 ended:returned file:/src/handle.c module:/opt/app/server name:handle tid:-1 track:traced calls of thread 99 ts:80000000]",
	}
	if len(rows[0]) != len(want) {
		t.Errorf("%d calls, want %d: %v", len(rows[0]), len(want), rows[0])
	}
	for i := range min(len(want), len(rows[0])) {
		if got := fmt.Sprint(rows[0][i]); got != want[i] {
			t.Errorf("call %d\n%s\nwant\n%s", i, got, want[i])
		}
	}
	without := exporttest.Ask(t, record(false), sampled)[0]
	if got := fmt.Sprint(rows[1]); got != fmt.Sprint(without) || len(without) != 3 {
		t.Errorf("slices of the thread\n%s\nwithout tracing\n%v", got, without)
	}
}

// TestCrowdedCalls: calls that get no track are counted in the trace.
func TestCrowdedCalls(t *testing.T) {
	b := exporttest.New(t)
	b.Thread(1234, "main").Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1"})
	for i := range int64(300) {
		b.Exact(1234, "main", "start:1", i, ms+i, exact.Returned) // each across the one before
	}
	rows := exporttest.Ask(t, export(t, b.Finish(2*ms), view.Options{}), `select name, count(*) n, count(distinct track_id) tracks from slice where category = 'traced' group by 1 order by 2`)
	if got := fmt.Sprint(rows[0]); got != "[map[n:1 name:44 traced calls are on no track: too many overlap tracks:1] map[n:256 name:main tracks:256]]" {
		t.Error(got)
	}
}
