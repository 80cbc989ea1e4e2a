package exporttest

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Several is Sample with a second process: PID 900, "worker", whose only thread calls only_here for 200 ms. Both have begun
// at Start.
func Several(tb testing.TB) *trace.Recording {
	b := New(tb)
	b.Proc.PID, b.Proc.Comm, b.Proc.StartTime = 900, "worker", 77
	th := b.Thread(900, "worker main")
	for i := range int64(200) {
		th.Look(Look{At: i * Ms, Stack: "begin only_here", CPU: i * Ms, State: stack.StateRunning})
	}
	th.End(200*Ms, 0)
	rec := Sample(tb)
	rec.Others = []*trace.Recording{b.Finish(200 * Ms)}
	return rec
}
