package chrome

import (
	"fmt"
	"testing"

	exact "github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

// TestTracedCalls: a reader of the file finds each traced call once, with its time and arguments, and the thread's
// calls are as without tracing.
func TestTracedCalls(t *testing.T) {
	const ms = exporttest.Ms
	record := func(traced bool) string {
		b := exporttest.New(t)
		th := b.Thread(1234, "main")
		for at := int64(0); at <= 100*ms; at += 10 * ms {
			th.Look(exporttest.Look{At: at, State: stack.StateRunning, Stack: "main:1 serve:2 handle:3"})
		}
		if traced {
			b.Exact(1234, "libparse", "handle:3", 12*ms+1000, 12*ms+7000, exact.Returned)
			b.Exact(1234, "handle", "serve:2", 11*ms, 29*ms, exact.Left)
			b.Exact(1234, "handle", "serve:2", 20*ms, 70*ms, exact.Open) // of another task
			b.Exact(99, "handle", "serve:2", 80*ms, 81*ms, exact.Returned)
		}
		data, _ := export(t, b.Finish(100*ms), view.Options{})
		return exporttest.File(t, "x.json", data)
	}
	rows := exporttest.Ask(t, record(true), `select s.name, s.ts, s.dur, s.depth, extract_arg(arg_set_id, 'args.ended') ended, extract_arg(arg_set_id, 'args.caller') caller,
		extract_arg(arg_set_id, 'args.file') file from slice s where s.category = 'traced' order by s.ts, s.depth`, calls+` order by ts, depth`)
	want := []string{
		"map[caller:serve depth:0 dur:18000000 ended:left file:/src/handle.c name:handle ts:11000000]",
		"map[caller:handle depth:1 dur:6000 ended:returned file:/src/libparse.c name:libparse ts:12001000]",
		"map[caller:serve depth:0 dur:50000000 ended:open file:/src/handle.c name:handle ts:20000000]",
		"map[caller:serve depth:0 dur:1000000 ended:returned file:/src/handle.c name:handle ts:80000000]",
	}
	if len(rows[0]) != len(want) {
		t.Errorf("%d calls, want %d: %v", len(rows[0]), len(want), rows[0])
	}
	for i := range min(len(want), len(rows[0])) {
		if got := fmt.Sprint(rows[0][i]); got != want[i] {
			t.Errorf("call %d\n%s\nwant\n%s", i, got, want[i])
		}
	}
	if without := exporttest.Ask(t, record(false), calls+` order by ts, depth`)[0]; fmt.Sprint(rows[1]) != fmt.Sprint(without) || len(without) != 3 {
		t.Errorf("calls of the thread\n%v\nwithout tracing\n%v", rows[1], without)
	}
}
