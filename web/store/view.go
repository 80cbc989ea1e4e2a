package store

import (
	"slices"

	"github.com/sliverprof/sliver/stack"
)

// Row is a query's result for one depth or lane of a thread.
type Row struct {
	Depth int // of calls; LaneRow(l) for a lane
	Items []Item
	// Lost is how many slices were dropped from the store before this position could read
	// them.
	Lost int
}

// LaneRow returns the depth number of a lane.
func LaneRow(l Lane) int { return 0xffff - int(l) }

// Position is how far a reader has read a thread: see Snapshot.View. The zero value has
// read nothing.
type Position struct {
	Kinds   Kinds // kinds of the calls to read; set by the reader before the first View
	version uint64
	rows    []int
	lanes   [Lanes]int
	set     bool
}

// Clone returns an independent copy.
func (p *Position) Clone() Position {
	q := *p
	q.rows = append([]int(nil), p.rows...)
	return q
}

// Equal reports whether p and q have read the same.
func (p *Position) Equal(q *Position) bool {
	return p.Kinds == q.Kinds && p.version == q.version && p.set == q.set && p.lanes == q.lanes && slices.Equal(p.rows, q.rows)
}

// View is a thread at some zoom level.
type View struct {
	Seq  int
	Rows []Row
	Last stack.Time // newest event
	Seen stack.Time // newest time at which the stack was confirmed
}

// View takes a snapshot and calls its View.
func (t *Thread) View(t0, t1 stack.Time, bin int64, lit []bool, p *Position) View {
	return t.Look(p.Kinds, nil).View(t0, t1, bin, lit, p)
}

// More takes a new snapshot and calls its More; it takes none if nothing has changed.
func (t *Thread) More(bin int64, lit []bool, p *Position) (v View, ok bool) {
	t.mu.Lock()
	same := t.version == p.version
	t.mu.Unlock()
	if same {
		return View{}, false
	}
	return t.Look(p.Kinds, nil).More(bin, lit, p)
}

// View returns the slices that touch [t0, t1), merged if they are thinner than bin ns. It
// sets p, whose kinds are the snapshot's, to the position after them. Merged slices have
// the place of the longest one, or of the longest one whose place is in lit (nil: none).
func (s *Snapshot) View(t0, t1 stack.Time, bin int64, lit []bool, p *Position) View {
	p.version = s.version
	v := View{Seq: s.seq, Last: s.last, Seen: s.seen}
	p.rows = append(p.rows[:0], make([]int, len(s.rows))...)
	p.set = true
	for d := range s.rows {
		r := &s.rows[d]
		out := Row{Depth: d}
		p.rows[d] = r.merge(r.after(t0), r.end(), t1, bin, lit, func(i Item) { out.Items = append(out.Items, i) })
		if o, ok := s.openSlice(d); ok && o.Start < t1 {
			out.Items = append(out.Items, Item{Start: o.Start, End: Open, Place: o.Place, Count: 1})
		}
		if len(out.Items) > 0 {
			v.Rows = append(v.Rows, out)
		}
	}
	for l := range Lanes {
		r := &s.lanes[l]
		out := Row{Depth: LaneRow(l)}
		// A mark has no length: one at t0 belongs to the view too.
		p.lanes[l] = r.merge(r.after(t0-1), r.end(), t1, bin, nil, func(i Item) { out.Items = append(out.Items, i) })
		if o := s.inLane[l]; o.Start != 0 && o.Start < t1 {
			out.Items = append(out.Items, Item{Start: o.Start, End: Open, Place: o.Place, Count: 1})
		}
		if len(out.Items) > 0 {
			v.Rows = append(v.Rows, out)
		}
	}
	return v
}

// More returns the slices that ended since p, and all that are open now. A reader
// discards its open slices and adds these. ok is false if nothing has changed since, or
// the snapshot is older than p.
func (s *Snapshot) More(bin int64, lit []bool, p *Position) (v View, ok bool) {
	if s.version <= p.version || !p.set {
		return View{}, false
	}
	p.version = s.version
	v = View{Seq: s.seq, Last: s.last, Seen: s.seen}
	next := func(r *row, at *int, depth int, lit []bool, open Slice, isOpen bool) {
		out := Row{Depth: depth, Lost: max(r.gone-*at, 0)}
		*at = r.merge(max(*at, r.gone), r.end(), Open, bin, lit, func(i Item) { out.Items = append(out.Items, i) })
		if isOpen {
			out.Items = append(out.Items, Item{Start: open.Start, End: Open, Place: open.Place, Count: 1})
		}
		if len(out.Items) > 0 || out.Lost > 0 {
			v.Rows = append(v.Rows, out)
		}
	}
	for len(p.rows) < len(s.rows) {
		p.rows = append(p.rows, 0)
	}
	for d := range s.rows {
		o, is := s.openSlice(d)
		next(&s.rows[d], &p.rows[d], d, lit, o, is)
	}
	for l := range Lanes {
		next(&s.lanes[l], &p.lanes[l], LaneRow(l), nil, s.inLane[l], s.inLane[l].Start != 0)
	}
	return v, true
}

// Load is how busy a thread was.
type Load struct {
	Seq     int
	CPU     int64 // ns on a CPU, in total
	Samples uint64
	Depth   int // rows
	Last    stack.Time
	Ended   bool
	State   State
	Dropped stack.Time // calls that ended before this were dropped; 0: none
	Bins    []float64  // ns on a CPU over the requested time, if requested
}

// Loads summarizes all threads; if n > 0 it spreads their CPU time over n bins of [t0,
// t1).
func (s *Store) Loads(t0, t1 stack.Time, n int) []Load {
	var out []Load
	for _, t := range s.all() {
		t.mu.Lock()
		l := Load{Seq: t.seq, CPU: t.cpuNS, Samples: t.samples, Depth: len(t.rows), Last: t.last, Ended: t.ended,
			State: t.state, Dropped: t.dropped}
		if n > 0 {
			l.Bins = make([]float64, n)
			t.cpu.into(t0, t1, l.Bins)
		}
		t.mu.Unlock()
		out = append(out, l)
	}
	return out
}

// Interval returns the time between samples of t at a time; 0 if unknown.
func (t *Thread) Interval(at stack.Time) (ns int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rates {
		if r.at > at && ns != 0 {
			break
		}
		ns = r.ns
	}
	return ns
}
