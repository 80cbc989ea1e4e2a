package event

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestKindBits: a word has three bits for the kind, and a reader returns the kind that was written. Kinds
// that share a value are found by their ranges of addresses.
func TestKindBits(t *testing.T) {
	const bits = 0xff << 48
	for _, k := range append(stack.Kinds(), stack.KindError) {
		pc := uint64(0x7f12_3456_789a)
		if start, _, ok := k.Range(); ok {
			pc = start + 0x1234
		}
		w := WordOf(&stack.Frame{PC: pc, Func: 1, Kind: k, Trust: stack.TrustScan, Exact: true})
		if w.Kind() != k || w.Addr() != pc || w.Trust() != stack.TrustScan || !w.Exact() || w.Bare() {
			t.Errorf("%s comes back as %s at %#x, %s, exact %v, bare %v", k, w.Kind(), w.Addr(), w.Trust(), w.Exact(), w.Bare())
		}
		if want := uint64(min(k, 7))<<48 | uint64(stack.TrustScan)<<52 | 1<<55; uint64(w)&bits != want {
			t.Errorf("%s: bits %#x, want %#x", k, uint64(w)&bits, want)
		}
	}
}
