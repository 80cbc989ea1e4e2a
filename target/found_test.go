package target

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Of threads that wait for a CPU around a tick, as many count as preempted as were, whatever the rate of
// wakes beside them.
func TestWakes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const n = 20_000
	for _, c := range []struct{ preempted, woken float64 }{{1, 0}, {.5, .5}, {.2, .8}, {.05, .95}, {0, 1}} {
		var o wakes
		got, true0 := 0, 0
		for range n {
			at := int64(-13_000 + 5_000*r.NormFloat64()) // measured: preemptions come 25 to 3 µs before the tick
			if r.Float64() >= c.preempted {
				at = int64(r.Float64()*400_000) - 300_000
			} else {
				true0++
			}
			if o.preempted(232, at) {
				got++
			}
			if o.preempted(0, at) && at < -30_000 {
				t.Fatalf("preempted %d ns before the tick", -at)
			}
		}
		// The difference of two counts of wakes, each about a tenth of woken.
		sigma := math.Sqrt(2*n*c.woken/10) + 16
		if d := math.Abs(float64(got - true0)); d > 4*sigma {
			t.Errorf("%v: %d counted as preempted, %d were", c, got, true0)
		}
	}
}
