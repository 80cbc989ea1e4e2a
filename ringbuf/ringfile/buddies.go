package ringfile

import "math/bits"

// buddies allocates blocks of a power of two bytes. A freed block is merged with its other half
// if that is free too, so rings of all sizes can come and go indefinitely in the same space.
type buddies struct {
	free [48]map[int64]struct{} // by order; offsets from base
	base int64
	left int64 // free bytes
}

// add makes size bytes at base, a multiple of minBlock, available.
func (s *buddies) add(base, size int64) {
	s.base = base
	for off := int64(0); size-off >= minBlock; {
		order := bits.Len64(uint64(size-off)) - 1
		if off > 0 {
			order = min(order, bits.TrailingZeros64(uint64(off)))
		}
		s.put(off, order)
		off += 1 << order
		s.left += 1 << order
	}
}

func (s *buddies) put(off int64, order int) {
	if s.free[order] == nil {
		s.free[order] = map[int64]struct{}{}
	}
	s.free[order][off] = struct{}{}
}

// take returns a block of at least size bytes.
func (s *buddies) take(size int64) (off, got int64, ok bool) {
	want := max(bits.Len64(uint64(size-1)), minOrder)
	for order := want; order < len(s.free); order++ {
		for off := range s.free[order] {
			delete(s.free[order], off)
			for ; order > want; order-- {
				s.put(off+1<<(order-1), order-1)
			}
			s.left -= 1 << want
			return s.base + off, 1 << want, true
		}
	}
	return 0, 0, false
}

// give frees a block returned by take.
func (s *buddies) give(off, size int64) {
	off -= s.base
	s.left += size
	order := bits.Len64(uint64(size)) - 1
	for order < len(s.free)-1 {
		other := off ^ 1<<order
		if _, ok := s.free[order][other]; !ok {
			break
		}
		delete(s.free[order], other)
		off = min(off, other)
		order++
	}
	s.put(off, order)
}
