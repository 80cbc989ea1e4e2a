package calls

import (
	"math"
	"math/bits"
	"slices"
)

// Histogram counts durations in buckets whose width is 1/32 of their value or less, so that a
// percentile is at most 3 % too high. The zero value is empty.
type Histogram struct {
	N        uint64
	Sum      int64 // ns
	Min, Max int64 // ns
	buckets  []uint64
}

const (
	subBits   = 5 // buckets for each power of two, as a power of two
	subBucket = 1 << subBits
)

func bucketOf(ns int64) int {
	v := uint64(max(ns, 0))
	if v < subBucket {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// most is the greatest value of a bucket.
func most(b int) int64 {
	if b < 2*subBucket {
		return int64(b)
	}
	shift := b>>subBits - 1
	v := (uint64(b-shift<<subBits)+1)<<shift - 1
	return int64(min(v, math.MaxInt64))
}

// Add counts one.
func (h *Histogram) Add(ns int64) {
	b := bucketOf(ns)
	for len(h.buckets) <= b {
		h.buckets = append(h.buckets, 0)
	}
	h.buckets[b]++
	if h.N == 0 || ns < h.Min {
		h.Min = ns
	}
	h.Max = max(h.Max, ns)
	h.N++
	h.Sum += ns
}

// Percentile is the duration that a share q (0 to 1) of the calls did not exceed; 0 without calls.
func (h *Histogram) Percentile(q float64) int64 {
	if h.N == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(h.N)))
	rank = min(max(rank, 1), h.N)
	var n uint64
	for b, c := range h.buckets {
		if n += c; n >= rank {
			return min(max(most(b), h.Min), h.Max)
		}
	}
	return h.Max
}

// Mean in ns; 0 without calls.
func (h *Histogram) Mean() int64 {
	if h.N == 0 {
		return 0
	}
	return h.Sum / int64(h.N)
}

// Buckets yields the non-empty buckets in ascending order: the upper bound in ns and the count.
func (h *Histogram) Buckets(yield func(upTo int64, n uint64) bool) {
	for b, c := range h.buckets {
		if c > 0 && !yield(most(b), c) {
			return
		}
	}
}

// Clone is a copy that does not change any more.
func (h *Histogram) Clone() Histogram {
	c := *h
	c.buckets = slices.Clone(h.buckets)
	return c
}
