package tally

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/sliverprof/sliver/heap/hprof"
)

// Parts that are counted by themselves and joined have the counts, distances and samples of the whole.
func TestJoin(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var whole, joined, part Counter
		id := uint64(0x7000_0000)
		for range r.IntN(20) {
			part.Reset()
			for range r.IntN(40) {
				if r.IntN(20) == 0 {
					whole.Break()
					part.Break()
				}
				id += 8 * (1 + r.Uint64N(20))
				kind := Kind(r.IntN(3))
				key := 100 + r.Uint64N(6)
				if kind == PrimitiveArray {
					key = uint64(hprof.TypeBoolean) + r.Uint64N(8)
				}
				length := r.Uint32N(50)
				whole.Add(kind, key, id, length)
				part.Add(kind, key, id, length)
			}
			joined.Join(&part)
		}
		if !reflect.DeepEqual(whole.All, joined.All) || whole.Objects() != joined.Objects() {
			t.Fatalf("seed %d: tallies\n%+v, want\n%+v", seed, joined.All, whole.All)
		}
		for e := range whole.Arrays {
			if len(whole.Arrays[e]) > 0 && !reflect.DeepEqual(whole.Arrays[e], joined.Arrays[e]) {
				t.Fatalf("seed %d: samples of %d bytes\n%v, want\n%v", seed, e, joined.Arrays[e], whole.Arrays[e])
			}
		}
	}
}
