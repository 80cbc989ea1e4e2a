package graph

import (
	"context"
	"math"
	"math/bits"
)

// Objects of a flow are numbered from 1, the root is 0. References are lists in one
// array: that of object o begins at start[o] (0: none) and ends with the entry that has
// the bit lastRef.
const (
	lastRef = 1 << 31
	refMask = lastRef - 1
)

// A flow is the input of dominate. Each stage searches from its own roots the objects
// that earlier stages did not reach; edges from a later stage to an earlier one are ignored, so that
// weakly held objects do not change the retained sizes of strong holders.
type flow struct {
	n     uint32 // objects; the nodes of the stages behind the first are numbered n+1…
	start []uint32
	to    []uint32
	fold  []uint64 // bits of objects without references that one reference leads to
	stage []stage
}

// A stage starts from nodes that are held by one of its own.
type stage struct {
	roots []uint32
	// owners has by root the object that must be reached, in this stage or before, for the root to be one. Where it is
	// reached later, so is the root. nil: no root has one.
	owners []uint32
	// rest yields further roots of those that are not reached yet: they are tried in this
	// order, and skipped if an earlier one reached them.
	rest func(reached func(uint32) bool, yield func(uint32))
}

// A tree is a flow's dominator tree.
type tree struct {
	dom      []uint32 // of each object and stage's node; 0: the root
	retained []uint64 // by object: sizes of all that it dominates, its own among them
	strength []uint8  // by object: its stage
	folded   uint32
	nodes    uint32
}

// dominate returns the dominator tree by the algorithm of Lengauer and Tarjan with path
// compression ("A fast algorithm for finding dominators in a flowgraph", 1979), which
// takes O(m log n) whatever the graph. size(o) is an object's own.
func dominate(ctx context.Context, a *arena, f *flow, size func(uint32) uint64) (*tree, error) {
	d := &dominance{flow: f, arena: a, ctx: ctx, pseudo: uint32(len(f.stage) - 1)}
	defer d.free()
	if err := d.search(); err != nil {
		return nil, err
	}
	if err := d.predecessors(); err != nil {
		return nil, err
	}
	if err := d.semidominators(); err != nil {
		return nil, err
	}
	return d.result(size)
}

// mostChained bounds how many references of java.lang.ref may lead to each other's owners.
const mostChained = 64

// owned are roots whose owners are not reached yet.
type owned struct{ roots, owners []uint32 }

// join adds the roots of a stage.
func (x *owned) join(s *stage) {
	x.roots, x.owners = append(x.roots, s.roots...), append(x.owners, s.owners...)
}

// take returns the roots that are not reached and whose owners are, and removes them.
func (x *owned) take(reached func(uint32) bool) (roots []uint32) {
	n := 0
	for k, o := range x.roots {
		switch {
		case reached(o):
		case reached(x.owners[k]):
			roots = append(roots, o)
		default:
			x.roots[n], x.owners[n] = o, x.owners[k]
			n++
		}
	}
	x.roots, x.owners = x.roots[:n], x.owners[:n]
	return roots
}

type dominance struct {
	*flow
	arena  *arena
	ctx    context.Context
	pseudo uint32 // nodes of stages

	// state has by object its number of the search in the low half, 0: not reached, and
	// in the high half how many references lead to it but that of the search.
	state  []uint64
	nodes  uint32   // highest number of the search
	limit  []uint32 // by stage: its highest number
	vertex []uint32 // by number: the object
	anc    []uint32 // by number: the parent in the search, then an ancestor in the forest
	begins []uint32 // by number: where its predecessors begin; during the search a cursor
	preds  []uint32 // numbers + 1; 0 where one that was counted is the parent
	holder []uint32 // by object: of folded ones their holder, later the dominator
	semi   []uint32
	label  []uint32
	dom    []uint32 // before it is known: the next node of the same bucket
	bucket []uint32
	path   []uint32
}

func (d *dominance) free() {
	d.arena.free64(&d.state)
	d.arena.free32(&d.vertex, &d.anc, &d.begins, &d.preds, &d.semi, &d.label, &d.dom, &d.bucket, &d.holder)
}

func (d *dominance) folded(o uint32) bool {
	return d.fold != nil && d.fold[o>>6]>>(o&63)&1 != 0
}

// search numbers all that is reached in the order of a depth-first search.
func (d *dominance) search() (err error) {
	count := int64(d.n) + int64(d.pseudo) + 1
	if d.state, err = d.arena.u64s(count); err != nil {
		return err
	}
	for _, word := range d.fold {
		count -= int64(bits.OnesCount64(word)) // those get no number
	}
	for _, p := range []*[]uint32{&d.vertex, &d.anc, &d.begins} {
		if *p, err = d.arena.u32s(count + 2); err != nil {
			return err
		}
	}
	var open owned
	for i, s := range d.stage {
		holder := uint32(0)
		if i > 0 {
			holder = d.add(d.n+uint32(i), 0)
			d.begins[holder] = 0
		}
		fresh, err := d.searchRoots(&s, holder, &open)
		if err != nil {
			return err
		}
		d.stage[i].roots = fresh
		if s.rest != nil {
			var failed error
			s.rest(d.reached, func(o uint32) {
				if !d.reached(o) && failed == nil && !d.folded(o) {
					failed = d.from(o, holder)
				}
			})
			if failed != nil {
				return failed
			}
		}
		d.limit = append(d.limit, d.nodes)
	}
	return nil
}

// searchRoots searches from the roots of a stage, whose node is holder, and from those of earlier ones whose owners it
// reaches. It returns those that no earlier stage reached.
func (d *dominance) searchRoots(s *stage, holder uint32, open *owned) (fresh []uint32, err error) {
	more := s.roots
	if s.owners != nil {
		open.join(s)
		more = open.take(d.reached)
	}
	for pass := 0; len(more) > 0 && pass < mostChained; pass++ {
		for _, o := range more {
			d.state[o] += 1 << 32 // it may have been reached from another root
			if !d.reached(o) && !d.folded(o) {
				if err := d.from(o, holder); err != nil {
					return nil, err
				}
			}
		}
		fresh = append(fresh, more...)
		more = open.take(d.reached)
	}
	return fresh, nil
}

// reached reports whether the search has reached an object.
func (d *dominance) reached(o uint32) bool { return uint32(d.state[o]) != 0 }

// add gives an object the next number.
func (d *dominance) add(o, parent uint32) uint32 {
	d.nodes++
	d.state[o] += uint64(d.nodes)
	d.vertex[d.nodes] = o
	d.anc[d.nodes] = parent
	if o < uint32(len(d.start)) {
		d.begins[d.nodes] = d.start[o]
	}
	return d.nodes
}

// from searches what o leads to.
func (d *dominance) from(o, parent uint32) error {
	x := d.add(o, parent)
	to, state, cursor := d.to, d.state, d.begins
	for x != parent {
		pos := cursor[x]
		next := uint32(0)
		for pos != 0 {
			t := to[pos]
			if pos++; t&lastRef != 0 {
				pos = 0
				t &= refMask
			}
			if d.fold != nil && d.fold[t>>6]>>(t&63)&1 != 0 {
				continue
			}
			s := state[t]
			if uint32(s) == 0 {
				next = t
				break
			}
			state[t] = s + 1<<32
		}
		cursor[x] = pos
		if next == 0 {
			x = d.anc[x]
			continue
		}
		x = d.add(next, x)
		if x&0xfffff == 0 {
			if err := d.ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// predecessors lists for each node the numbers of those that lead to it, but for its
// parent in the search.
func (d *dominance) predecessors() (err error) {
	sum := uint64(0)
	for w := uint32(1); w <= d.nodes; w++ {
		if sum += d.state[d.vertex[w]] >> 32; sum > math.MaxUint32-1 {
			return errTooManyRefs
		}
		d.begins[w] = uint32(sum)
	}
	d.begins[d.nodes+1] = uint32(sum)
	if d.preds, err = d.arena.u32s(int64(sum) + 1); err != nil {
		return err
	}
	if d.holder, err = d.arena.u32s(int64(d.n) + int64(d.pseudo) + 1); err != nil {
		return err
	}
	for i, s := range d.stage {
		number := uint32(0)
		if i > 0 {
			number = uint32(d.state[d.n+uint32(i)])
		}
		for _, o := range s.roots {
			if w := uint32(d.state[o]); w != 0 {
				d.begins[w]--
				d.preds[d.begins[w]] = number + 1
			}
		}
	}
	to, state, anc, begins, preds, holder := d.to, d.state, d.anc, d.begins, d.preds, d.holder
	for v := uint32(1); v <= d.nodes; v++ {
		o := d.vertex[v]
		if o > d.n {
			continue
		}
		for pos := d.start[o]; pos != 0; pos++ {
			t := to[pos]
			last := t&lastRef != 0
			t &= refMask
			if d.fold != nil && d.fold[t>>6]>>(t&63)&1 != 0 {
				holder[t] = o
			} else if w := uint32(state[t]); anc[w] != v {
				begins[w]--
				preds[begins[w]] = v + 1
			}
			if last {
				break
			}
		}
		if v&0xfffff == 0 {
			if err := d.ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *dominance) semidominators() (err error) {
	count := int64(d.nodes) + 1
	for _, p := range []*[]uint32{&d.semi, &d.label, &d.dom, &d.bucket} {
		if *p, err = d.arena.u32s(count); err != nil {
			return err
		}
	}
	for w := range d.semi {
		d.semi[w], d.label[w] = uint32(w), uint32(w)
	}
	stageOf := len(d.limit) - 1
	semi, dom, bucket, anc := d.semi, d.dom, d.bucket, d.anc
	for w := d.nodes; w > 0; w-- {
		for stageOf > 0 && w <= d.limit[stageOf-1] {
			stageOf--
		}
		limit := d.limit[stageOf]
		parent := anc[w]
		best := parent
		for _, p := range d.preds[d.begins[w]:d.begins[w+1]] {
			v := p - 1
			if p == 0 || v > limit {
				continue // a later stage
			}
			if v > w {
				v = d.eval(v, w)
				best = min(best, semi[v])
				continue
			}
			best = min(best, v)
		}
		semi[w] = best
		if best == parent {
			dom[w] = parent // what the bucket would find
		} else {
			dom[w] = bucket[best]
			bucket[best] = w
		}
		// From here on w is linked to its parent.
		for v := bucket[parent]; v != 0; {
			next := dom[v]
			u := d.eval(v, w-1)
			if semi[u] < semi[v] {
				dom[v] = u
			} else {
				dom[v] = parent
			}
			v = next
		}
		bucket[parent] = 0
		if w&0xfffff == 0 {
			if err := d.ctx.Err(); err != nil {
				return err
			}
		}
	}
	for w := uint32(1); w <= d.nodes; w++ {
		if dom[w] != semi[w] {
			dom[w] = dom[dom[w]]
		}
	}
	return nil
}

// eval returns the node with the least semidominator on the way from v up to the root of
// its tree in the forest, whose nodes are those above w, and shortens the way.
func (d *dominance) eval(v, w uint32) uint32 {
	anc, label, semi := d.anc, d.label, d.semi
	if anc[v] <= w {
		return label[v]
	}
	path := d.path[:0]
	for anc[v] > w {
		path = append(path, v)
		v = anc[v]
	}
	for i := len(path) - 1; i >= 0; i-- {
		x := path[i]
		if semi[label[v]] < semi[label[x]] {
			label[x] = label[v]
		}
		anc[x] = anc[v]
		v = x
	}
	d.path = path
	return label[v]
}

// result turns numbers into objects and adds up sizes.
func (d *dominance) result(size func(uint32) uint64) (t *tree, err error) {
	d.arena.free32(&d.anc, &d.begins, &d.preds, &d.semi, &d.label, &d.bucket)
	count := int64(d.n) + int64(d.pseudo) + 1
	t = &tree{nodes: d.nodes}
	if t.retained, err = d.arena.u64s(count); err != nil {
		return nil, err
	}
	if t.strength, err = d.arena.bytes(count); err != nil {
		d.arena.free64(&t.retained)
		return nil, err
	}
	stage := 0
	for w := uint32(1); w <= d.nodes; w++ {
		for w > d.limit[stage] {
			stage++
		}
		o := d.vertex[w]
		t.strength[o] = uint8(stage)
		if dom := d.dom[w]; dom != 0 {
			d.holder[o] = d.vertex[dom]
		}
	}
	for o := uint32(1); o <= d.n; o++ {
		own := size(o)
		t.retained[o] += own
		if d.folded(o) {
			if h := d.holder[o]; h != 0 {
				t.retained[h] += own
				t.strength[o] = t.strength[h]
				t.folded++
			}
		}
	}
	for w := d.nodes; w > 0; w-- {
		o := d.vertex[w]
		t.retained[d.holder[o]] += t.retained[o]
	}
	t.dom, d.holder = d.holder, nil
	return t, nil
}
