package event

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestKindBits: a word has three bits for the kind, and each of their eight values is taken. A reader returns
// the value as it is, and a ninth kind would be written as native code: it needs a new version of the format.
func TestKindBits(t *testing.T) {
	const pc, bits = 0x7f12_3456_789a, 0xff << 48
	for k := range stack.Kind(8) {
		if _, ok := named(k); !ok {
			t.Errorf("kind %d has no name", k)
		}
		w := WordOf(&stack.Frame{PC: pc, Func: 1, Kind: k, Trust: stack.TrustScan, Exact: true})
		if w.Kind() != k || w.Addr() != pc || w.Trust() != stack.TrustScan || !w.Exact() || w.Bare() {
			t.Errorf("%s comes back as %s at %#x, %s, exact %v, bare %v", k, w.Kind(), w.Addr(), w.Trust(), w.Exact(), w.Bare())
		}
		if want := uint64(k)<<48 | uint64(stack.TrustScan)<<52 | 1<<55; uint64(w)&bits != want {
			t.Errorf("%s: bits %#x, want %#x", k, uint64(w)&bits, want)
		}
	}
	next := stack.Kind(8)
	if _, ok := named(next); ok {
		t.Errorf("%s has no value in a word", next)
	}
	if w := WordOf(&stack.Frame{PC: pc, Func: 1, Kind: next}); w.Kind() != stack.KindNative || w.Addr() != pc || w.Trust() != stack.TrustRegs || w.Exact() {
		t.Errorf("kind 8 comes back as %s at %#x", w.Kind(), w.Addr())
	}
}

// named returns a kind's name; ok is false if it has none.
func named(k stack.Kind) (name string, ok bool) {
	if k == stack.KindError {
		return k.String(), true
	}
	for _, x := range stack.Kinds() {
		if x == k {
			return k.String(), true
		}
	}
	return "", false
}
