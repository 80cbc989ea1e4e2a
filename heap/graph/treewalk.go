package graph

// children lists what each object dominates directly.
type children struct {
	first []uint32 // by object: where its list begins; that of the next one ends it
	all   []uint32
}

// loadChildren makes the lists when they are first asked for.
func (g *Graph) loadChildren() error {
	if g.kids.first != nil || g.tree == nil {
		return nil
	}
	dom := g.tree.dom
	first, err := g.arena.u32s(int64(len(dom)) + 1)
	if err != nil {
		return err
	}
	all, err := g.arena.u32s(int64(len(dom)))
	if err != nil {
		return err
	}
	for o := 1; o < len(dom); o++ {
		first[dom[o]]++
	}
	sum := uint32(0)
	for o := range dom {
		sum += first[o]
		first[o] = sum
	}
	first[len(dom)] = sum
	for o := len(dom) - 1; o > 0; o-- { // downwards, so that each list is in order
		first[dom[o]]--
		all[first[dom[o]]] = uint32(o)
	}
	g.kids = children{first, all}
	return nil
}

// Dominated yields the objects whose dominator is o, 0 for the root.
func (g *Graph) Dominated(o Object) []uint32 {
	if g.loadChildren() != nil || g.tree == nil {
		return nil
	}
	return g.kids.all[g.kids.first[o]:g.kids.first[o+1]]
}

// Walk goes through the dominator tree below o, depth first; see walkTree.
func (g *Graph) Walk(o Object, enter func(Object) bool, leave func(Object)) {
	g.walkTree(o, enter, leave)
}

// walkTree goes through the dominator tree below o, depth first. Where enter returns
// false, it does not go further down, and leave is not called.
func (g *Graph) walkTree(o Object, enter func(Object) bool, leave func(Object)) {
	if g.loadChildren() != nil || g.tree == nil || !enter(o) {
		return
	}
	type place struct {
		o    Object
		next uint32
	}
	way := []place{{o, g.kids.first[o]}}
	for len(way) > 0 {
		p := &way[len(way)-1]
		if p.next == g.kids.first[p.o+1] {
			if leave != nil {
				leave(p.o)
			}
			way = way[:len(way)-1]
			continue
		}
		c := Object(g.kids.all[p.next])
		p.next++
		if enter(c) {
			way = append(way, place{c, g.kids.first[c]})
		}
	}
}

// HasTree reports whether the level has a dominator tree.
func (g *Graph) HasTree() bool { return g.tree != nil }

// Dominator returns the object without which o could not be reached, 0 if there is none:
// then roots hold it in several ways or directly. Objects that are not strongly reachable
// have one of Holder as their last dominator.
func (g *Graph) Dominator(o Object) Object { return Object(g.tree.dom[o]) }

// Retained returns the bytes that would be free without o, its own among them. Of 0 they
// are those of all objects. -1 says that the level has no tree: see RetainedBy.
func (g *Graph) Retained(o Object) int64 {
	if g.tree == nil {
		return -1
	}
	return int64(g.tree.retained[o])
}

// Strength returns how firmly an object is held.
func (g *Graph) Strength(o Object) Strength {
	if g.tree == nil {
		return Strong
	}
	return Strength(g.tree.strength[o])
}

// Holder reports whether o is the artificial dominator of the objects of a strength, and
// of which one.
func (g *Graph) Holder(o Object) (Strength, bool) {
	if uint32(o) > g.n {
		return Strength(uint32(o) - g.n), true
	}
	return Strong, false
}

// Held returns the bytes of all objects of a strength.
func (g *Graph) Held(s Strength) int64 {
	if g.tree == nil {
		return 0
	}
	if s != Strong {
		return int64(g.tree.retained[g.n+uint32(s)])
	}
	sum := int64(g.tree.retained[0])
	for w := Soft; w <= Garbage; w++ {
		sum -= g.Held(w)
	}
	return sum
}
