package sampler

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
)

// account counts the outcomes of one thread's ticks. Only its group's goroutine writes; any
// goroutine may read.
type account struct {
	counts
	times
	cuts [stack.MaxReason]atomic.Uint64
	role string
	// pauses counts its stops, together with those of other threads of its group with the same
	// role.
	pauses *Histogram
	over   atomic.Bool // no group samples it any more
	before int64       // see stack.ThreadInfo.Before
}

// counts are numbers of ticks, and of what took their samples.
type counts struct {
	samples, stops, stopReads, unrun, read, part, clocked, late, behind, rested, truncated, timedOut, denied, restarted, stretched atomic.Uint64
}

// times are in ns.
type times struct {
	pause, cpu, walk atomic.Int64 // held by stops; on CPUs; spent on walks
	from, to         atomic.Int64 // first tick and last sample
}

// snapshot reads while another goroutine writes. The writer counts a sample before its kind, and
// snapshot reads the kinds before the total, so the count of a kind never exceeds the total.
func (a *account) snapshot(tid stack.TID) stack.ThreadStats {
	part := a.part.Load()
	var cuts [stack.MaxReason]uint64
	for i := range cuts {
		cuts[i] = a.cuts[i].Load()
	}
	read, unrun, clocked, truncated := a.read.Load(), a.unrun.Load(), a.clocked.Load(), a.truncated.Load()
	return stack.ThreadStats{
		Cuts: cuts,
		TID:  tid, Samples: a.samples.Load(), Stops: a.stops.Load(), StopReads: a.stopReads.Load(), Unrun: unrun, Read: read,
		Part: part, Clocked: clocked, Late: a.late.Load(), Behind: a.behind.Load(), Rested: a.rested.Load(), Truncated: truncated, TimedOut: a.timedOut.Load(),
		Denied: a.denied.Load(), Restarted: a.restarted.Load(), Stretched: a.stretched.Load(),
		PauseNS: a.pause.Load(), WalkNS: a.walk.Load(), CPUNS: a.before + a.cpu.Load(), SpanNS: max(a.to.Load()-a.from.Load(), 0),
	}
}

// Histogram counts durations in buckets a 16th of their size wide, so a quantile is right within
// 7 %. One goroutine adds; any goroutine may read.
type Histogram struct {
	buckets [64 * 16]atomic.Uint64
	sum     atomic.Int64
	max     atomic.Int64
	under   atomic.Uint64
}

const under = 40_000 // the limit for which the original Sliver published a figure, in ns

// Add counts one duration in ns.
func (h *Histogram) Add(ns int64) {
	ns = max(ns, 0)
	h.buckets[bucket(uint64(ns))].Add(1)
	h.sum.Add(ns)
	if ns > h.max.Load() {
		h.max.Store(ns)
	}
	if ns < under {
		h.under.Add(1)
	}
}

// bucket returns v's bucket: its exponent and the four bits below the leading one.
func bucket(v uint64) int {
	if v < 16 {
		return int(v)
	}
	e := bits.Len64(v) - 5
	return (e+1)*16 + int(v>>e)&15
}

// lower is the smallest value of bucket i.
func lower(i int) uint64 {
	if i < 16 {
		return uint64(i)
	}
	return (16 + uint64(i)&15) << (i/16 - 1)
}

// total is the sum of several histograms.
type total struct {
	buckets      [64 * 16]uint64
	count, under uint64
	sum, max     int64
}

func add(hs []*Histogram) *total {
	t := new(total)
	for _, h := range hs {
		t.under += h.under.Load() // before the buckets, so that it never exceeds their sum
		for i := range t.buckets {
			n := h.buckets[i].Load()
			t.buckets[i] += n
			t.count += n
		}
		t.sum += h.sum.Load()
		t.max = max(t.max, h.max.Load())
	}
	return t
}

// Distribution is a histogram with few buckets. Counts[i] is the number of durations below
// Bounds[i] and not below Bounds[i-1]; the last count has no upper bound. Bounds, Sum and Max are
// in ns.
type Distribution struct {
	Bounds []int64
	Counts []uint64 // one more than Bounds
	Count  uint64
	Sum    int64
	Max    int64
}

// bounds are the Bounds of a Distribution, in ns: two per doubling, from 4 µs to 33 ms. Each is
// also a bound of a Histogram's bucket.
var bounds = func() (b []int64) {
	for v := int64(4096); v <= 1<<25; v *= 2 {
		b = append(b, v, v+v/2)
	}
	return b
}()

func distribution(hs []*Histogram) Distribution {
	t := add(hs)
	d := Distribution{Bounds: bounds, Counts: make([]uint64, len(bounds)+1), Count: t.count, Sum: t.sum, Max: t.max}
	at := 0
	for i, n := range t.buckets {
		for at < len(bounds) && lower(i) >= uint64(bounds[at]) {
			at++
		}
		d.Counts[at] += n
	}
	return d
}

// pauses sums up several histograms.
func pauses(hs []*Histogram) (p stack.Pauses) {
	t := add(hs)
	p.Count, p.Under, p.Max = t.count, t.under, t.max
	if p.Count == 0 {
		return p
	}
	p.Mean = t.sum / int64(p.Count)
	at := func(q float64) int64 {
		want := max(uint64(math.Ceil(q*float64(p.Count))), 1) // nearest rank: with few durations, the longest
		for i, n := range t.buckets {
			if n >= want {
				mid := (lower(i) + lower(i+1)) / 2
				return min(int64(mid), p.Max)
			}
			want -= n
		}
		return p.Max
	}
	p.P50, p.P90, p.P99, p.P999, p.P9999 = at(.5), at(.9), at(.99), at(.999), p.Max
	if p.Count > 10_000 {
		p.P9999 = at(.9999)
	}
	return p
}
