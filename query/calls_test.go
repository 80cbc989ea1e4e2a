package query

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
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

// TestCallsExact: with context switches, the times of a call are theirs, and its longest wait has its waker.
func TestCallsExact(t *testing.T) {
	b := exporttest.New(t)
	m := b.Thread(1234, "main")
	for at := int64(0); at <= 100*ms; at += 10 * ms {
		m.Look(exporttest.Look{At: at, CPU: at, State: stack.StateRunning, Stack: "main:1"})
	}
	b.Off(1234, 1*ms, 2*ms, 2*ms, trace.Waker{}, 0) // the switches are known from here on
	b.Off(1234, 12*ms, 14*ms, 19*ms, trace.Waker{}, event.ByTimer|event.ByHard)
	b.Off(1234, 30*ms, 31*ms, 31*ms, trace.Waker{TID: 77, PID: 77, Name: "other"}, 0)
	b.Off(1234, 90*ms, 91*ms, 91*ms, trace.Waker{}, 0)
	b.Exact(1234, "handle", "main:1", 10*ms, 20*ms, calls.Returned)
	b.Exact(1234, "handle", "main:1", 29*ms, 33*ms, calls.Returned)
	b.Exact(1234, "handle", "main:1", 40*ms, 40*ms+1000, calls.Returned)
	got := strings.ReplaceAll(must(t, b.Finish(100*ms), view.Options{}, "csv", "select times_exact, on_cpu, runnable, off_cpu, woken_by from calls order by ts"), "\r", "")
	const want = "1,3000000,5000000,2000000,a timer (measured)\n1,3000000,0,1000000,process other (77) (measured)\n1,1000,0,0,\n"
	if _, rows, _ := strings.Cut(got, "\n"); rows != want {
		t.Errorf("%s, want\n%s", rows, want)
	}
}
