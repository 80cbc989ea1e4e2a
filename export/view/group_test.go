package view_test

import (
	"testing"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// Waits are for one object by its name, whatever the call's other arguments.
func TestForNamesTheObject(t *testing.T) {
	for _, c := range []struct {
		w    trace.Wait
		want view.For
	}{
		{trace.Wait{Kind: kind.WaitIPC, Call: "semtimedop", Args: "semaphore set 7, 100ms", File: "semaphore set 7"}, view.For{Group: kind.GroupIPC, What: "semaphore set 7"}},
		{trace.Wait{Kind: kind.WaitSleep, Call: "nanosleep", Args: "100ms"}, view.For{Group: kind.GroupSleep}},
	} {
		b := exporttest.New(t)
		th := b.Thread(1, "main")
		th.Look(exporttest.Look{State: stack.StateBlocked, Call: 1, Stack: "main"})
		id := b.Wait(c.w)
		th.Event(0, event.Wait, id)
		v := view.New(b.Finish(exporttest.Ms), view.Options{})
		var w diff.Waiting
		w.Apply(event.Make(1, event.State, event.StateOf(stack.StateBlocked, 0)))
		w.Apply(event.Make(1, event.Wait, id))
		if got := v.For(&w, false); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.w, got, c.want)
		}
	}
}
