package sampler

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestHistogram(t *testing.T) {
	for v := range uint64(100_000) {
		b := bucket(v)
		if v < lower(b) || v >= lower(b+1) {
			t.Fatalf("%d is in bucket %d: [%d, %d)", v, b, lower(b), lower(b+1))
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var a, b Histogram
	var all []int64
	for i := range 20_000 {
		v := int64(rnd.ExpFloat64() * 40_000)
		all = append(all, v)
		if i%2 == 0 {
			a.Add(v)
		} else {
			b.Add(v)
		}
	}
	slices.Sort(all)
	p := pauses([]*Histogram{&a, &b})
	for _, c := range []struct {
		q   float64
		got int64
	}{{.5, p.P50}, {.9, p.P90}, {.99, p.P99}, {.999, p.P999}} {
		want := all[int(c.q*float64(len(all)-1))]
		if d := float64(c.got-want) / float64(want); d > .07 || d < -.07 {
			t.Errorf("quantile %v: %d, want %d", c.q, c.got, want)
		}
	}
	if p.Count != 20_000 || p.Max != all[len(all)-1] {
		t.Errorf("%+v", p)
	}
}
