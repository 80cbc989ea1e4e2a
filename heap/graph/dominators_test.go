package graph

import (
	"math/rand/v2"
	"testing"
	"time"
)

// lists turns references by object into a flow's arrays.
func lists(n int, refs map[uint32][]uint32) (start, to []uint32) {
	start, to = make([]uint32, n+1), []uint32{0}
	for o := range uint32(n + 1) {
		if len(refs[o]) == 0 {
			continue
		}
		start[o] = uint32(len(to))
		to = append(to, refs[o]...)
		to[len(to)-1] |= lastRef
	}
	return start, to
}

// simpleTree is an independent oracle: a node dominates the objects that become
// unreachable when it is removed. It takes O(n·m).
func simpleTree(n int, refs map[uint32][]uint32, stages [][]uint32) (dom []uint32, stage []int) {
	total := n + len(stages)
	stage = make([]int, total)
	for i := range stage {
		stage[i] = -1
	}
	dom = make([]uint32, total)
	edges := func(level int) map[uint32][]uint32 { // only what the level has: earlier ones are settled
		all := map[uint32][]uint32{}
		for v, ts := range refs {
			all[v] = ts
		}
		return all
	}
	reach := func(level int, roots []uint32, without uint32, into func(uint32) bool) map[uint32]bool {
		seen := map[uint32]bool{}
		var todo []uint32
		push := func(o uint32) {
			if o != without && !seen[o] && into(o) {
				seen[o] = true
				todo = append(todo, o)
			}
		}
		for _, o := range roots {
			push(o)
		}
		all := edges(level)
		for len(todo) > 0 {
			o := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for _, t := range all[o] {
				push(t)
			}
		}
		return seen
	}
	for level, roots := range stages {
		holder := uint32(0)
		if level > 0 {
			holder = uint32(n + level)
			stage[holder] = level
		}
		fresh := func(o uint32) bool { return stage[o] == -1 || stage[o] == level }
		var starts []uint32
		for _, o := range roots {
			if stage[o] == -1 {
				starts = append(starts, o)
			}
		}
		all := reach(level, starts, ^uint32(0), fresh)
		for o := range all {
			stage[o] = level
		}
		// The dominator of o is the one of those that dominate it that all others dominate.
		dominates := map[uint32]map[uint32]bool{}
		for v := range all {
			left := reach(level, starts, v, func(o uint32) bool { return all[o] })
			set := map[uint32]bool{}
			for o := range all {
				if o != v && !left[o] {
					set[o] = true
				}
			}
			dominates[v] = set
		}
		for o := range all {
			best, least := holder, -1
			for v, set := range dominates {
				if set[o] && (least < 0 || len(set) < least) {
					best, least = v, len(set)
				}
			}
			dom[o] = best
		}
	}
	return dom, stage
}

func TestDominatorsOfRandomGraphs(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for round := range 3000 {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		n := 1 + rng.IntN(24)
		refs := map[uint32][]uint32{}
		for range rng.IntN(3*n + 1) {
			v, w := uint32(1+rng.IntN(n)), uint32(1+rng.IntN(n))
			refs[v] = append(refs[v], w)
		}
		stages := make([][]uint32, 1+rng.IntN(3))
		for i := range stages {
			for range 1 + rng.IntN(3) {
				stages[i] = append(stages[i], uint32(1+rng.IntN(n)))
			}
		}
		start, to := lists(n, refs)
		f := &flow{n: uint32(n), start: start, to: to}
		for _, roots := range stages {
			f.stage = append(f.stage, stage{roots: roots})
		}
		isRoot := map[uint32]bool{}
		for _, roots := range stages {
			for _, o := range roots {
				isRoot[o] = true
			}
		}
		if round%2 == 1 {
			f.fold = foldable(f.n, start, to, func(o uint32) bool { return isRoot[o] })
		}
		sizes := make([]uint64, n+1)
		for i := range sizes {
			sizes[i] = uint64(rng.IntN(1000))
		}
		a, _ := newArena("")
		got, err := dominate(t.Context(), a, f, func(o uint32) uint64 { return sizes[o] })
		if err != nil {
			t.Fatal(err)
		}
		want, stageOf := simpleTree(n, refs, stages)
		retained := make([]uint64, len(want))
		for o := 1; o <= n; o++ {
			if stageOf[o] < 0 {
				continue
			}
			for v := uint32(o); ; v = want[v] {
				retained[v] += sizes[o]
				if v == 0 {
					break
				}
			}
		}
		for o := range want {
			if o == 0 || stageOf[o] < 0 {
				continue
			}
			if got.dom[o] != want[o] || int(got.strength[o]) != stageOf[o] || got.retained[o] != retained[o] {
				t.Fatalf("seed %d, round %d: object %d of %d: dominator %d, stage %d, retained %d; want %d, %d, %d\nrefs %v stages %v",
					seed, round, o, n, got.dom[o], got.strength[o], got.retained[o], want[o], stageOf[o], retained[o], refs, stages)
			}
		}
		a.close()
	}
}
