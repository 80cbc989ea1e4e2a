// Package tally adds up where a thread's time went, stack by stack: what
// pprof, collapsed stacks and flame graphs show. Stacks are nodes of a tree,
// so that counting neither builds nor compares strings.
//
// A Tally is for one goroutine.
package tally

import (
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/idle"
)

// Tree holds stacks that share their outer frames. Node 0 is the empty stack.
type Tree struct {
	nodes numbers // parent<<32 | label
	// Folded counts stacks that were taken for their callers' because the tree
	// was full.
	Folded int
}

// MaxNodes bounds a tree: 1 M distinct stacks, 20 MB. A recording with more has
// its rarest, latest stacks counted for their callers.
const MaxNodes = 1 << 20

// NewTree returns a tree with the empty stack alone.
func NewTree() *Tree {
	t := &Tree{}
	_, slot := t.nodes.find(emptyStack)
	t.nodes.add(emptyStack, slot)
	return t
}

// emptyStack is node 0's entry: no child has its parent.
const emptyStack = uint64(1)<<63 - 1

// Len is the number of nodes.
func (t *Tree) Len() int { return t.nodes.len() }

// Child is the stack with a frame called label on top of the stack at.
func (t *Tree) Child(at, label int32) int32 {
	k := uint64(uint32(at))<<32 | uint64(uint32(label))
	n, slot := t.nodes.find(k)
	if n >= 0 {
		return n
	}
	if t.Len() >= MaxNodes {
		t.Folded++
		return at
	}
	return t.nodes.add(k, slot)
}

// Node is what a node holds: its caller's node and its own label.
func (t *Tree) Node(n int32) (parent, label int32) {
	if n == 0 {
		return 0, 0
	}
	k := t.nodes.key(n)
	return int32(k >> 32), int32(uint32(k))
}

// Path appends the labels of stack n to dst, innermost first.
func (t *Tree) Path(n int32, dst []int32) []int32 {
	for n > 0 {
		k := t.nodes.key(n)
		dst = append(dst, int32(uint32(k)))
		n = int32(k >> 32)
	}
	return dst
}

// Key is what values are kept for, for each thread.
type Key struct {
	Node int32
	// Waiting is the thread's state, and what it waits for as far as that was
	// known by then.
	Waiting diff.Waiting
}

// State that the key is for.
func (k *Key) State() stack.State {
	s, _ := k.Waiting.State()
	return s
}

// Values of a key. Times are in ns.
type Values struct {
	Samples int64 // times that sliver looked and it was so
	CPU     int64 // on a CPU: the scheduler's account, shared among the samples that found the thread there
	Wall    int64 // elapsed
	Lock    int64 // elapsed while waiting for a lock: see trace.Wait.Excludes
	Off     int64 // elapsed while seen to be off the CPUs: blocked, or waiting for one
}

// Add adds w to v.
func (v *Values) Add(w *Values) {
	v.Samples += w.Samples
	v.CPU += w.CPU
	v.Wall += w.Wall
	v.Lock += w.Lock
	v.Off += w.Off
}

// Labels of stacks that the recording does not know. Labels of real frames are the ID of
// their trace.Loc.
const (
	Unknown    = -1 // after a loss
	NotSampled = -2 // CPU time of a thread that no sample found running
)

// Tally is where the time of one thread went: what there is for each Key,
// numbered in the order in which they first came.
type Tally struct {
	Tree *Tree // its labels are IDs of locations, or Unknown

	v       *view.View
	keys    numbers // node<<32 | number of the wait
	values  [][]Values
	waiting []diff.Waiting // by number
	waitOf  map[diff.Waiting]int32
	nodes   []int32 // nodes[i]: the stack's node with frames 0..i, as far as valid
	valid   int
	node    int32 // what time goes to now
	wait    int32
	cur     *Values // of that; nil: not looked up
	waits   bool    // the thread is off the CPUs
	locked  bool    // it waits for a lock
}

// Of adds up th, into a tree that may hold other threads' stacks already.
func Of(v *view.View, th *view.Thread, tree *Tree) *Tally {
	t := &Tally{Tree: tree, v: v, waiting: make([]diff.Waiting, 1), waitOf: map[diff.Waiting]int32{{}: 0}}
	v.Steps(th, t)
	return t
}

// Len is the number of keys.
func (t *Tally) Len() int { return t.keys.len() }

// Key of a number.
func (t *Tally) Key(i int) Key {
	k := t.keys.key(int32(i))
	return Key{int32(k >> 32), t.waiting[uint32(k)]}
}

// Wait tells the waits of keys apart: those with one number have the same
// Waiting. Numbers count from 0.
func (t *Tally) Wait(i int) int { return int(uint32(t.keys.key(int32(i)))) }

// Values of a key.
func (t *Tally) Values(i int) *Values { return &t.values[i>>pageBits][i&(pageLen-1)] }

// Idle reports whether a key is for idle waits.
func (t *Tally) Idle(i int) bool {
	k := t.Key(i)
	n := k.Node
	return t.v.IdleAt(&k.Waiting, func() *trace.Loc {
		label := int32(-1)
		if n > 0 {
			n, label = t.Tree.Node(n)
		}
		if label < 0 {
			return nil
		}
		return t.v.Names.Locs()[label]
	})
}

// Total of all keys.
func (t *Tally) Total() (sum Values) {
	for i := range t.Len() {
		sum.Add(t.Values(i))
	}
	return sum
}

// at finds the values of the stack real.
func (t *Tally) at(real []diff.Frame, known bool, now stack.Time) *Values {
	if !known || len(real) == 0 {
		n := int32(0)
		if !known {
			n = t.Tree.Child(0, Unknown)
		}
		t.valid = 0
		t.move(n, t.wait)
	} else if t.valid < len(real) {
		n := int32(0)
		if t.valid > 0 {
			n = t.nodes[t.valid-1]
		}
		t.nodes = t.nodes[:t.valid]
		for i := t.valid; i < len(real); i++ {
			l := t.v.Names.Resolve(real[i].Word, now)
			n = t.Tree.Child(n, int32(l.ID))
			t.nodes = append(t.nodes, n)
		}
		t.valid = len(real)
		t.move(n, t.wait)
	} else {
		t.move(t.nodes[len(real)-1], t.wait)
	}
	return t.current()
}

// current finds the values of what time goes to now.
func (t *Tally) current() *Values {
	if t.cur == nil {
		k := uint64(uint32(t.node))<<32 | uint64(uint32(t.wait))
		i, slot := t.keys.find(k)
		if i < 0 {
			i = t.keys.add(k, slot)
			if i&(pageLen-1) == 0 {
				// Threads of a few stacks are many: a page is whole from the second on.
				t.values = append(t.values, make([]Values, 0, min(pageLen, max(64, int(i)))))
			}
			p := &t.values[i>>pageBits]
			*p = append(*p, Values{})
		}
		t.cur = t.Values(int(i))
	}
	return t.cur
}

func (t *Tally) move(node, wait int32) {
	if node != t.node || wait != t.wait {
		t.node, t.wait, t.cur = node, wait, nil
	}
}

// Spent, Ran, Unseen, Changed and Other are for View.Steps.
func (t *Tally) Spent(real []diff.Frame, known bool, at stack.Time, ns int64) {
	v := t.at(real, known, at)
	v.Wall += ns
	if t.locked {
		v.Lock += ns
	}
	if t.waits {
		v.Off += ns
	}
}

// Ran: see Spent.
func (t *Tally) Ran(real []diff.Frame, known bool, at stack.Time, ns int64) {
	t.at(real, known, at).CPU += ns
}

// Unseen: see Spent. That time has passed elsewhere already.
func (t *Tally) Unseen(ns int64) {
	t.valid = 0
	t.move(t.Tree.Child(0, NotSampled), 0)
	t.current().CPU += ns
}

// Changed: see Spent.
func (t *Tally) Changed(depth int) { t.valid = min(t.valid, depth) }

// Other: see Spent.
func (t *Tally) Other(e event.Event, real []diff.Frame, known bool) {
	switch e.Kind() {
	case event.Seen:
		_, n, _ := event.SeenFields(e.Payload())
		t.at(real, known, e.Time).Samples += int64(n)
	default:
		w := t.waiting[t.wait]
		if !w.Apply(e) {
			return
		}
		n, ok := t.waitOf[w]
		if !ok {
			n = int32(len(t.waiting))
			t.waiting = append(t.waiting, w)
			t.waitOf[w] = n
		}
		t.move(t.node, n)
		d := t.v.Wait(&w)
		s, _ := w.State()
		t.waits = view.Waits(s)
		t.locked = t.waits && d.Excludes() && (w.Lock() != 0 || d != nil && d.Lock != "")
	}
}

// Calls is where the time of several threads went, by functions: its labels
// are numbers in view.Names.Funcs, inlined calls being frames of their own, or
// below 0 (see Thread).
type Calls struct {
	*Tree
	Self []int64 // what the stack of each node itself has

	// Left counts omitted idle waits: see view.View.ShowsIdle.
	Left idle.Left

	words   []string // what labels below 0 stand for
	unknown int
	unseen  int
}

// Word is what a label below 0 stands for: the outermost frame of every stack
// is its thread's name, the innermost may be what it waited for.
func (c *Calls) Word(label int32) (word string, ok bool) {
	if label >= 0 {
		return "", false
	}
	return c.words[-1-label], true
}

// ByCalls adds up value over all threads of v, without idle waits unless v shows
// them. Threads of one name are added together. waits puts on top of each stack that waited what it waited for, in
// brackets, where that is known.
func ByCalls(v *view.View, waits bool, value func(*Values) int64) *Calls {
	c := &Calls{Tree: NewTree(), unknown: v.GapFunc(stack.WhyLost), unseen: v.UnseenFunc()}
	byName := map[string]int32{}
	word := func(s string) int32 {
		l, ok := byName[s]
		if !ok {
			c.words = append(c.words, s)
			l = int32(-len(c.words))
			byName[s] = l
		}
		return l
	}
	locs := NewTree()
	var nodes []int32 // node in c, by node in locs, for one thread name; 0 not made
	last := int32(0)
	var path []int32
	for i := range v.Threads {
		th := &v.Threads[i]
		label := word(th.Label)
		if label != last {
			clear(nodes)
			last = label
		}
		root := c.Child(0, label)
		t := Of(v, th, locs)
		left, observed := int64(0), int64(0)
		for j := range t.Len() {
			k := t.Key(j)
			x := value(t.Values(j))
			if k.State() != stack.StateRunnable {
				observed += t.Values(j).Wall
			}
			if k.Node == 0 || x == 0 {
				continue
			}
			idle := t.Idle(j)
			if idle && !v.ShowsIdle() {
				left += x
				continue
			}
			for len(nodes) < locs.Len() {
				nodes = append(nodes, 0)
			}
			// Down to a caller that is made already, then up again.
			path = path[:0]
			n, at := k.Node, root
			for ; n > 0; n, _ = locs.Node(n) {
				if nodes[n] != 0 {
					at = nodes[n]
					break
				}
				path = append(path, n)
			}
			for x := len(path) - 1; x >= 0; x-- {
				_, l := locs.Node(path[x])
				switch l {
				case Unknown:
					at = c.Child(at, int32(c.unknown))
				case NotSampled:
					at = c.Child(at, int32(c.unseen))
				default:
					fs := v.Names.Locs()[l].Frames
					for y := len(fs) - 1; y >= 0; y-- {
						at = c.Child(at, int32(fs[y].Func))
					}
				}
				nodes[path[x]] = at
			}
			if waits && k.Waiting.Wait() != 0 {
				w := k.Waiting
				at = c.Child(at, word("["+v.For(&w, idle).String()+"]"))
			}
			for len(c.Self) < c.Len() {
				c.Self = append(c.Self, 0)
			}
			c.Self[at] += x
		}
		c.Left.Add(left, observed)
	}
	for len(c.Self) < c.Len() {
		c.Self = append(c.Self, 0)
	}
	c.Folded += locs.Folded
	return c
}
