package graph

import (
	"context"
	"sync"
	"time"
)

// resolveRoots finds the roots' objects.
func (g *Graph) resolveRoots() {
	s := g.survey
	g.byRoot = make(map[Object][]int, len(s.roots))
	g.locals = map[Object][]int{}
	for _, r := range s.roots {
		o := g.Find(r.id)
		if o == 0 {
			g.LostRoots++
			continue
		}
		root := Root{Object: o, Kind: r.kind, Frame: int(r.frame), serial: r.thread}
		switch r.kind {
		case RootJavaFrame, RootJNILocal, RootNativeStack, RootThreadBlock, RootJNIMonitor:
			if t, ok := s.threadRoots[r.thread]; ok {
				root.Thread = g.Find(t.id)
			}
		}
		if root.Thread != 0 && root.Thread != o && !g.opts.Flat {
			g.locals[root.Thread] = append(g.locals[root.Thread], len(g.roots))
		} else if root.Thread == o {
			root.Thread = 0
		}
		g.byRoot[o] = append(g.byRoot[o], len(g.roots))
		g.roots = append(g.roots, root)
	}
	s.roots = nil
}

// holdLocals makes a thread hold what its frames do: as roots of their own, the locals
// would not count as kept by it.
func (b *builder) holdLocals() error {
	g := b.g
	if g.opts.Flat {
		return nil
	}
	w := &worker{builder: b}
	for thread, more := range g.locals {
		old := g.listed(thread, nil)
		n := uint64(len(old) + len(more))
		if b.next.Load()+max(n, b.block) > b.limit && w.pos+n > w.end {
			return errTooManyRefs
		}
		w.begin(n)
		for i, t := range old {
			g.to[uint64(g.start[thread])+uint64(i)] = 0
			w.add(uint32(t))
		}
		for _, i := range more {
			w.add(uint32(g.roots[i].Object))
		}
		w.finish(uint32(thread))
		w.refs -= uint64(len(old))
	}
	g.refs += w.refs
	return nil
}

// listed appends what an object refers to, by the table.
func (g *Graph) listed(o Object, all []Object) []Object {
	for pos := g.start[o]; pos != 0; pos++ {
		t := g.to[pos]
		all = append(all, Object(t&refMask))
		if t&lastRef != 0 {
			break
		}
	}
	return all
}

// dominate makes the dominator tree.
func (g *Graph) dominate(ctx context.Context) (err error) {
	begin := time.Now()
	defer func() { g.Took.Tree = time.Since(begin) }()
	g.progress("finding dominators", 0)
	held := make([]uint64, uint64(g.n)/64+1)
	var roots []uint32
	for _, r := range g.roots {
		if r.Thread == 0 || g.opts.Flat {
			roots = append(roots, uint32(r.Object))
			held[r.Object>>6] |= 1 << (r.Object & 63)
		}
	}
	f := &flow{n: g.n, start: g.start, to: g.to, stage: make([]stage, Garbage+1)}
	f.stage[Strong].roots = roots
	for _, w := range g.weak {
		held[w.target>>6] |= 1 << (w.target & 63)
		held[w.owner>>6] |= 1 << (w.owner & 63) // the search must number it
		s := &f.stage[w.strength]
		s.roots, s.owners = append(s.roots, w.target), append(s.owners, w.owner)
	}
	f.stage[Garbage].rest = g.unreached
	f.fold = foldable(g.n, g.start, g.to, func(o uint32) bool { return held[o>>6]>>(o&63)&1 != 0 })
	var beside sync.WaitGroup
	if g.opts.Report {
		parents, err := g.arena.u32s(int64(g.n) + 1)
		if err != nil {
			return err
		}
		beside.Go(func() { g.searchInto(parents) })
	}
	defer beside.Wait()
	g.tree, err = dominate(ctx, g.arena, f, func(o uint32) uint64 { return uint64(g.sizeOf(o)) })
	return err
}

// unreached yields the objects that nothing leads to, those first that no other such
// object refers to.
func (g *Graph) unreached(reached func(uint32) bool, yield func(uint32)) {
	inner := make([]uint64, uint64(g.n)/64+1)
	for o := uint32(1); o <= g.n; o++ {
		if reached(o) {
			continue
		}
		for pos := g.start[o]; pos != 0; pos++ {
			t := g.to[pos]
			last := t&lastRef != 0
			if t &= refMask; t != o {
				inner[t>>6] |= 1 << (t & 63)
			}
			if last {
				break
			}
		}
	}
	for _, first := range []bool{true, false} {
		for o := uint32(1); o <= g.n; o++ {
			if (inner[o>>6]>>(o&63)&1 == 0) == first && !reached(o) {
				yield(o)
			}
		}
	}
}
