package sampler

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestPoolOfGroups: threads that take turns are a pool by what all of them use, not only those of one group: where other programs use
// the CPUs, too, each group may have less than poolShare.
func TestPoolOfGroups(t *testing.T) {
	for _, c := range []struct {
		of   string
		each float64 // share of a CPU of each of 100 threads
		gone bool    // the threads of all groups but one have ended
		want bool
	}{
		{"enough in all groups", 1.2 * poolShare / 100, false, true},
		{"too little", .8 * poolShare / 100, false, false},
		{"groups without threads", 1.2 * poolShare / 100, true, false},
	} {
		s := &Sampler{}
		for range 5 {
			g := &group{s: s}
			for range 20 {
				th := &thread{}
				th.usage.lately, th.clock.refused = c.each, true
				g.threads = append(g.threads, th)
			}
			g.grow(20)
			s.groups = append(s.groups, g)
		}
		pool := false
		for i, g := range s.groups {
			if c.gone && i > 0 {
				s.groups[i-1].grow(-20)
			}
			pool = g.pools(g.threads[0], &Counters{CPU: 5_000_000}, stack.Time(clockLook))
		}
		if pool != c.want {
			t.Errorf("%s: the last group takes it for a pool: %v, want %v", c.of, pool, c.want)
		}
	}
}
