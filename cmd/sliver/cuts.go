package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// cures suggests a remedy for each reason why stacks are cut.
var cures = [stack.MaxReason]string{
	stack.ReasonShort:    "the next samples of such a thread copy more",
	stack.ReasonNoRule:   "that code has neither unwind tables nor frame pointers; build it with -fasynchronous-unwind-tables or -fno-omit-frame-pointer",
	stack.ReasonUnmapped: "that code was unloaded or replaced before its stack was walked",
	stack.ReasonRegister: "blocked threads were not stopped for their registers; --stop-policy=always does",
	stack.ReasonMemory:   "it changed while it was read, or was read before its runtime was known",
	stack.ReasonLoop:     "the stack was being switched, or its unwind tables are wrong",
	stack.ReasonCorrupt:  "the thread was between two frames, or the unwind tables are damaged",
	stack.ReasonHeap:     "a virtual thread was just moving its outer frames from or to the heap",
	stack.ReasonNull:     "code wrote a frame without a return address, as LuaJIT's interpreter does",
	stack.ReasonDeep:     "nothing beyond is kept of one stack",
	stack.ReasonBound:    "calls that deep are mostly a recursion; those further in are shown",
}

// cutText describes why stacks are cut, the most frequent reason first, and suggests a
// remedy for that one.
func cutText(t *stack.ThreadStats) string {
	type cut struct {
		why stack.Reason
		n   uint64
	}
	var cuts []cut
	for i, n := range t.Cuts {
		if n > 0 && stack.Reason(i) != stack.ReasonNone {
			cuts = append(cuts, cut{stack.Reason(i), n})
		}
	}
	if len(cuts) == 0 {
		return ""
	}
	slices.SortStableFunc(cuts, func(a, b cut) int { return cmp.Compare(b.n, a.n) })
	var out []string
	for _, c := range cuts {
		out = append(out, fmt.Sprintf("%d %s", c.n, c.why))
	}
	s := "stacks that end early: " + strings.Join(out, ", ")
	if cure := cures[cuts[0].why]; cure != "" {
		s += " (" + cure + ")"
	}
	return s
}
