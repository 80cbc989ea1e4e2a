package store

import (
	"math"
	"sort"

	"github.com/sliverprof/sliver/stack"
)

// Open is the end of a slice that has not ended yet.
const Open = stack.Time(math.MaxInt64)

// Slice is one interval of a row: a call, a state, a wait, a pause or a gap.
type Slice struct {
	Start, End stack.Time
	Place      uint32  // calls: number of the place; lanes: the lane's value
	Samples    uint32  // number of samples of it
	CPU, Wait  float32 // ns on a CPU and ns off the CPUs, callees included
}

// Dur returns its duration in ns.
func (s *Slice) Dur() int64 { return int64(s.End - s.Start) }

const (
	chunkBits = 9
	chunkLen  = 1 << chunkBits
	blockBits = 5 // a summary for each 32 slices of a full chunk
	blockLen  = 1 << blockBits
	blocks    = chunkLen / blockLen
)

// chunk is a full chunk, with summaries that let a query skip it.
type chunk struct {
	s        []Slice // chunkLen of them
	from, to stack.Time
	longest  [blocks]uint16 // index of the longest slice of each block
	busy     [blocks]int64  // sum of durations
	top      uint16         // index of the longest of all
	all      int64
	inFile   bool
}

// row holds disjoint slices in time order. Its contents never change, so a copy of the
// struct is a snapshot that needs no lock.
type row struct {
	gone int // slices dropped at the front, whole chunks
	full []*chunk
	last []Slice
}

// end returns the number after the last slice; numbers include the dropped ones.
func (r *row) end() int { return r.gone + len(r.full)<<chunkBits + len(r.last) }

// at returns slice number i, gone ≤ i < end.
func (r *row) at(i int) *Slice {
	i -= r.gone
	if c := i >> chunkBits; c < len(r.full) {
		return &r.full[c].s[i&(chunkLen-1)]
	}
	return &r.last[i-len(r.full)<<chunkBits]
}

// add appends a slice; st may move full chunks to its file.
func (r *row) add(s Slice, st *Store) {
	if len(r.last) == cap(r.last) {
		n := make([]Slice, len(r.last), min(max(2*cap(r.last), 8), chunkLen))
		copy(n, r.last)
		r.last = n
	}
	r.last = append(r.last, s)
	if len(r.last) == chunkLen {
		c := newChunk(r.last)
		st.settle(c)
		r.full = append(r.full, c)
		r.last = nil
	}
}

func newChunk(s []Slice) *chunk {
	c := &chunk{s: s, from: s[0].Start, to: s[len(s)-1].End}
	for b := range blocks {
		best := b << blockBits
		for i := best; i < (b+1)<<blockBits; i++ {
			c.busy[b] += s[i].Dur()
			if s[i].Dur() > s[best].Dur() {
				best = i
			}
		}
		c.longest[b] = uint16(best)
		c.all += c.busy[b]
		if s[best].Dur() > s[c.top].Dur() {
			c.top = uint16(best)
		}
	}
	return c
}

// drop removes whole chunks that end before t. It returns how many slices it removed, and
// how many of them were in the store's file.
func (r *row) drop(t stack.Time) (slices, inFile int) {
	n := 0
	for n < len(r.full) && r.full[n].to <= t {
		if r.full[n].inFile {
			inFile += chunkLen
		}
		n++
	}
	// A new slice header: existing snapshots keep the old one.
	r.full = append([]*chunk(nil), r.full[n:]...)
	r.gone += n << chunkBits
	return n << chunkBits, inFile
}

// after returns the number of the first slice that ends after t. It reads only one chunk.
func (r *row) after(t stack.Time) int {
	c := sort.Search(len(r.full), func(i int) bool { return r.full[i].to > t })
	s := r.last
	if c < len(r.full) {
		s = r.full[c].s
	}
	return r.gone + c<<chunkBits + sort.Search(len(s), func(i int) bool { return s[i].End > t })
}

// starting returns the number of the first slice from lo on that starts at t or later.
func (r *row) starting(lo int, t stack.Time) int {
	lo -= r.gone
	c := lo >> chunkBits
	// The chunk before the first that begins at t or later.
	for step := 1; c+1 < len(r.full) && r.full[c+1].from < t; {
		if next := c + step; next < len(r.full) && r.full[next].from < t {
			c, step = next, 2*step
		} else {
			step = 1
			c++
		}
	}
	if c+1 >= len(r.full) && len(r.last) > 0 && r.last[0].Start < t {
		c = len(r.full)
	}
	s := r.last
	if c < len(r.full) {
		s = r.full[c].s
	}
	i := max(lo-c<<chunkBits, 0)
	hi, step := i, 1
	for hi < len(s) && s[hi].Start < t {
		i = hi + 1
		hi += step
		step *= 2
	}
	hi = min(hi, len(s))
	return r.gone + c<<chunkBits + i + sort.Search(hi-i, func(k int) bool { return s[i+k].Start >= t })
}

// longest returns the longest of slices [i, j) and the sum of their durations.
func (r *row) longest(i, j int) (best *Slice, busy int64) {
	take := func(s *Slice) {
		if best == nil || s.Dur() > best.Dur() {
			best = s
		}
	}
	i -= r.gone
	j -= r.gone
	for i < j {
		c := i >> chunkBits
		if c >= len(r.full) {
			for k := i - len(r.full)<<chunkBits; k < j-len(r.full)<<chunkBits; k++ {
				take(&r.last[k])
				busy += r.last[k].Dur()
			}
			return best, busy
		}
		f, k := r.full[c], i&(chunkLen-1)
		switch {
		case k == 0 && j-i >= chunkLen:
			take(&f.s[f.top])
			busy += f.all
			i += chunkLen
		case k&(blockLen-1) == 0 && j-i >= blockLen:
			take(&f.s[f.longest[k>>blockBits]])
			busy += f.busy[k>>blockBits]
			i += blockLen
		default:
			take(&f.s[k])
			busy += f.s[k].Dur()
			i++
		}
	}
	return best, busy
}

// Item is one slice of a query's result, or several merged thin ones.
type Item struct {
	Start, End stack.Time // End is Open for an open slice
	Place      uint32     // of the slice, or of the longest of them
	Count      uint32     // number of slices in it
	Busy       int64      // ns: the sum of their durations; 0 while open
}

// merge emits slices [i, to) that start before t1. Slices of at least bin ns are emitted
// singly, thin ones that start in the same bin are merged. Bins are multiples of bin, so
// that moving a view does not change them. It returns the number of the first slice that
// was left out. If lit is not nil, a merged item has the place of the longest slice whose
// place is lit, if there is one.
func (r *row) merge(i, to int, t1 stack.Time, bin int64, lit []bool, emit func(Item)) int {
	bin = max(bin, 1)
	for i < to {
		s := r.at(i)
		if s.Start >= t1 {
			return i
		}
		if s.Dur() >= bin {
			emit(Item{s.Start, s.End, s.Place, 1, s.Dur()})
			i++
			continue
		}
		edge := stack.Time((int64(s.Start)/bin + 1) * bin)
		j := min(r.starting(i+1, min(edge, t1)), to)
		// Only the last one can extend beyond the bin by a bin or more.
		if l := r.at(j - 1); j-1 > i && l.Dur() >= bin {
			j--
		}
		best, busy := r.longest(i, j)
		if lit != nil {
			best = r.longestLit(i, j, lit, best)
		}
		emit(Item{s.Start, r.at(j - 1).End, best.Place, uint32(j - i), busy})
		i = j
	}
	return i
}

// longestLit returns the longest lit slice of [i, j), or the argument or.
func (r *row) longestLit(i, j int, lit []bool, or *Slice) *Slice {
	var best *Slice
	for ; i < j; i++ {
		if s := r.at(i); int(s.Place) < len(lit) && lit[s.Place] && (best == nil || s.Dur() > best.Dur()) {
			best = s
		}
	}
	if best == nil {
		return or
	}
	return best
}
