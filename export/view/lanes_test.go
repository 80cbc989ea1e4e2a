package view

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestLanes: calls of one lane nest, recursion needs one lane, and calls that overlap get lanes of their own.
func TestLanes(t *testing.T) {
	for what, x := range map[string]struct {
		calls []span
		want  []int
	}{
		"one after another":     {[]span{{0, 5}, {5, 9}, {9, 9}, {9, 12}}, []int{0, 0, 0, 0}},
		"recursion":             {[]span{{3, 4}, {5, 6}, {2, 7}, {1, 9}, {0, 9}}, []int{0, 0, 0, 0, 0}},
		"turns of tasks":        {[]span{{0, 10}, {5, 15}, {8, 20}, {16, 21}}, []int{0, 1, 2, 0}},
		"equal begins":          {[]span{{2, 3}, {2, 5}}, []int{0, 1}},
		"not by end, by damage": {[]span{{0, 10}, {2, 3}}, []int{0, 1}},
	} {
		var l Lanes
		for i, c := range x.calls {
			if got := l.Place(c.from, c.to); got != x.want[i] {
				t.Errorf("%s: call %d is on lane %d, want %d", what, i, got, x.want[i])
			}
		}
	}
}

// TestLanesNest: random calls, many of them, nest on each lane.
func TestLanesNest(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var all []span
	for range 50_000 {
		from := stack.Time(r.IntN(1_000_000))
		all = append(all, span{from, from + stack.Time(r.IntN(1<<r.IntN(12)))})
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.to, b.to) })
	var l Lanes
	lanes := map[int][]span{}
	for _, c := range all {
		i := l.Place(c.from, c.to)
		lanes[i] = append(lanes[i], c)
	}
	for i, calls := range lanes {
		if i < 0 {
			continue // left out
		}
		if len(l.lanes[i].outer) > maxSpans {
			t.Errorf("lane %d keeps %d spans", i, len(l.lanes[i].outer))
		}
		slices.SortStableFunc(calls, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		var open []span
		for _, c := range calls {
			for len(open) > 0 && open[len(open)-1].to <= c.from {
				open = open[:len(open)-1]
			}
			if len(open) > 0 && open[len(open)-1].to < c.to {
				t.Fatalf("lane %d: %v is across %v", i, c, open[len(open)-1])
			}
			open = append(open, c)
		}
	}
	if len(lanes[-1]) > len(all)/100 {
		t.Errorf("%d of %d calls without a lane", len(lanes[-1]), len(all))
	}
}
