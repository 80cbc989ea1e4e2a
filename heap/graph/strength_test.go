package graph

import (
	"bytes"
	"testing"
)

// An object is as firmly reachable as the weakest reference of java.lang.ref on its firmest path from a root. A reference that
// no path leads to holds nothing.
func TestStrengths(t *testing.T) {
	idle := 0 // objects that only references without a path hold
	for seed := range uint64(200) {
		b := randomDump(seed, 5+int(seed)%60).Encode()
		g, err := New(t.Context(), bytes.NewReader(b), int64(len(b)), Options{Report: true, Temp: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		want := make([]Strength, g.n+1)
		for o := range want {
			want[o] = Garbage
		}
		var flood func(o Object, s Strength)
		flood = func(o Object, s Strength) {
			if want[o] == Garbage {
				want[o] = s
				for _, x := range g.listed(o, nil) {
					flood(x, s)
				}
			}
		}
		for _, r := range g.roots {
			flood(r.Object, Strong)
		}
		for s := Soft; s <= Weak; s++ {
			for range g.weak { // each pass reaches one more at least
				for _, w := range g.weak {
					if w.strength <= s && want[w.owner] != Garbage {
						flood(Object(w.target), s)
					}
				}
			}
		}
		for _, w := range g.weak {
			if want[w.owner] == Garbage && want[w.target] == Garbage {
				idle++
			}
		}
		for o := Object(1); uint32(o) <= g.n; o++ {
			if got := g.Strength(o); got != want[o] {
				t.Errorf("seed %d: object %d is %v, want %v", seed, o, got, want[o])
			}
			if reached := g.parents[o] != 0; reached != (want[o] != Garbage) {
				t.Errorf("seed %d: object %d, %v: a path leads to it: %v", seed, o, want[o], reached)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if idle == 0 {
		t.Error("no object that only a reference without a path holds")
	}
}
