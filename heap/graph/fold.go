package graph

import "errors"

var errTooManyRefs = errors.New("more than 4,294,967,295 references: use a smaller --memory, which needs no table of them")

// foldable returns the bits of objects that refer to nothing and that one reference
// alone leads to: their dominator is its holder, so that they need no part in the
// search. About half of all objects are such, mostly arrays of strings. keep says what
// is held otherwise.
func foldable(n uint32, start, to []uint32, keep func(uint32) bool) []uint64 {
	words := (uint64(n)+1)/64 + 1
	once, twice := make([]uint64, words), make([]uint64, words)
	for _, t := range to {
		if t &= refMask; t == 0 {
			continue
		}
		w, bit := t>>6, uint64(1)<<(t&63)
		if once[w]&bit != 0 {
			twice[w] |= bit
		} else {
			once[w] |= bit
		}
	}
	for o := uint32(1); o <= n; o++ {
		w, bit := o>>6, uint64(1)<<(o&63)
		if once[w]&bit != 0 && (twice[w]&bit != 0 || start[o] != 0 || keep(o)) {
			once[w] &^= bit
		}
	}
	return once
}
