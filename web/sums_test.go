package web_test

import (
	"testing"

	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
)

type sums struct {
	Start, End float64
	Parts      []struct {
		Part, What            string
		Lock                  *struct{ Addr string }
		Total, Count, Longest int64
		At                    float64
	}
}

// TestSumsAddUp: the parts of every call add up to its length, contain its CPU time, and name locks.
func TestSumsAddUp(t *testing.T) {
	s := serve(t, web.Options{Source: web.NewRecording(recording(t, synth.Options{Seed: 2, Threads: 4, Interval: 1_000_000, Samples: 1000}))})
	loaded(t, s)
	c := dial(t, s)
	seen := map[string]int{}
	locks := 0
	for thread := range 4 {
		for at := 5e6; at < 9e8; at += 41e6 {
			var d struct {
				Calls []struct {
					Depth      int
					Start, End float64
					CPU        int64
				}
			}
			if err := c.Ask(t.Context(), client.Query{Op: "detail", Thread: thread, Depth: -1, At: at}, &d); err != nil {
				t.Fatal(err)
			}
			for _, call := range d.Calls {
				var got sums
				if err := c.Ask(t.Context(), client.Query{Op: "sums", Thread: thread, Depth: call.Depth, At: at}, &got); err != nil {
					t.Fatal(err)
				}
				if got.Start != call.Start || got.End != call.End {
					t.Fatalf("thread %d depth %d at %g: sums of [%g, %g), the call is [%g, %g)", thread, call.Depth, at, got.Start, got.End, call.Start, call.End)
				}
				all, cpu := int64(0), int64(0)
				for _, p := range got.Parts {
					seen[p.Part]++
					all += p.Total
					if p.Part == "cpu" {
						cpu += p.Total
					}
					if p.Lock != nil {
						locks++
					}
					if p.Total <= 0 || p.Count > 0 && (p.At < got.Start || p.At+float64(p.Longest) > got.End) {
						t.Errorf("thread %d depth %d at %g: part %+v of [%g, %g)", thread, call.Depth, at, p, got.Start, got.End)
					}
				}
				length := int64(call.End - call.Start)
				if all != length || cpu != min(call.CPU, length) {
					t.Errorf("thread %d depth %d at %g: parts %+v are %d ns with %d on a CPU; the call takes %d with %d", thread, call.Depth, at, got.Parts, all, cpu, length, call.CPU)
				}
			}
		}
	}
	for _, want := range []string{"cpu", "lock", "runnable", "other"} {
		if seen[want] == 0 {
			t.Errorf("no call has a part %q: %v", want, seen)
		}
	}
	if locks == 0 {
		t.Error("no part names its lock")
	}
	if err := c.Ask(t.Context(), client.Query{Op: "sums", Thread: 0, Depth: 900, At: 1e8}, nil); err == nil {
		t.Error("a depth without a call has sums")
	}
}
