package exporttest

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Gaps returns a recording of 80 ms with gaps: some are adjacent with the same reason, one
// overlaps another, and one is longer than the recording.
func Gaps(tb testing.TB) *trace.Recording {
	b := New(tb)
	th := b.Thread(1234, "main")
	th.Look(Look{At: 10 * Ms, Stack: "main work"})
	th.Gap(30*Ms, stack.WhyLate, 10*Ms)
	th.Gap(40*Ms, stack.WhyLate, 10*Ms)
	th.Gap(60*Ms, stack.WhyLate, 10*Ms)
	th.Gap(65*Ms, stack.WhyDenied, 30*Ms) // overlaps the one before
	th.Look(Look{At: 70 * Ms, Stack: "main work"})
	other := b.Thread(1235, "other")
	other.Look(Look{At: 10 * Ms, Stack: "start"})
	other.Gap(20*Ms, stack.WhyLate, 1<<46)
	return b.Finish(80 * Ms)
}
