package jvm

import "testing"

// TestNumber: a word is accepted after it matched the numbers of eight different virtual threads,
// and rejected after frequent mismatches.
func TestNumber(t *testing.T) {
	const rightly, once = 40, 41 // words
	r := &Runtime{known: &known{}}
	words := make([]uint64, NumberSpan/8)
	say := func(id uint64) {
		words[rightly] = id
		words[once] = id % 3 // matches now and then
		words[rightly+2] = 20
		r.Number(words, id)
	}
	for range 100 {
		say(20) // a single thread proves nothing
	}
	if off, sought := r.NumberAt(); off != 0 || !sought {
		t.Fatalf("believed by one number: %d, %v", off, sought)
	}
	for id := uint64(1); id < numberProofs-1; id++ {
		say(id)
	}
	if off, _ := r.NumberAt(); off != 0 {
		t.Fatalf("believed too early: %d", off)
	}
	say(0) // none
	say(30)
	if off, sought := r.NumberAt(); off != 8*rightly || sought {
		t.Fatalf("at %d, %v", off, sought)
	}
	r.Number(words, 99) // from a thread without a number yet: ignored
	for i := range uint64(10_000) {
		r.Number([]uint64{i + 100}, i+100)
		if i%100 == 0 {
			r.Number([]uint64{7}, 8) // mounted at that moment
		}
	}
	if off, _ := r.NumberAt(); off != 8*rightly {
		t.Fatal("given up for a few that were late")
	}
	for range 1000 {
		r.Number([]uint64{7}, 8)
	}
	if off, sought := r.NumberAt(); off != 0 || sought {
		t.Errorf("still believed: %d, %v", off, sought)
	}
}
