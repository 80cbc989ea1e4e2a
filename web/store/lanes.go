package store

import "github.com/sliverprof/sliver/stack"

// EachLane calls f for every slice of lane l that touches [t0, t1) in threads (nil: all), cut to that time,
// by thread and in the order of time. An open slice ends at the thread's newest event.
func (s *Store) EachLane(l Lane, t0, t1 stack.Time, threads []int, f func(seq int, x Slice)) {
	s.every(threads, 0, func(t *Thread, sn *Snapshot) {
		sn.lane(l, t0, t1, func(x *Slice) {
			c := *x
			if c.Start, c.End = max(x.Start, t0), min(x.End, t1); c.End > c.Start {
				f(t.seq, c)
			}
		})
	})
}

// lane calls yield for every slice of lane l that touches [t0, t1), including the open one, which ends at
// the newest event.
func (s *Snapshot) lane(l Lane, t0, t1 stack.Time, yield func(*Slice)) {
	r := &s.lanes[l]
	for i, n := r.after(t0), r.end(); i < n; i++ {
		x := r.at(i)
		if x.Start >= t1 {
			return
		}
		yield(x)
	}
	if o := s.inLane[l]; o.Start != 0 && o.Start < t1 {
		o.End = max(s.last, o.Start)
		if o.End > t0 {
			yield(&o)
		}
	}
}
