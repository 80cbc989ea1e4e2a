package jvm

import "testing"

// TestHeld: entries that were validated after one walk of a batch are skipped after other walks of
// it, except for code that was discarded since. In other batches, or without a batch, all are
// validated.
func TestHeld(t *testing.T) {
	code, other := &blob{addr: 1}, &blob{addr: 2}
	m := &method{addr: 3}
	var s State
	walk := func(batch uint64, uses ...use) int {
		s.Begin()
		s.used = append(s.used, uses...)
		s.Dedup(batch)
		return len(s.used)
	}
	steps := []struct {
		batch uint64
		uses  []use
		want  int
		gone  bool // code was discarded before this walk
		fails bool // a check fails after this walk
	}{
		{batch: 0, uses: []use{{b: code}, {m: m}, {b: code}}, want: 2},
		{batch: 0, uses: []use{{b: code}, {m: m}}, want: 2},
		{batch: 1, uses: []use{{b: code}, {m: m}}, want: 2, fails: true},
		{batch: 1, uses: []use{{b: code}, {m: m}, {b: code}}, want: 2},
		{batch: 1, uses: []use{{b: code}, {m: m}}, want: 0},
		{batch: 1, uses: []use{{b: code}, {b: other}}, want: 1},
		{batch: 2, uses: []use{{b: code}, {b: other}}, want: 2},
		{batch: 2, uses: []use{{b: code}, {b: other}}, want: 1, gone: true},
		{batch: 0, uses: []use{{b: other}}, want: 1},
	}
	for i, x := range steps {
		if x.gone {
			code.gone.Store(true)
		}
		if n := walk(x.batch, x.uses...); n != x.want || s.Held() != (n == 0) {
			t.Fatalf("walk %d: %d to be looked at, want %d", i, n, x.want)
		}
		if !x.fails {
			s.holds()
		}
	}
}
