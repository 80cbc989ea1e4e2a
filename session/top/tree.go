package top

import "github.com/sliverprof/sliver/trace/event"

// maxNodes limits the number of distinct stacks at one time: about 30 MB. If a window has
// more, the later ones count for their callers (Table.Folded).
const maxNodes = 1 << 19

// node is a stack: its parent's stack plus one frame on top. The parent of a program's
// root is node 0, which is not a stack.
type node struct {
	parent int32
	gen    int32 // program that it belongs to: the target may exec
	word   event.Word
}

type childKey struct {
	parent int32
	word   event.Word
}

// tree holds stacks that share their outer frames.
type tree struct {
	nodes []node
	child map[childKey]int32
	roots map[int32]int32 // by program
}

func newTree() *tree {
	return &tree{nodes: make([]node, 1, 1024), child: map[childKey]int32{}, roots: map[int32]int32{}}
}

// root returns the empty stack of a program.
func (t *tree) root(gen int32) int32 {
	n, ok := t.roots[gen]
	if !ok {
		n = int32(len(t.nodes))
		t.nodes = append(t.nodes, node{gen: gen})
		t.roots[gen] = n
	}
	return n
}

// on returns the stack with w on top of the stack at. If the tree is full, ok is false
// and n is at.
func (t *tree) on(at int32, w event.Word) (n int32, ok bool) {
	k := childKey{at, w}
	if n, ok := t.child[k]; ok {
		return n, true
	}
	if len(t.nodes) >= maxNodes {
		return at, false
	}
	n = int32(len(t.nodes))
	t.nodes = append(t.nodes, node{at, t.nodes[at].gen, w})
	t.child[k] = n
	return n, true
}

// walk calls yield with the frames of stack n, leaf first.
func (t *tree) walk(n int32, yield func(gen int32, w event.Word)) {
	for nd := &t.nodes[n]; nd.parent != 0; nd = &t.nodes[nd.parent] {
		yield(nd.gen, nd.word)
	}
}

// move finds or adds from's stack n in t. moved caches the new node of each of from's
// nodes; 0: not moved yet.
func (t *tree) move(from *tree, n int32, moved []int32) int32 {
	var path []int32
	at := int32(0)
	for n != 0 {
		if moved[n] != 0 {
			at = moved[n]
			break
		}
		path = append(path, n)
		n = from.nodes[n].parent
	}
	for i := len(path) - 1; i >= 0; i-- {
		nd := &from.nodes[path[i]]
		if nd.parent == 0 {
			at = t.root(nd.gen)
		} else {
			at, _ = t.on(at, nd.word)
		}
		moved[path[i]] = at
	}
	return at
}
