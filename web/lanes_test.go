package web_test

import (
	"math"
	"testing"

	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
)

type lanes struct {
	T0, T1   float64
	Counters []struct {
		Name string
		Bins []float64
	}
	Locks []struct {
		Lock    struct{ Addr string }
		Total   int64
		Most    float64
		Waiting []float64
		Holder  []int
	}
	More int
}

// TestLanesAddUp: the waits of a lock's lane are those of the query waits, at any resolution; the counters
// are the sums of the lanes and of the threads' load.
func TestLanesAddUp(t *testing.T) {
	s := serve(t, web.Options{Source: web.NewRecording(recording(t, synth.Options{Seed: 2, Threads: 6, Interval: 1_000_000, Samples: 1000}))})
	loaded(t, s)
	c := dial(t, s)
	var waits []struct {
		Kind  string
		Lock  *struct{ Addr string }
		Total int64
	}
	if err := c.Ask(t.Context(), client.Query{Op: "waits"}, &waits); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{}
	for _, w := range waits {
		if w.Lock != nil {
			want[w.Lock.Addr] += float64(w.Total)
		}
	}
	if len(want) < 2 {
		t.Fatalf("the recording has %d locks", len(want))
	}
	for _, n := range []int{1, 7, 1000} {
		var got lanes
		if err := c.Ask(t.Context(), client.Query{Op: "lanes", N: n}, &got); err != nil {
			t.Fatal(err)
		}
		width := (got.T1 - got.T0) / float64(n)
		near := func(what string, got, want float64) {
			// The numbers are rounded to thousandths of a thread.
			if math.Abs(got-want) > 0.0006*width*float64(n) {
				t.Errorf("%d parts: %s are %.0f ns, want %.0f", n, what, got, want)
			}
		}
		if len(got.Locks) != len(want) || got.More != 0 {
			t.Fatalf("%d parts: %d locks and %d more, want %d", n, len(got.Locks), got.More, len(want))
		}
		all, held := 0.0, 0
		for i, l := range got.Locks {
			if i > 0 && l.Total > got.Locks[i-1].Total {
				t.Errorf("lock %s of %d ns follows one of %d ns", l.Lock.Addr, l.Total, got.Locks[i-1].Total)
			}
			near("waits for "+l.Lock.Addr, float64(l.Total), want[l.Lock.Addr])
			sum := 0.0
			for k, w := range l.Waiting {
				sum += w * width
				if l.Holder[k] != 0 {
					held++
					if w == 0 && n < 1000 {
						t.Errorf("%d parts: lock %s has a holder and no waiter in part %d", n, l.Lock.Addr, k)
					}
				}
			}
			all += sum
			near("means of "+l.Lock.Addr, sum, want[l.Lock.Addr])
		}
		if held == 0 {
			t.Errorf("%d parts: no lock has a holder", n)
		}
		sums := map[string]float64{}
		for _, k := range got.Counters {
			for _, v := range k.Bins {
				sums[k.Name] += v * width
			}
		}
		near("threads that wait for locks", sums["lock"], all)
		if sums["cpu"] <= 0 || sums["runnable"] <= 0 || sums["cpu"] > 6.3*(got.T1-got.T0) {
			t.Errorf("%d parts: %v", n, sums)
		}
	}
	var one lanes
	if err := c.Ask(t.Context(), client.Query{Op: "lanes", N: 5, Max: 1}, &one); err != nil || len(one.Locks) != 1 || one.More != len(want)-1 {
		t.Errorf("of %d locks one was asked for: %d, and %d more; %v", len(want), len(one.Locks), one.More, err)
	}
}
