package sampler

import (
	"math/rand/v2"
	"testing"
)

// TestPoolInKernel: the share of a pool's time in the kernel follows from its CPU time and its copies. It is never more than it
// is by more than 4 standard deviations, and not known from a few periods.
func TestPoolInKernel(t *testing.T) {
	const period = 2_500_000
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, share := range []float64{0, .05, .4, .9, 1} {
		p := poolTimes{}
		for n := 1; n <= 4000; n++ {
			p.ran += period
			if rnd.Float64() >= share {
				p.copied += period
			}
			got := p.inKernel(period)
			switch {
			case n < poolRuns && got != 0:
				t.Fatalf("%v after %d periods", got, n)
			case n == 4000 && (got > share+.025 || got < share-.045):
				t.Errorf("share %v: %.3f after %d periods", share, got, n)
			}
		}
	}
}
