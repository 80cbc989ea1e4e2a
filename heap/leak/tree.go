package leak

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/heap/graph"
)

// Node is what objects with the same way of classes down the dominator tree keep.
type Node struct {
	Name     string
	Count    int64 // objects of this node
	Self     int64 // their own bytes
	Retained int64 // with all below
	Kids     []*Node

	by map[string]*Node
}

const (
	// maxTreeDepth is how far down the tree goes; below, all counts for the last node.
	maxTreeDepth = 40
	// maxTreeNodes bounds the tree: further ways count for what they begin with.
	maxTreeNodes = 300_000
)

// Tree adds up the dominator tree by classes. Objects whose dominator is of the same class,
// as the links of a list are, count for its node.
func Tree(g *graph.Graph) *Node {
	root := &Node{Name: "(all)"}
	nodes := 1
	way := []*Node{root}

	g.Walk(0, func(o graph.Object) bool {
		n := way[len(way)-1]
		if o != 0 {
			name := Name(g, o)

			if name != n.Name && len(way) <= maxTreeDepth {
				k := n.by[name]
				if k == nil && nodes < maxTreeNodes {
					k = &Node{Name: name}
					if n.by == nil {
						n.by = map[string]*Node{}
					}
					n.by[name] = k
					n.Kids = append(n.Kids, k)
					nodes++
				}
				if k != nil {
					n = k
				}
			}
			if _, holder := g.Holder(o); !holder {
				n.Count++
				n.Self += g.Size(o)
			}
		}
		way = append(way, n)
		return true
	}, func(graph.Object) { way = way[:len(way)-1] })
	root.sum()
	return root
}

func (n *Node) sum() int64 {
	n.Retained = n.Self
	n.by = nil
	for _, k := range n.Kids {
		n.Retained += k.sum()
	}
	slices.SortFunc(n.Kids, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(b.Retained, a.Retained), cmp.Compare(a.Name, b.Name))
	})
	return n.Retained
}

// Prune returns a copy of the tree without what keeps less than least: that counts for a
// node of the name "(other)".
func (n *Node) Prune(least int64) *Node {
	c := &Node{Name: n.Name, Count: n.Count, Self: n.Self, Retained: n.Retained}
	other := &Node{Name: "(other)"}
	for _, k := range n.Kids {
		if k.Retained >= least {
			c.Kids = append(c.Kids, k.Prune(least))
			continue
		}
		other.Count += k.all()
		other.Self += k.Retained
	}
	if other.Retained = other.Self; other.Count > 0 {
		c.Kids = append(c.Kids, other)
	}
	return c
}

// all returns how many objects a node and those below have.
func (n *Node) all() int64 {
	sum := n.Count
	for _, k := range n.Kids {
		sum += k.all()
	}
	return sum
}
