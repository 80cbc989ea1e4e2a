package tally

import (
	"math/rand/v2"
	"testing"
)

// TestTotals compares with sums over whole paths, for random trees with recursion and inlined calls.
func TestTotals(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	functions := func(label int32, dst []int) []int {
		if label < 0 {
			return dst
		}
		dst = append(dst, int(label))
		if label%3 == 0 { // an inlined call, in a function that may be on the path as well
			dst = append(dst, int(label)/2)
		}
		return dst
	}
	add := func(to, from *int64) { *to += *from }
	for range 200 {
		tree := NewTree()
		for range 1 + rnd.IntN(40) {
			n := int32(0)
			for range rnd.IntN(12) {
				n = tree.Child(n, int32(rnd.IntN(8))-1)
			}
		}
		own := make([]int64, tree.Len())
		wantSelf, wantTotal := map[int]int64{}, map[int]int64{}
		var path []int32
		for i := range own {
			own[i] = rnd.Int64N(100)
			if i == 0 {
				continue
			}
			path = tree.Path(int32(i), path[:0])
			if fns := functions(path[0], nil); len(fns) > 0 {
				wantSelf[fns[0]] += own[i]
			}
			seen := map[int]bool{}
			for _, l := range path {
				for _, fn := range functions(l, nil) {
					if !seen[fn] {
						seen[fn] = true
						wantTotal[fn] += own[i]
					}
				}
			}
		}
		self, total := Totals(tree, own, add, functions)
		for name, c := range map[string]struct {
			got  map[int]*int64
			want map[int]int64
		}{"self": {self, wantSelf}, "total": {total, wantTotal}} {
			if len(c.got) != len(c.want) {
				t.Fatalf("%s: %d functions, want %d", name, len(c.got), len(c.want))
			}
			for fn, want := range c.want {
				if got := c.got[fn]; got == nil || *got != want {
					t.Fatalf("%s of %d: %v, want %d", name, fn, got, want)
				}
			}
		}
	}
}

// TestTotalsOfDeepStacks: stacks of 65,536 frames, each one frame deeper than the one before, take a moment.
func TestTotalsOfDeepStacks(t *testing.T) {
	const depth = 65536
	tree := NewTree()
	n := int32(0)
	for i := range depth {
		n = tree.Child(n, int32(i%5))
	}
	own := make([]int64, tree.Len())
	for i := range own {
		own[i] = 1
	}
	_, total := Totals(tree, own, func(to, from *int64) { *to += *from }, func(label int32, dst []int) []int { return append(dst, int(label)) })
	if got := *total[0]; got != depth {
		t.Errorf("total of the outermost function: %d, want %d", got, depth)
	}
}
