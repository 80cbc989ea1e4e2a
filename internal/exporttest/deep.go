package exporttest

import (
	"fmt"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// DeepStep is how long each stack of Deep lasts, in ns.
const DeepStep = 1000

// Deep returns a recording of a thread that nests calls, main first, until it is depth calls
// deep, with time spent at each depth. Its whole stacks have depth*(depth+1)/2 frames. The
// function at depth i, from 1, is main or DeepName(i).
func Deep(tb testing.TB, depth int) *trace.Recording {
	tb.Helper()
	b := New(tb)
	th := b.Thread(1234, "main")
	th.Look(Look{State: stack.StateRunning, Stack: "main"})
	for i := 2; i <= depth; i++ {
		f := b.frame(DeepName(i), i, false)
		th.Raw(event.Make(Start+stack.Time((i-1)*DeepStep), event.Enter, uint64(event.WordOf(&f))))
	}
	return b.Finish(int64(depth * DeepStep))
}

// DeepName returns the function at a depth.
func DeepName(depth int) string { return fmt.Sprintf("deep%d", depth%10) }
