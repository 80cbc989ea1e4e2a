package query

import (
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

// The names of a thread over time cover the recording, and a range of it.
func TestThreadNames(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	b.Thread(1234, "main").Look(exporttest.Look{State: stack.StateRunning, Stack: "main:1"})
	th := b.Thread(1235, "one")
	for at := int64(0); at <= 100; at += 10 {
		th.Look(exporttest.Look{At: at * ms, CPU: at * ms, State: stack.StateRunning, Stack: "main:1 work:2"})
	}
	th.Rename(30*ms, "two")
	th.Rename(70*ms, "one")
	rec := b.Finish(100 * ms)
	const question = "select thread, name, ts/1000000 at, dur/1000000 ms from thread_names order by thread, ts"
	if got, want := must(t, rec, view.Options{}, "csv", question), "thread,name,at,ms\n0,main,0,100\n1,one,0,30\n1,two,30,40\n1,one,70,30\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	part := view.Options{From: exporttest.Start + 50*stack.Time(ms), To: exporttest.Start + 60*stack.Time(ms)}
	if got, want := must(t, rec, part, "csv", question), "thread,name,at,ms\n0,main,50,10\n1,two,50,10\n"; got != want {
		t.Errorf("a part: got %q, want %q", got, want)
	}
}
