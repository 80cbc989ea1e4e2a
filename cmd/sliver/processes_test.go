package main

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// TestRecordedProcesses: messages name the processes of a recording, those with the most CPU time first.
func TestRecordedProcesses(t *testing.T) {
	of := func(pid int, comm string, cpu ...int64) *trace.Recording {
		rec := &trace.Recording{Process: trace.Process{PID: pid, Comm: comm}}
		for _, ns := range cpu {
			rec.Stats.Threads = append(rec.Stats.Threads, stack.ThreadStats{CPUNS: ns})
		}
		return rec
	}
	rec := of(1, "make", 5)
	rec.Others = []*trace.Recording{of(2, "gcc", 1, 1), of(3, "cc1", 4, 4)}
	if got := recordedProcesses(rec); got != "cc1 (3), make (1), gcc (2)" {
		t.Error(got)
	}
	for range 10 {
		rec.Others = append(rec.Others, of(4, "ld"))
	}
	if got := recordedProcesses(rec); !strings.HasPrefix(got, "cc1 (3), make (1)") || !strings.HasSuffix(got, "ld (4), and 1 more") {
		t.Error(got)
	}
}
