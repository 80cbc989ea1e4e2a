package web_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/internal/synth"
)

// Losses of goroutine scans are among the page's notes.
func TestNotesOfLooks(t *testing.T) {
	rec := &trace.Recording{Tasks: []trace.Tasks{{What: "goroutine", Lost: 2}}}
	if n := web.NewRecording(rec).Notes(); !slices.Contains(n, "2 goroutines missing in 1 of 1 look at all of them") {
		t.Errorf("%q", n)
	}
	rec.Tasks[0].Lost = 0
	for _, n := range web.NewRecording(rec).Notes() {
		if strings.Contains(n, "goroutine") {
			t.Errorf("%q", n)
		}
	}
}

// TestBaseOfADump: a flight recorder's dump has clocks that were read at its end. The times
// sent to the page still count from its beginning, and mean the same moments.
func TestBaseOfADump(t *testing.T) {
	rec := recording(t, synth.Options{Seed: 1, Threads: 2, Interval: 1_000_000, Samples: 300})
	from, to := rec.Span()
	was := rec.Process.Clocks
	late := int64(to-was.Monotonic) + 176_760
	c := &rec.Process.Clocks
	c.Monotonic, c.Boottime, c.Realtime = was.Monotonic+(to-was.Monotonic)+176_760, was.Boottime+late, was.Realtime+late
	src := web.NewRecording(rec)
	now := src.Process().Clocks
	if now.Monotonic != from {
		t.Errorf("times count from %d; the recording is from %d to %d", now.Monotonic, from, to)
	}
	if a, b := now.Realtime-int64(now.Monotonic), was.Realtime-int64(was.Monotonic); a != b {
		t.Errorf("the wall clock was moved by %d ns", a-b)
	}
	if a, b := now.Boottime-int64(now.Monotonic), was.Boottime-int64(was.Monotonic); a != b {
		t.Errorf("the clock since boot was moved by %d ns", a-b)
	}
}
