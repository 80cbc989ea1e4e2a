package main

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// TestBusiest: an output that shows one process shows that with the most CPU time, and says so.
func TestBusiest(t *testing.T) {
	of := func(pid int, comm string, cpu ...int64) *trace.Recording {
		rec := &trace.Recording{Process: trace.Process{PID: pid, Comm: comm}}
		for _, ns := range cpu {
			rec.Stats.Threads = append(rec.Stats.Threads, stack.ThreadStats{CPUNS: ns})
		}
		return rec
	}
	rec := of(1, "make", 5)
	rec.Others = []*trace.Recording{of(2, "gcc", 1, 1), of(3, "cc1", 4, 4)}
	var b strings.Builder
	if one := alone(&b, "x.sliver", rec, "the report"); one.Process.PID != 3 || one.Others != nil || len(rec.Others) != 2 {
		t.Errorf("chose %d with %d others", one.Process.PID, len(one.Others))
	}
	if got := b.String(); !strings.Contains(got, "shows the busiest, cc1 (3)") || !strings.Contains(got, ": cc1 (3), make (1), gcc (2)\n") {
		t.Error(got)
	}
	if got := alone(&b, "x.sliver", of(9, "one"), "the report"); got.Process.PID != 9 {
		t.Error("a recording of one process")
	}
}
