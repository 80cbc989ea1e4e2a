package store

import "github.com/sliverprof/sliver/stack"

// Kinds is a set of kinds of frames, a bit for each stack.Kind; 0 contains all. Every set
// contains error frames.
type Kinds uint8

// Has reports whether calls of kind x are in the set.
func (k Kinds) Has(x stack.Kind) bool { return k == 0 || x == stack.KindError || k>>(x&7)&1 != 0 }

// MaxSifted limits how many sets of kinds one store can be filtered by.
const MaxSifted = 8

// Sift prepares for queries limited to calls of these kinds. It returns false if too many
// sets have been requested already.
func (s *Store) Sift(k Kinds) bool {
	if k == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sets {
		if x == k {
			return true
		}
	}
	if len(s.sets) == MaxSifted {
		return false
	}
	s.sets = append(s.sets, k)
	return true
}

// sifted holds a thread's calls of some kinds. If a caller is filtered out, its callees
// appear on top of its own caller. The rows hold copies of the thread's slices, as a
// call's sums include its callees', whatever their kinds.
type sifted struct {
	kinds Kinds
	rows  []row
	store *Store
}

// add adds an ended call; around is the number of kept calls that enclose it.
func (x *sifted) add(around int, s Slice) {
	for len(x.rows) <= around {
		x.rows = append(x.rows, row{})
	}
	r := &x.rows[around]
	if n := r.end(); n > r.gone {
		// Only matters for a call that changed its kind.
		s.Start = max(s.Start, r.at(n-1).End)
		s.End = max(s.End, s.Start)
	}
	r.add(s, x.store)
}

// ended handles a call that ended below the open ones, and returns how many slices it
// added.
func (x *sifted) ended(n *Names, open []openCall, s Slice) int {
	if !x.kinds.Has(n.KindOf(s.Place)) {
		return 0
	}
	x.add(x.kept(n, open), s)
	return 1
}

func (x *sifted) kept(n *Names, open []openCall) int {
	k := 0
	for i := range open {
		if x.kinds.Has(n.KindOf(open[i].place)) {
			k++
		}
	}
	return k
}

// sift returns the rows of these kinds, or builds them from the ended calls; t.mu is
// held.
func (t *Thread) sift(k Kinds) *sifted {
	for _, x := range t.sifted {
		if x.kinds == k {
			return x
		}
	}
	x := &sifted{kinds: k, store: t.store}
	names := t.store.Names
	at := make([]int, len(t.rows))
	for d := range t.rows {
		at[d] = t.rows[d].gone
	}
	n := 0
	// walk handles calls that began before one time and ended up to another.
	var walk func(d int, before, end stack.Time, kept int)
	walk = func(d int, before, end stack.Time, kept int) {
		if d == len(t.rows) {
			return
		}
		r := &t.rows[d]
		for at[d] < r.end() {
			s := *r.at(at[d])
			if s.Start >= before || s.End > end {
				return
			}
			at[d]++
			walk(d+1, s.Start, s.Start, kept) // calls whose callers were dropped
			if !k.Has(names.KindOf(s.Place)) {
				walk(d+1, Open, s.End, kept)
				continue
			}
			walk(d+1, Open, s.End, kept+1)
			x.add(kept, s)
			n++
		}
	}
	kept := 0
	for d := range t.rows {
		walk(d, Open, Open, kept)
		if d < len(t.open) && k.Has(names.KindOf(t.open[d].place)) {
			kept++
		}
	}
	t.sifted = append(t.sifted, x)
	t.held += n
	t.store.held.Add(int64(n))
	return x
}
