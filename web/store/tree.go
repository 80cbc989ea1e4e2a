package store

import "github.com/sliverprof/sliver/stack"

// Tree is a merged call tree in columns; node 0 is the root, a node's parent comes before
// it.
type Tree struct {
	Parent  []int32
	Func    []uint32
	Count   []uint32
	Samples []uint32
	Wall    []float64 // ns, callees included
	CPU     []float64
	Wait    []float64
	Folded  int // calls counted only for their callers, as the tree was full
}

// TreeOptions configure how calls are merged.
type TreeOptions struct {
	// InTime merges only consecutive calls, so that children are in time order.
	InTime bool
	// ByThread puts the threads below the root, with Func = ThreadFunc+seq.
	ByThread bool
	Max      int   // maximum number of nodes; 0: DefaultNodes
	Kinds    Kinds // of the calls to include
}

// ThreadFunc and larger numbers are threads, not functions: see TreeOptions.
const ThreadFunc = 1 << 31

// DefaultNodes and MaxNodes limit a tree.
const (
	DefaultNodes = 20_000
	MaxNodes     = 200_000
)

type treeKey struct {
	parent int32
	fn     uint32
}

type treeBuilder struct {
	t     *Tree
	o     TreeOptions
	child map[treeKey]int32
	last  []int32 // newest child of each node, InTime
	thin  int64   // InTime: shorter calls are merged even if they are not consecutive
}

// Tree merges the calls in [t0, t1) of threads (nil: all). Calls that cross an edge count
// with the part inside; their CPU and waiting time is assumed to be spread evenly.
func (s *Store) Tree(t0, t1 stack.Time, threads []int, o TreeOptions) *Tree {
	if o.Max <= 0 {
		o.Max = DefaultNodes
	}
	o.Max = min(o.Max, MaxNodes)
	b := &treeBuilder{t: &Tree{}, o: o, child: map[treeKey]int32{}, thin: int64(t1-t0) / 4096}
	b.node(-1, 0)
	funcOf := s.Names.FuncOf()
	s.every(threads, o.Kinds, func(t *Thread, sn *Snapshot) {
		root := int32(0)
		if o.ByThread {
			root = b.get(0, ThreadFunc+uint32(t.seq), true)
		}
		b.thread(sn, root, t0, t1, funcOf)
	})
	for i := len(b.t.Parent) - 1; i > 0; i-- {
		p := b.t.Parent[i]
		if p == 0 || b.t.Func[p] >= ThreadFunc {
			b.t.Wall[p] += b.t.Wall[i]
			b.t.CPU[p] += b.t.CPU[i]
			b.t.Wait[p] += b.t.Wait[i]
			b.t.Samples[p] += b.t.Samples[i]
		}
	}
	return b.t
}

func (b *treeBuilder) node(parent int32, fn uint32) int32 {
	t := b.t
	t.Parent = append(t.Parent, parent)
	t.Func = append(t.Func, fn)
	t.Count = append(t.Count, 0)
	t.Samples = append(t.Samples, 0)
	t.Wall = append(t.Wall, 0)
	t.CPU = append(t.CPU, 0)
	t.Wait = append(t.Wait, 0)
	b.last = append(b.last, -1)
	n := int32(len(t.Parent) - 1)
	if parent >= 0 {
		b.last[parent] = n
	}
	return n
}

// get returns child fn of parent; -1 if the tree is full.
func (b *treeBuilder) get(parent int32, fn uint32, merge bool) int32 {
	if b.o.InTime {
		if l := b.last[parent]; l >= 0 && b.t.Func[l] == fn {
			return l
		}
	}
	k := treeKey{parent, fn}
	if !b.o.InTime || merge {
		if n, ok := b.child[k]; ok {
			return n
		}
	}
	if len(b.t.Parent) >= b.o.Max {
		if n, ok := b.child[k]; ok {
			return n
		}
		return -1
	}
	n := b.node(parent, fn)
	b.child[k] = n
	return n
}

// thread walks a snapshot row by row; at holds the node of each call of the previous row,
// by its place in time.
func (b *treeBuilder) thread(sn *Snapshot, root int32, t0, t1 stack.Time, funcOf []uint32) {
	type span struct {
		end  stack.Time
		node int32
	}
	above := []span{{Open, root}}
	for d := range sn.rows {
		var here []span
		k := 0
		sn.each(d, t0, t1, func(x *Slice) {
			for k < len(above)-1 && above[k].end <= x.Start {
				k++
			}
			if k >= len(above) || int(x.Place) >= len(funcOf) {
				return
			}
			lo, hi := max(x.Start, t0), min(x.End, t1)
			part := 1.0
			if x.Dur() > 0 {
				part = float64(hi-lo) / float64(x.Dur())
			}
			n := int32(-1)
			if above[k].node >= 0 {
				n = b.get(above[k].node, funcOf[x.Place], x.Dur() < b.thin)
			}
			here = append(here, span{x.End, n})
			if n < 0 {
				b.t.Folded++
				return
			}
			t := b.t
			t.Count[n]++
			t.Wall[n] += float64(hi - lo)
			t.CPU[n] += float64(x.CPU) * part
			t.Wait[n] += float64(x.Wait) * part
			t.Samples[n] += uint32(float64(x.Samples)*part + .5)
		})
		if len(here) == 0 {
			return
		}
		above = here
	}
}
