package query

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

const ms = exporttest.Ms

func TestCalls(t *testing.T) {
	b := exporttest.New(t)
	m := b.Thread(1234, "main")
	m.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1"})
	m.Look(exporttest.Look{At: 100 * ms, State: stack.StateRunning, Stack: "main:1"})
	b.Exact(1234, "handle", "main:1", 10*ms, 15*ms, calls.Returned)
	b.Exact(1234, "handle", "main:1", 20*ms, 60*ms, calls.Left)
	b.Exact(77, "libget", "handle:2", 30*ms, 31*ms, calls.Jumped) // of a thread that was not sampled
	rec := b.Finish(100 * ms)
	for _, c := range []struct {
		o           view.Options
		query, want string
	}{
		{view.Options{}, "select tid, thread, function, ts/1000000, dur/1000000, how, caller from calls order by ts",
			"1234,0,handle,10,5,returned,main\n1234,0,handle,20,40,left,main\n77,,libget,30,1,tail call,handle\n"},
		{view.Options{}, "select module, before, unsure, task from calls where tid = 77", "/usr/lib/libwork.so.1,0,0,\n"},
		{view.Options{From: exporttest.Start + 25*ms, To: exporttest.Start + 29*ms}, "select ts/1000000 from calls", "20\n"},
		{view.Options{}, "select on_cpu + runnable + off_cpu = dur, times_exact, woken_by from calls order by ts", ",,\n1,0,\n,,\n"},
		{view.Options{}, "select count(*) from calls join threads on threads.id = calls.thread", "2\n"},
	} {
		got := strings.ReplaceAll(must(t, rec, c.o, "csv", c.query), "\r", "")
		if _, rows, _ := strings.Cut(got, "\n"); rows != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.query, rows, c.want)
		}
	}
}
