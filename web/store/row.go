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
	Place      uint32  // calls: number of the place; lanes: what the lane says
	Samples    uint32  // times that sliver looked and saw it
	CPU, Wait  float32 // ns on a CPU and ns off them, callees included
}

// Dur is how long it took, ns.
func (s *Slice) Dur() int64 { return int64(s.End - s.Start) }

const (
	chunkBits = 9
	chunkLen  = 1 << chunkBits
	blockBits = 5 // a summary for each 32 slices of a full chunk
	blockLen  = 1 << blockBits
	blocks    = chunkLen / blockLen
)

// summary lets a query pass over a full chunk.
type summary struct {
	longest [blocks]uint16 // index of the longest slice of each block
	busy    [blocks]int64  // sum of durations
	top     uint16         // index of the longest of all
	all     int64
}

// row holds disjoint slices in the order of time. What is in it never changes,
// so that a copy of the struct is a snapshot that needs no lock.
type row struct {
	gone int // slices dropped at the front, whole chunks
	full [][]Slice
	sums []*summary
	last []Slice
}

// end is the number behind the last slice; numbers count the dropped ones.
func (r *row) end() int { return r.gone + len(r.full)<<chunkBits + len(r.last) }

// at returns slice number i, gone ≤ i < end.
func (r *row) at(i int) *Slice {
	i -= r.gone
	if c := i >> chunkBits; c < len(r.full) {
		return &r.full[c][i&(chunkLen-1)]
	}
	return &r.last[i-len(r.full)<<chunkBits]
}

func (r *row) add(s Slice) {
	if len(r.last) == cap(r.last) {
		n := make([]Slice, len(r.last), min(max(2*cap(r.last), 8), chunkLen))
		copy(n, r.last)
		r.last = n
	}
	r.last = append(r.last, s)
	if len(r.last) == chunkLen {
		r.full = append(r.full, r.last)
		r.sums = append(r.sums, summarize(r.last))
		r.last = nil
	}
}

func summarize(c []Slice) *summary {
	s := &summary{}
	for b := range blocks {
		best := b << blockBits
		for i := best; i < (b+1)<<blockBits; i++ {
			s.busy[b] += c[i].Dur()
			if c[i].Dur() > c[best].Dur() {
				best = i
			}
		}
		s.longest[b] = uint16(best)
		s.all += s.busy[b]
		if c[best].Dur() > c[s.top].Dur() {
			s.top = uint16(best)
		}
	}
	return s
}

// drop forgets whole chunks that end before t and returns how many slices went.
func (r *row) drop(t stack.Time) int {
	n := 0
	for n < len(r.full) && r.full[n][chunkLen-1].End <= t {
		n++
	}
	// New headers: a snapshot goes on with the old ones.
	r.full = append([][]Slice(nil), r.full[n:]...)
	r.sums = append([]*summary(nil), r.sums[n:]...)
	r.gone += n << chunkBits
	return n << chunkBits
}

// after is the number of the first slice that ends after t.
func (r *row) after(t stack.Time) int {
	return r.gone + sort.Search(r.end()-r.gone, func(i int) bool { return r.at(r.gone+i).End > t })
}

// starting is the number of the first slice from lo on that starts at t or later.
func (r *row) starting(lo int, t stack.Time) int {
	end := r.end()
	step := 1
	hi := lo
	for hi < end && r.at(hi).Start < t {
		lo = hi + 1
		hi += step
		step *= 2
	}
	hi = min(hi, end)
	return lo + sort.Search(hi-lo, func(i int) bool { return r.at(lo+i).Start >= t })
}

// longest finds the longest of slices [i, j) and adds up their durations.
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
		chunk, sum, k := r.full[c], r.sums[c], i&(chunkLen-1)
		switch {
		case k == 0 && j-i >= chunkLen:
			take(&chunk[sum.top])
			busy += sum.all
			i += chunkLen
		case k&(blockLen-1) == 0 && j-i >= blockLen:
			take(&chunk[sum.longest[k>>blockBits]])
			busy += sum.busy[k>>blockBits]
			i += blockLen
		default:
			take(&chunk[k])
			busy += chunk[k].Dur()
			i++
		}
	}
	return best, busy
}

// Item is what a query gives for a row: one slice, or several thin ones.
type Item struct {
	Start, End stack.Time // End is Open for a slice that goes on
	Place      uint32     // of the slice, or of the longest of them
	Count      uint32     // slices in it
	Busy       int64      // ns: the sum of their durations; 0 while open
}

// merge emits slices [i, to) that start before t1: one by one where they last
// bin ns or more, else merged with the thin ones that start in the same bin.
// Bins are multiples of bin, so that moving a view does not change them. It
// returns the number of the first slice that was left out. Where lit is not
// nil, a merged item has the place of the longest slice that is lit by its
// place, if there is one.
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
		// Only the last one can reach beyond the bin by a bin or more.
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

// longestLit is the longest of slices [i, j) that is lit, or else.
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
