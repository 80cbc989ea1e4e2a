package query

import (
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// parent is a recording of a shell that waits for a child, and for another one at the other end of its pipe.
func parent(t *testing.T) *trace.Recording {
	t.Helper()
	const ms = exporttest.Ms
	b := exporttest.New(t)
	b.Proc.PID, b.Proc.Comm = 10, "sh"
	th := b.Thread(10, "sh")
	look := func(at, times int64, s stack.State, way stack.Way) {
		l := exporttest.Look{At: at * ms, CPU: 50 * ms, Times: uint64(times), State: s, Way: way, Stack: "main work"}
		if s == stack.StateBlocked {
			l.Call = 62
		}
		th.Look(l)
	}
	look(0, 1, stack.StateRunning, stack.WayStop)
	for i, w := range []trace.Wait{{Kind: kind.WaitChild, Call: "wait4", Args: "any child"}, {Kind: kind.WaitPipe, Call: "read", PeerPID: 12}} {
		from, times := int64(100*(i+1)), int64(2*i+2)
		look(from, times, stack.StateBlocked, stack.WayRead)
		th.Event(from*ms, event.Wait, b.Wait(w))
		look(from+50, times, stack.StateBlocked, stack.WayUnrun)
		look(from+60, times+1, stack.StateRunning, stack.WayStop)
	}
	th.End(300*ms, stack.WhyGone)
	rec := b.Finish(300 * ms)
	other := func(pid int, gone int64) *trace.Recording {
		b := exporttest.New(t)
		b.Proc.PID, b.Proc.Parent, b.Proc.Comm = pid, 10, "cc"
		b.Thread(pid, "cc").Look(exporttest.Look{State: stack.StateRunning, Stack: "main work"})
		one := b.Finish(gone * ms)
		one.End.Gone = exporttest.Start + stack.Time(gone*ms)
		return one
	}
	rec.Others = []*trace.Recording{other(11, 155), other(12, 300)}
	rec.End.Exit, rec.Others[0].End.Exit = &trace.Exit{}, &trace.Exit{Signal: "SIGKILL"}
	return rec
}

// How processes ended: with a status, by a signal, and unknown, which is not 0.
func TestExits(t *testing.T) {
	want := "pid,exit_status,exit_signal\n10,0,\n11,,SIGKILL\n12,,\n"
	if got := must(t, parent(t), view.Options{}, "csv", "select pid, exit_status, exit_signal from processes order by pid"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Waits of a process for others, with the one that ended each: a child, and the writer of a pipe.
func TestBetween(t *testing.T) {
	rec := parent(t)
	want := "kind,waits_for,p,waker,waker_by,woken_by\nchild,\"cc (11), cc (12)\",11,11,end,cc (11) ended\npipe,cc (12),12,12,peer,cc (12)\n"
	if got := must(t, rec, view.Options{}, "csv", "select kind, waits_for, p.pid p, waker, waker_by, woken_by from waits left join processes p on p.id = waker_process order by ts"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := must(t, rec, view.Options{}, "csv", "select count(*) n from states where waker_process is not null"); got != "n\n0\n" {
		t.Errorf("wakers of the kernel in a recording without its switches: %s", got)
	}
}
