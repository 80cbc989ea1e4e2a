package view_test

import (
	"slices"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// TestNotableLosses: ticks that are few beside the samples are among the losses, and not among the notable ones; a recording
// that was cut off always is.
func TestNotableLosses(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range int64(1000) {
		th.Look(exporttest.Look{At: i * ms, CPU: i * ms, State: stack.StateRunning, Stack: "main:1"})
	}
	rec := b.Finish(1000 * ms)
	for _, c := range []struct {
		late uint64
		want []string
	}{{0, nil}, {9, nil}, {11, []string{"11 ticks late and left out"}}} {
		for i := range rec.Stats.Threads {
			rec.Stats.Threads[i].Late = c.late
			rec.Stats.Threads[i].Samples = 1000
		}
		v := view.New(rec, view.Options{})
		if got := v.NotableLosses(); !slices.Equal(got, c.want) {
			t.Errorf("%d late: %q, want %q", c.late, got, c.want)
		}
		if got := v.Losses(); (len(got) > 0) != (c.late > 0) {
			t.Errorf("%d late: %q", c.late, got)
		}
	}
	rec.End = nil
	if got := view.New(rec, view.Options{}).NotableLosses(); len(got) < 2 {
		t.Errorf("cut off: %q", got)
	}
}

// TestUnsampled: CPU time of the process that no thread has is a loss, unless it is little.
func TestUnsampled(t *testing.T) {
	b := exporttest.New(t)
	b.Thread(1234, "main").Look(exporttest.Look{At: 1000 * ms, CPU: 600 * ms, State: stack.StateRunning, Stack: "main:1"})
	rec := b.Finish(1000 * ms)
	for i := range rec.Stats.Threads {
		rec.Stats.Threads[i].CPUNS = 600 * ms
	}
	for _, c := range []struct {
		cpu  int64
		want []string
	}{
		{0, nil}, {500 * ms, nil}, {640 * ms, nil},
		{2000 * ms, []string{"1.4s of 2s of CPU time: it was used by threads that ended before their first sample, or after the last sample of a thread"}},
	} {
		rec.Stats.CPU = c.cpu
		v := view.New(rec, view.Options{})
		if got := v.Losses(); !slices.Equal(got, c.want) {
			t.Errorf("%d ns: %q, want %q", c.cpu, got, c.want)
		}
		if got := v.NotableLosses(); !slices.Equal(got, c.want) {
			t.Errorf("%d ns: %q on the page, want %q", c.cpu, got, c.want)
		}
	}
	// Those of a command have a separate line, with the same time.
	rec.Left = &trace.LeftOut{UsedNS: 2000 * ms, CPUNS: 2000 * ms, SampledNS: 600 * ms}
	if got := view.New(rec, view.Options{}).Losses(); !slices.Equal(got, rec.Left.Lines()) || len(got) != 1 {
		t.Errorf("of a command: %q", got)
	}
}
