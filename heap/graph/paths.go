package graph

import "strconv"

func itoa(i int) string { return strconv.Itoa(i) }

// Step is an object of a path with how the one before it, or a root, leads to it.
type Step struct {
	Object Object
	Ref    Ref // from the step before; of the first one without meaning
}

// Path is a shortest way from a root to an object.
type Path struct {
	Root  Root
	Steps []Step // the root's object first
	// Strength is of its weakest reference: a path to a weakly held object goes through a
	// referent, and one of Garbage starts at an object that nothing leads to.
	Strength Strength
}

// rootParent marks in parents an object that is a root.
const rootParent = 1<<32 - 1

// search runs the breadth-first search from the roots: strong references first, then
// weaker ones.
func (g *Graph) search() error {
	if g.parents != nil {
		return nil
	}
	parents, err := g.arena.u32s(int64(g.n) + 1)
	if err == nil {
		g.searchInto(parents)
	}
	return err
}

// searchInto is search with the array for the parents.
func (g *Graph) searchInto(parents []uint32) {
	s := flood{g: g, parents: parents}
	for _, late := range []bool{false, true} { // a root that says little comes after the others
		for _, r := range g.roots {
			if (r.Thread != 0 && !g.opts.Flat || r.Kind == RootUnknown) == late && (r.Thread == 0 || g.opts.Flat) {
				s.reach(uint32(r.Object), rootParent)
			}
		}
	}
	s.drain()
	for strength := Soft; strength <= Weak; strength++ {
		for found, pass := true, 0; found && pass < mostChained; pass++ {
			found = false
			for _, w := range g.weak {
				if w.strength <= strength && parents[w.owner] != 0 && parents[w.target] == 0 {
					s.reach(w.target, w.owner)
					found = true
				}
			}
			s.drain()
		}
	}
	g.parents = parents
}

// flood is a breadth-first search.
type flood struct {
	g       *Graph
	parents []uint32 // by object; 0: not reached
	queue   ring     // reached, and its references are not followed yet
	buf     []Object
}

// reach sets the parent of an object that is reached for the first time.
func (s *flood) reach(o, parent uint32) {
	if s.parents[o] == 0 {
		s.parents[o] = parent
		s.queue.push(o)
	}
}

// drain follows the references of all objects in the queue, and of those that these reach.
func (s *flood) drain() {
	for {
		o, ok := s.queue.pop()
		if !ok {
			return
		}
		if s.g.start != nil {
			s.follow(o)
			continue
		}
		s.buf = s.g.refsFromFile(Object(o), s.buf[:0])
		for _, t := range s.buf {
			s.reach(uint32(t), o)
		}
	}
}

// follow reaches what an object refers to, from the list in memory.
func (s *flood) follow(o uint32) {
	for pos := s.g.start[o]; pos != 0; pos++ {
		t := s.g.to[pos]
		s.reach(t&refMask, o)
		if t&lastRef != 0 {
			return
		}
	}
}

// ring is a queue of objects whose memory is at most 4 bytes an object.
type ring struct {
	blocks [][]uint32
	free   []uint32
	at     int
}

const ringBlock = 64 << 10

func newRing(*Graph) *ring { return &ring{} }

func (r *ring) push(o uint32) {
	n := len(r.blocks)
	if n == 0 || len(r.blocks[n-1]) == ringBlock {
		b := r.free
		r.free = nil
		if b == nil {
			b = make([]uint32, 0, ringBlock)
		}
		r.blocks = append(r.blocks, b[:0])
		n++
	}
	r.blocks[n-1] = append(r.blocks[n-1], o)
}

func (r *ring) pop() (uint32, bool) {
	if len(r.blocks) == 0 || r.at == len(r.blocks[0]) && len(r.blocks) == 1 {
		return 0, false
	}
	if r.at == ringBlock {
		r.free = r.blocks[0]
		r.blocks = r.blocks[1:]
		r.at = 0
		if len(r.blocks[0]) == 0 {
			return 0, false
		}
	}
	r.at++
	return r.blocks[0][r.at-1], true
}

// Path returns a shortest path from a root to o. Objects that nothing leads to have one
// that starts at themselves, and false.
func (g *Graph) Path(o Object) (p Path, ok bool) {
	if err := g.search(); err != nil {
		return Path{}, false
	}
	var back []Object
	for v := o; ; {
		back = append(back, v)
		parent := g.parents[v]
		if parent == rootParent {
			ok = true
			if rs := g.RootsOf(v); len(rs) > 0 {
				p.Root = rs[0]
				for _, r := range rs { // a root of its own says more than a thread's local
					if r.Thread == 0 && p.Root.Thread != 0 {
						p.Root = r
					}
				}
			}
			break
		}
		if parent == 0 {
			p.Strength = Garbage
			break
		}
		v = Object(parent)
	}
	for i := len(back) - 1; i >= 0; i-- {
		s := Step{Object: back[i], Ref: Ref{Index: -1}}
		if i < len(back)-1 {
			s.Ref = g.NameRef(back[i+1], back[i])
			p.Strength = max(p.Strength, s.Ref.Strength)
		}
		p.Steps = append(p.Steps, s)
	}
	return p, ok
}

// Reached reports whether roots lead to an object, weakly or not.
func (g *Graph) Reached(o Object) bool {
	return g.search() == nil && g.parents[o] != 0
}

// RetainedBy returns the bytes and the number of objects that would be free without the
// objects of a set, these among them. It needs two bits an object and no tree: what roots
// still reach without the set is marked, and the rest of what the set reaches is the
// answer.
func (g *Graph) RetainedBy(set ...Object) (bytes int64, objects int) {
	words := uint64(g.n)/64 + 1
	alive, inside := make([]uint64, words), make([]uint64, words)
	for _, o := range set {
		inside[o>>6] |= 1 << (o & 63)
	}
	queue := newRing(g)
	var buf []Object
	walk := func(each func(Object)) {
		for {
			o, ok := queue.pop()
			if !ok {
				return
			}
			if each != nil {
				each(Object(o))
			}
			buf = g.RefsOf(Object(o), buf[:0])
			for _, t := range buf {
				if (alive[t>>6]|inside[t>>6])>>(t&63)&1 == 0 {
					alive[t>>6] |= 1 << (t & 63)
					queue.push(uint32(t))
				}
			}
		}
	}
	for _, r := range g.roots {
		o := r.Object
		if (r.Thread == 0 || g.opts.Flat) && (alive[o>>6]|inside[o>>6])>>(o&63)&1 == 0 {
			alive[o>>6] |= 1 << (o & 63)
			queue.push(uint32(o))
		}
	}
	walk(nil)
	for _, o := range set {
		if alive[o>>6]>>(o&63)&1 == 0 {
			alive[o>>6] |= 1 << (o & 63)
			queue.push(uint32(o))
		}
	}
	walk(func(o Object) {
		bytes += g.Size(o)
		objects++
	})
	return bytes, objects
}
