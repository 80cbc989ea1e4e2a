package chrome

import (
	"fmt"
	"testing"

	exact "github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

// TestTracedCalls: a reader of the file finds each traced call once, with its time and arguments: as a call of its
// thread, or, if it has no place there, as an event of its own.
func TestTracedCalls(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for at, stacks := range []string{"main:1 serve:2", "main:1 serve:2", "main:1 serve:2 handle:3", "main:1 serve:2", "main:1 serve:2"} {
		th.Look(exporttest.Look{At: int64(at) * 10 * ms, State: stack.StateRunning, Stack: stacks})
	}
	b.Exact(1234, "libparse", "handle:3", 12*ms+1000, 12*ms+7000, exact.Returned)
	b.Exact(1234, "handle", "serve:2", 11*ms, 29*ms, exact.Left)
	b.Exact(1234, "handle", "serve:2", 20*ms, 70*ms, exact.Open).Task = 0xc000
	b.Exact(99, "handle", "serve:2", 80*ms, 81*ms, exact.Returned)
	data, _ := export(t, b.Finish(100*ms), view.Options{})
	rows := exporttest.Ask(t, exporttest.File(t, "x.json", data), `select s.name, s.ts, s.dur, s.depth, extract_arg(arg_set_id, 'args.ended') ended, extract_arg(arg_set_id, 'args.caller') caller,
		extract_arg(arg_set_id, 'args.file') file from slice s where s.category = 'traced' order by s.ts, s.depth`,
		`select s.name, ts, dur, depth, extract_arg(s.arg_set_id, 'args.ended') ended from slice s join thread_track k on s.track_id = k.id where s.category = 'call' order by ts, depth`)
	for i, want := range []string{
		"[map[caller:serve depth:0 dur:50000000 ended:open file:/src/handle.c name:handle ts:20000000] " +
			"map[caller:serve depth:0 dur:1000000 ended:returned file:/src/handle.c name:handle ts:80000000]]",
		"[map[depth:0 dur:40000000 ended:<nil> name:main ts:0] map[depth:1 dur:40000000 ended:<nil> name:serve ts:0] " +
			"map[depth:2 dur:18000000 ended:left name:handle ts:11000000] map[depth:3 dur:6000 ended:returned name:libparse ts:12001000]]",
	} {
		if got := fmt.Sprint(rows[i]); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}
