package graph

import (
	"context"
	"io"
	"math/bits"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/internal/ordered"
)

// takeMemory surveys a dump that is encoded where it is read: names, classes and roots from the encoded form. What counts
// the objects has done so already.
func takeMemory(ctx context.Context, m Memory, workers int, o surveyOptions) (*survey, error) {
	parts := m.Parts()
	o.ids = false // Starts has them
	s, err := take(ctx, io.NewSectionReader(m, 0, parts[0]), o)
	if err != nil {
		return nil, err
	}
	s.counts = *m.Counts()
	for i, at := range parts[:len(parts)-1] {
		s.chunks = append(s.chunks, chunk{offset: at, bytes: parts[i+1] - at, part: i + 1})
	}
	for addr, word := range m.Starts {
		s.span.addWord(addr, word)
	}
	s.span.n = uint64(len(s.classes)) + s.counts.Objects()
	if o.references {
		err = ordered.Each(ctx, workers, len(parts)-1, func(i int, _ *struct{}) error { return hprof.ReadRefs(m.Part(i)) }, func(i int, _ *struct{}) {
			if o.step != nil {
				o.step(parts[i+1])
			}
		})
	}
	if err != nil {
		return nil, err
	}
	return s, s.checkCount()
}

// addWord adds the IDs addr + 8i of the bits i that are set.
func (s *span) addWord(addr, word uint64) {
	if word == 0 {
		return
	}
	s.add(addr + 8*uint64(bits.TrailingZeros64(word)))
	s.add(addr + 8*uint64(63-bits.LeadingZeros64(word)))
	const low = 63 * 8 // what the bits of a word differ in
	for ; word != 0 && s.differ&low != low; word &= word - 1 {
		s.differ |= (addr + 8*uint64(bits.TrailingZeros64(word))) ^ s.first
	}
}

// setWord adds the IDs addr + 8i of the bits i that are set. Not for concurrent use.
func (x *index) setWord(addr, word uint64) {
	if x.shift != 3 {
		for ; word != 0; word &= word - 1 {
			x.set(addr + 8*uint64(bits.TrailingZeros64(word)))
		}
		return
	}
	if addr < x.base {
		word >>= (x.base - addr) / 8
		addr = x.base
	}
	slot := (addr - x.base) / 8
	if n := slot % 64; n > 0 {
		if high := word >> (64 - n); high != 0 {
			*x.word(slot - n + 64) |= high
		}
		word <<= n
	}
	if word != 0 {
		*x.word(slot) |= word
	}
}
