package store

import (
	"slices"

	"github.com/sliverprof/sliver/stack"
)

// Kinds is a set of kinds of frames, a bit for each stack.Kind, and Runtime, as in trace.Kinds; 0
// contains all. Every set contains error frames.
type Kinds uint16

const (
	// Runtime is the native code of interpreters and virtual machines above a function that they run.
	Runtime Kinds = 1 << 15
	// allCode is everything but that.
	allCode Kinds = 0xff
)

// Has reports whether calls of kind x are in the set.
func (k Kinds) Has(x stack.Kind) bool { return k == 0 || x == stack.KindError || k>>(x&7)&1 != 0 }

// sieve decides which calls of a stack are kept, from the outermost one on.
type sieve struct {
	kinds  Kinds
	traits []trait // by place
	runs   int     // functions that a runtime runs
}

// enter reports whether the next call is kept.
func (s *sieve) enter(place uint32) bool {
	t := trait{kind: stack.KindNative}
	if int(place) < len(s.traits) {
		t = s.traits[place]
	}
	if t.kind.Managed() {
		s.runs++
	}
	return s.kinds.Has(t.kind) && (!t.runtime || s.runs == 0 || s.kinds&Runtime != 0)
}

// of returns how many calls of a stack, outermost first, are kept.
func (s *sieve) of(open []openCall) (kept int) {
	for i := range open {
		if s.enter(open[i].place) {
			kept++
		}
	}
	return kept
}

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
	kinds  Kinds
	turned uint64 // of the names, when the rows were built: see Names.sifting
	rows   []row
	store  *Store
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
	traits, turned, _ := n.sifting(x.kinds)
	if turned != x.turned {
		return 0 // these rows are built again before they are read
	}
	v := sieve{kinds: x.kinds, traits: traits}
	around := v.of(open)
	if !v.enter(s.Place) {
		return 0
	}
	x.add(around, s)
	return 1
}

// discard removes all slices. It returns how many there were, and how many of them were in the
// store's file.
func (x *sifted) discard() (slices, inFile int) {
	for i := range x.rows {
		r := &x.rows[i]
		a, b := r.drop(Open)
		slices, inFile = slices+a+len(r.last), inFile+b
	}
	x.rows = nil
	return slices, inFile
}

// sift returns the rows of these kinds, or builds them from the ended calls; t.mu is
// held.
func (t *Thread) sift(v sieve, turned uint64) *sifted {
	for i, x := range t.sifted {
		if x.kinds != v.kinds {
			continue
		}
		if x.turned == turned {
			return x
		}
		t.sifted = slices.Delete(t.sifted, i, i+1)
		n, inFile := x.discard()
		t.held -= n
		t.store.held.Add(-int64(n))
		if inFile > 0 {
			t.store.spill.held.Add(-int64(inFile))
		}
		break
	}
	x := &sifted{kinds: v.kinds, turned: turned, store: t.store}
	at := make([]int, len(t.rows))
	for d := range t.rows {
		at[d] = t.rows[d].gone
	}
	n := 0
	// walk handles calls that began before one time and ended up to another.
	var walk func(d int, before, end stack.Time, kept int, v sieve)
	walk = func(d int, before, end stack.Time, kept int, v sieve) {
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
			walk(d+1, s.Start, s.Start, kept, v) // calls whose callers were dropped
			in := v
			if !in.enter(s.Place) {
				walk(d+1, Open, s.End, kept, in)
				continue
			}
			walk(d+1, Open, s.End, kept+1, in)
			x.add(kept, s)
			n++
		}
	}
	kept := 0
	for d := range t.rows {
		walk(d, Open, Open, kept, v)
		if d < len(t.open) && v.enter(t.open[d].place) {
			kept++
		}
	}
	t.sifted = append(t.sifted, x)
	t.held += n
	t.store.held.Add(int64(n))
	return x
}
