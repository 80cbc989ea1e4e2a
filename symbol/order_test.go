package symbol

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSymbolOrder: symbols are sorted by address, equal ones by position, also where an address and a position do not
// fit in one word.
func TestSymbolOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, top := range []uint64{1 << 8, 1 << 40, 1<<40 + 1, 1 << 63} {
		st := &symtab{syms: make([]sym, 3000)}
		want := make([]uint32, len(st.syms))
		for i := range st.syms {
			st.syms[i] = sym{lo: rnd.Uint64N(top), name: uint32(i)}
			want[i] = uint32(i)
		}
		st.syms[7].lo = top - 1
		slices.SortStableFunc(want, func(a, b uint32) int { return cmp.Compare(st.syms[a].lo, st.syms[b].lo) })
		if got := st.order(); !slices.Equal(got, want) {
			t.Errorf("addresses below %#x: another order", top)
		}
	}
}
