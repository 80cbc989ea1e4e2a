package store

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"

	"github.com/sliverprof/sliver/stack"
)

// Call is one call for a panel.
type Call struct {
	Depth   int
	Place   uint32
	Start   stack.Time
	End     stack.Time // the newest event's time while Running
	Running bool
	Samples uint32
	CPU     int64 // ns, callees included
	Wait    int64 // ns off the CPUs, callees included
	Self    int64 // ns without callees
}

// Stack returns the calls of t of the kinds k at a time, outermost first, down to depth
// (-1: all of them), and the lanes there.
func (t *Thread) Stack(at stack.Time, depth int, k Kinds) (calls []Call, lanes [Lanes]*Slice) {
	s := t.Look(k, nil)
	for d := range s.rows {
		if depth >= 0 && d > depth {
			break
		}
		c, ok := s.callAt(d, at)
		if !ok {
			break
		}
		calls = append(calls, c)
	}
	for l := range Lanes {
		r := &s.lanes[l]
		if i := r.after(at); i < r.end() && r.at(i).Start <= at {
			x := *r.at(i)
			lanes[l] = &x
		} else if o := s.inLane[l]; o.Start != 0 && o.Start <= at {
			lanes[l] = &o
		}
	}
	return calls, lanes
}

func (s *Snapshot) callAt(d int, at stack.Time) (c Call, ok bool) {
	r := &s.rows[d]
	var x Slice
	if i := r.after(at); i < r.end() && r.at(i).Start <= at {
		x = *r.at(i)
	} else if o, is := s.openSlice(d); is && o.Start <= at {
		x = o
	} else {
		return c, false
	}
	return s.call(d, &x), true
}

func (s *Snapshot) call(d int, x *Slice) Call {
	c := Call{Depth: d, Place: x.Place, Start: x.Start, End: x.End, Samples: x.Samples, CPU: int64(x.CPU), Wait: int64(x.Wait)}
	if x.End == Open {
		c.End, c.Running = max(s.last, x.Start), true
	}
	c.Self = int64(c.End - c.Start)
	if d+1 < len(s.rows) {
		s.each(d+1, c.Start, c.End, func(y *Slice) { c.Self -= int64(min(y.End, c.End) - max(y.Start, c.Start)) })
	}
	return c
}

// HistLen is the length of a histogram of durations: bucket i counts durations from
// 2^(i/2) ns up to the next bucket.
const HistLen = 96

func bucket(ns int64) int {
	if ns < 1 {
		return 0
	}
	e := bits.Len64(uint64(ns)) - 1
	b := 2 * e
	// The half step: 2^(e+0.5), compared by the squares of the top bits.
	top := uint64(ns) >> max(e-15, 0)
	lim := uint64(1) << min(e, 15)
	if top*top >= 2*lim*lim {
		b++
	}
	return min(b, HistLen-1)
}

// Where identifies a call.
type Where struct {
	Seq, Depth int
	Start      stack.Time
}

// Calls is the summary of the calls of a function.
type Calls struct {
	Count       int
	Total, Max  int64 // ns
	Min, Median int64 // ns; like Hist, of calls with observed begin and end, or of all if there are none
	Hist        [HistLen]int
	Prev, Next  *Where // the calls before and after a given one
	Longest     *Where
}

// maxMedian is how many durations are kept to find the median; beyond it, every n-th is
// kept.
const maxMedian = 1 << 16

// CallsOf summarizes the calls of fn that touch [t0, t1) in threads (nil: all). near, if
// not nil, is the call whose neighbours to find. Depths are those among calls of kinds k.
func (s *Store) CallsOf(fn uint32, t0, t1 stack.Time, threads []int, near *Where, k Kinds) Calls {
	var c Calls
	funcOf := s.Names.FuncOf()
	var whole, cut durations
	s.every(threads, k, func(t *Thread, sn *Snapshot) {
		for d := range sn.rows {
			sn.each(d, t0, t1, func(x *Slice) {
				if int(x.Place) >= len(funcOf) || funcOf[x.Place] != fn {
					return
				}
				ns := x.Dur()
				w := Where{t.seq, d, x.Start}
				if c.Count == 0 || ns > c.Max {
					c.Max, c.Longest = ns, &w
				}
				c.Total += ns
				c.Count++
				if x.Start <= sn.first || x.End >= sn.last {
					cut.add(ns) // a lower bound of the duration
				} else {
					whole.add(ns)
				}
				if near != nil && near.Seq == t.seq && w != *near {
					before := x.Start < near.Start || x.Start == near.Start && d < near.Depth
					if before && (c.Prev == nil || later(w, *c.Prev)) {
						c.Prev = &w
					}
					if !before && (c.Next == nil || later(*c.Next, w)) {
						c.Next = &w
					}
				}
			})
		}
	})
	if whole.n == 0 {
		whole = cut
	}
	c.Min, c.Median, c.Hist = whole.min, whole.median(), whole.hist
	return c
}

// durations are those of several calls, ns.
type durations struct {
	n    int
	min  int64
	hist [HistLen]int
	kept []int64 // every step-th
	step int
}

func (d *durations) add(ns int64) {
	if d.n == 0 {
		d.min, d.step = ns, 1
	}
	d.min = min(d.min, ns)
	d.hist[bucket(ns)]++
	if d.n%d.step == 0 {
		d.kept = append(d.kept, ns)
		if len(d.kept) >= maxMedian {
			for i := range maxMedian / 2 {
				d.kept[i] = d.kept[2*i]
			}
			d.kept = d.kept[:maxMedian/2]
			d.step *= 2
		}
	}
	d.n++
}

func (d *durations) median() int64 {
	if len(d.kept) == 0 {
		return 0
	}
	slices.Sort(d.kept)
	return d.kept[len(d.kept)/2]
}

func later(a, b Where) bool { return a.Start > b.Start || a.Start == b.Start && a.Depth > b.Depth }

// every calls f with a snapshot of each of the threads (nil: all).
func (s *Store) every(threads []int, k Kinds, f func(*Thread, *Snapshot)) {
	if threads == nil {
		for _, t := range s.all() {
			f(t, t.Look(k, nil))
		}
		return
	}
	for _, seq := range threads {
		if t := s.Lookup(seq); t != nil {
			f(t, t.Look(k, nil))
		}
	}
}

// Hits is the result of a search for functions.
type Hits struct {
	Count int
	Total int64  // ns, of the outermost if they call each other
	First *Where // the first and last by begin
	Last  *Where
	Prev  *Where // the ones before and after a given call
	Next  *Where
	Funcs map[uint32]int
}

// HitsOf finds the calls of fns and of kinds k that touch [t0, t1). They are ordered by
// begin, then by thread and depth. near, if not nil, is a position in that order and need
// not be one of them.
func (s *Store) HitsOf(fns map[uint32]bool, t0, t1 stack.Time, threads []int, near *Where, k Kinds) Hits {
	h := Hits{Funcs: map[uint32]int{}}
	funcOf := s.Names.FuncOf()
	is := make([]bool, len(funcOf))
	for p, f := range funcOf {
		is[p] = fns[f]
	}
	s.every(threads, k, func(t *Thread, sn *Snapshot) {
		var outer [][2]stack.Time // times already covered by outer hits, in order
		for d := range sn.rows {
			var here [][2]stack.Time
			k := 0
			sn.each(d, t0, t1, func(x *Slice) {
				if int(x.Place) >= len(is) || !is[x.Place] {
					return
				}
				h.Count++
				h.Funcs[funcOf[x.Place]]++
				h.note(Where{t.seq, d, x.Start}, near)
				for k < len(outer) && outer[k][1] <= x.Start {
					k++
				}
				if k < len(outer) && outer[k][0] <= x.Start {
					return
				}
				a, b := max(x.Start, t0), min(x.End, t1)
				h.Total += int64(b - a)
				here = append(here, [2]stack.Time{a, b})
			})
			outer = union(outer, here)
		}
	})
	return h
}

// note updates the first, the last and the neighbours of near with w.
func (h *Hits) note(w Where, near *Where) {
	if h.First == nil || w.before(h.First) {
		h.First = &w
	}
	if h.Last == nil || h.Last.before(&w) {
		h.Last = &w
	}
	if near == nil {
		return
	}
	if w.before(near) && (h.Prev == nil || h.Prev.before(&w)) {
		h.Prev = &w
	}
	if near.before(&w) && (h.Next == nil || w.before(h.Next)) {
		h.Next = &w
	}
}

// before orders calls by begin, then by thread and depth.
func (w *Where) before(v *Where) bool {
	return cmp.Or(cmp.Compare(w.Start, v.Start), cmp.Compare(w.Seq, v.Seq), cmp.Compare(w.Depth, v.Depth)) < 0
}

// union merges two lists of disjoint intervals that do not touch each other.
func union(a, b [][2]stack.Time) [][2]stack.Time {
	if len(b) == 0 {
		return a
	}
	out := make([][2]stack.Time, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0][0] <= b[0][0] {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// WaitSum is the time spent waiting for one object.
type WaitSum struct {
	Seq   int
	Kind  string // "lock" or "call"
	Lock  Lock   // Kind lock
	State State  // Kind call
	Count int
	Total int64 // ns
	Max   int64
	At    stack.Time // begin of the longest
}

// Waits sums the waits of threads in [t0, t1), longest first.
func (s *Store) Waits(t0, t1 stack.Time, threads []int) []WaitSum {
	type key struct {
		seq   int
		lock  bool
		place uint32
	}
	sums := map[key]*WaitSum{}
	s.every(threads, 0, func(t *Thread, sn *Snapshot) {
		note := func(l Lane, x Slice) {
			a, b := max(x.Start, t0), min(x.End, t1)
			if b <= a {
				return
			}
			w := WaitSum{Seq: t.seq, Kind: "lock"}
			if l == LaneLock {
				w.Lock = s.Lock(x.Place)
			} else {
				w.Kind, w.State = "call", s.State(x.Place)
				if !waits(w.State.State) {
					return
				}
			}
			k := key{t.seq, l == LaneLock, x.Place}
			if sums[k] == nil {
				sums[k] = &w
			}
			p := sums[k]
			p.Count++
			p.Total += int64(b - a)
			if int64(b-a) > p.Max {
				p.Max, p.At = int64(b-a), x.Start
			}
		}
		for _, l := range []Lane{LaneState, LaneLock} {
			sn.lane(l, t0, t1, func(x *Slice) { note(l, *x) })
		}
	})
	out := make([]WaitSum, 0, len(sums))
	for _, w := range sums {
		out = append(out, *w)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := &out[i], &out[j]
		if a.Total != b.Total {
			return a.Total > b.Total
		}
		if a.Seq != b.Seq {
			return a.Seq < b.Seq
		}
		return a.At < b.At
	})
	return out
}
