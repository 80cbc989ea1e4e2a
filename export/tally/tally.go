// Package tally sums a thread's time by stack, for pprof, collapsed stacks and flame graphs. Stacks are nodes
// of a tree, so counting does not build or compare strings.
//
// A Tally is for one goroutine.
package tally

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/idle"
)

// Tree holds stacks that share their outer frames. Node 0 is the empty stack.
type Tree struct {
	nodes numbers // parent<<32 | label
	// Folded counts stacks that were added to their callers because the tree was full.
	Folded int
}

// MaxNodes limits a tree: 1 M distinct stacks, 20 MB. In a larger recording the stacks that appear last count
// for their callers.
const MaxNodes = 1 << 20

// NewTree returns a tree with only the empty stack.
func NewTree() *Tree {
	t := &Tree{}
	_, slot := t.nodes.find(emptyStack)
	t.nodes.add(emptyStack, slot)
	return t
}

// emptyStack is the key of node 0; no other node has this key.
const emptyStack = uint64(1)<<63 - 1

// Len returns the number of nodes.
func (t *Tree) Len() int { return t.nodes.len() }

// Child returns the stack with a frame label on top of the stack at.
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

// Node returns a node's parent and label.
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

// Key identifies the values of a thread.
type Key struct {
	Node int32
	// Waiting is the thread's state and wait, as far as known at that time.
	Waiting diff.Waiting
}

// State returns the key's state.
func (k *Key) State() stack.State {
	s, _ := k.Waiting.State()
	return s
}

// Values are the values of a key. Times are in ns.
type Values struct {
	Samples int64 // number of samples
	CPU     int64 // on a CPU: the scheduler's time, shared among the samples that found the thread running
	Wall    int64 // elapsed
	Lock    int64 // elapsed while waiting for a lock: see trace.Wait.Excludes
	Off     int64 // elapsed while observed off the CPUs: blocked, or waiting for one
}

// Add adds w to v.
func (v *Values) Add(w *Values) {
	v.Samples += w.Samples
	v.CPU += w.CPU
	v.Wall += w.Wall
	v.Lock += w.Lock
	v.Off += w.Off
}

// Labels of stacks that the recording does not know. The label of a real frame is the ID of its trace.Loc.
const (
	Unknown    = -1 // after a loss
	NotSampled = -2 // CPU time of a thread without a running sample
)

// Tally is the time of one thread by Key. Keys are numbered in order of first use.
type Tally struct {
	Tree *Tree // labels are location IDs or Unknown

	v       *view.View
	keys    numbers // node<<32 | wait number
	values  [][]Values
	waiting []waitKey // by wait number
	waitOf  map[waitKey]int32
	names   []view.Name // of the thread, from the current one on
	labels  []string    // its distinct names
	labelOf map[string]int32
	nodes   []int32 // nodes[i]: the stack's node with frames 0..i, up to valid
	valid   int
	node    int32 // node that receives time now
	wait    int32
	cur     *Values // values of node; nil: not looked up
	waits   bool    // the thread is off the CPUs
	locked  bool    // the thread waits for a lock

	// Elapsed time of one side of the view agrees with the scheduler: on the CPUs it is CPU time, and off
	// the CPUs the time between samples is scaled by factor.
	onCPU  bool
	factor float64 // 0: 1
	exact  float64 // sum of the scaled time, ns
	given  int64   // of it, already credited
}

// Of sums the time of th, in a tree that may contain other threads' stacks.
func Of(v *view.View, th *view.Thread, tree *Tree) *Tally {
	t := &Tally{Tree: tree, v: v, waiting: make([]waitKey, 1), waitOf: map[waitKey]int32{{}: 0}, names: th.Names(), labelOf: map[string]int32{}}
	t.label(t.names[0].Label)
	switch v.Side() {
	case view.OnCPU:
		t.onCPU = v.Weights(th).Total() > 0
	case view.OffCPU:
		if seen := v.Waited(th); seen > 0 {
			t.factor = float64(v.States(th).Observed) / float64(seen)
		}
	}
	v.Steps(th, t)
	return t
}

// waitKey is a thread's wait while it had a name, by its index in Tally.labels.
type waitKey struct {
	diff.Waiting
	name int32
}

// label returns the index of a name.
func (t *Tally) label(name string) int32 {
	i, ok := t.labelOf[name]
	if !ok {
		i = int32(len(t.labels))
		t.labels, t.labelOf[name] = append(t.labels, name), i
	}
	return i
}

// wear gives the thread the name that it had at a time. Times rise.
func (t *Tally) wear(now stack.Time) {
	if len(t.names) == 1 || now < t.names[1].From {
		return
	}
	for len(t.names) > 1 && now >= t.names[1].From {
		t.names = t.names[1:]
	}
	w := t.waiting[t.wait]
	w.name = t.label(t.names[0].Label)
	t.move(t.node, t.number(w))
}

// number returns the number of a wait.
func (t *Tally) number(w waitKey) int32 {
	n, ok := t.waitOf[w]
	if !ok {
		n = int32(len(t.waiting))
		t.waiting = append(t.waiting, w)
		t.waitOf[w] = n
	}
	return n
}

// Name returns the thread's name at the time of key i.
func (t *Tally) Name(i int) string { return t.labels[t.waiting[t.Wait(i)].name] }

// Len returns the number of keys.
func (t *Tally) Len() int { return t.keys.len() }

// Key returns key i.
func (t *Tally) Key(i int) Key {
	k := t.keys.key(int32(i))
	return Key{int32(k >> 32), t.waiting[uint32(k)].Waiting}
}

// Wait identifies the wait of a key: keys with the same number have the same Waiting. Numbers count from 0.
func (t *Tally) Wait(i int) int { return int(uint32(t.keys.key(int32(i)))) }

// Values returns the values of key i.
func (t *Tally) Values(i int) *Values { return &t.values[i>>pageBits][i&(pageLen-1)] }

// Idle reports whether key i is for idle waits.
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

// Total returns the sum over all keys.
func (t *Tally) Total() (sum Values) {
	for i := range t.Len() {
		sum.Add(t.Values(i))
	}
	return sum
}

// at returns the values of the stack real.
func (t *Tally) at(real []diff.Frame, known bool, now stack.Time) *Values {
	t.wear(now)
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

// current returns the values that receive time now.
func (t *Tally) current() *Values {
	if t.cur == nil {
		k := uint64(uint32(t.node))<<32 | uint64(uint32(t.wait))
		i, slot := t.keys.find(k)
		if i < 0 {
			i = t.keys.add(k, slot)
			if i&(pageLen-1) == 0 {
				// Many threads have few stacks, so the first page starts small; later ones are full size.
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

// Spent implements view.Steps.
func (t *Tally) Spent(real []diff.Frame, known bool, at stack.Time, ns int64) {
	t.wear(at)
	for len(t.names) > 1 && t.names[1].From-at < stack.Time(ns) {
		next := t.names[1].From
		t.spent(real, known, at, int64(next-at))
		at, ns = next, ns-int64(next-at)
		t.wear(at)
	}
	t.spent(real, known, at, ns)
}

func (t *Tally) spent(real []diff.Frame, known bool, at stack.Time, ns int64) {
	v := t.at(real, known, at)
	if t.onCPU { // see Ran
		return
	}
	if t.factor > 0 {
		t.exact += float64(ns) * t.factor
		ns = int64(t.exact+.5) - t.given
		t.given += ns
	}
	v.Wall += ns
	if t.locked {
		v.Lock += ns
	}
	if t.waits {
		v.Off += ns
	}
}

// Ran implements view.Steps.
func (t *Tally) Ran(real []diff.Frame, known bool, at stack.Time, ns int64) {
	t.at(real, known, at).add(ns, t.onCPU)
}

// add adds CPU time, which is elapsed time as well if only time on the CPUs is shown.
func (v *Values) add(ns int64, elapsed bool) {
	v.CPU += ns
	if elapsed {
		v.Wall += ns
	}
}

// Unseen implements view.Steps. Other stacks already have this elapsed time.
func (t *Tally) Unseen(u view.Unsampled) {
	t.valid = 0
	t.move(t.Tree.Child(0, NotSampled), 0)
	t.current().add(u.NS, t.onCPU)
}

// Changed implements view.Steps.
func (t *Tally) Changed(depth int) { t.valid = min(t.valid, depth) }

// Other implements view.Steps.
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
		t.move(t.node, t.number(w))
		d := t.v.Wait(&w.Waiting)
		s, _ := w.State()
		t.waits = view.Waits(s)
		t.locked = t.waits && d.Excludes() && (w.Lock() != 0 || d != nil && d.Lock != "")
	}
}

// Calls is the time of several threads by function. Labels are indexes in view.Names.Funcs, where inlined
// calls are separate frames, or negative (see Word).
type Calls struct {
	*Tree
	Self []int64 // by node, without callees

	// Left counts omitted idle waits: see view.View.ShowsIdle.
	Left idle.Left

	words   []string // text of negative labels
	unknown int
	unseen  int
}

// Word returns the text of a negative label. The outermost frame of every stack is its thread's name; the
// innermost may name a wait.
func (c *Calls) Word(label int32) (word string, ok bool) {
	if label >= 0 {
		return "", false
	}
	return c.words[-1-label], true
}

// maxRoots is how many distinct names of one thread get a frame each. A thread with more has its newest name
// alone: they are numbers of requests and the like.
const maxRoots = 64

// ByCalls sums value over all threads of v, without idle waits unless v shows them. A thread that was renamed
// has a frame for each of its names, with the time that it had that name. Threads with the same name are merged. If waits is set, each stack that waited gets a frame in brackets on top that names the
// wait, if known.
func ByCalls(v *view.View, waits bool, value func(*Values) int64) *Calls {
	c := &Calls{Tree: NewTree(), unknown: v.GapFunc(stack.WhyLost), unseen: v.UnseenFunc()}
	s := callSum{Calls: c, v: v, locs: NewTree(), byName: map[string]int32{}}
	for i := range v.Threads {
		th := &v.Threads[i]
		t := Of(v, th, s.locs)
		root := s.thread(th.Label)
		left, observed := int64(0), int64(0)
		for _, j := range t.byName() {
			if name := t.Name(j); len(t.labels) <= maxRoots {
				root = s.thread(name)
			}
			k := t.Key(j)
			x := value(t.Values(j))
			switch k.State() {
			case stack.StateRunnable:
			case stack.StateRunning: // it may have waited for a CPU in between
				observed += t.Values(j).CPU
			default:
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
			at := s.stack(root, k.Node)
			if waits && k.Waiting.Wait() != 0 {
				w := k.Waiting
				at = c.Child(at, s.word("["+v.For(&w, idle).String()+"]"))
			}
			c.fillSelf()
			c.Self[at] += x
		}
		c.Left.Add(left, observed)
	}
	c.fillSelf()
	c.Folded += s.locs.Folded
	return c
}

// byName returns the numbers of all keys, those of one name after another.
func (t *Tally) byName() []int {
	out := make([]int, t.Len())
	for i := range out {
		out[i] = i
	}
	if len(t.labels) > 1 {
		slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(t.waiting[t.Wait(a)].name, t.waiting[t.Wait(b)].name) })
	}
	return out
}

// fillSelf gives each new node the value 0.
func (c *Calls) fillSelf() {
	for len(c.Self) < c.Len() {
		c.Self = append(c.Self, 0)
	}
}

// callSum translates stacks of locations to stacks of functions while ByCalls sums them.
type callSum struct {
	*Calls
	v      *view.View
	byName map[string]int32 // label by word
	locs   *Tree            // stacks of all threads
	name   int32            // label of the current thread's name
	nodes  []int32          // node in Calls by node in locs, for threads of that name; 0: not made yet
	path   []int32          // nodes in locs, inner first; reused
}

// word returns the label of a text.
func (s *callSum) word(text string) int32 {
	l, ok := s.byName[text]
	if !ok {
		s.words = append(s.words, text)
		l = int32(-len(s.words))
		s.byName[text] = l
	}
	return l
}

// thread starts a thread of that name and returns the node of its outermost frame.
func (s *callSum) thread(name string) (root int32) {
	label := s.word(name)
	if label != s.name {
		clear(s.nodes)
		s.name = label
	}
	return s.Child(0, label)
}

// stack returns the node of the stack n of locations, below root. It descends to a caller that exists
// already, then adds the frames above it.
func (s *callSum) stack(root, n int32) int32 {
	for len(s.nodes) < s.locs.Len() {
		s.nodes = append(s.nodes, 0)
	}
	s.path = s.path[:0]
	at := root
	for ; n > 0; n, _ = s.locs.Node(n) {
		if s.nodes[n] != 0 {
			at = s.nodes[n]
			break
		}
		s.path = append(s.path, n)
	}
	for i := len(s.path) - 1; i >= 0; i-- {
		_, loc := s.locs.Node(s.path[i])
		at = s.frames(at, loc)
		s.nodes[s.path[i]] = at
	}
	return at
}

// frames adds the frames of a location to the node at: functions inlined there come after their callers.
func (s *callSum) frames(at, loc int32) int32 {
	switch loc {
	case Unknown:
		return s.Child(at, int32(s.unknown))
	case NotSampled:
		return s.Child(at, int32(s.unseen))
	}
	fs := s.v.Names.Locs()[loc].Frames
	for i := len(fs) - 1; i >= 0; i-- {
		label := int32(fs[i].Func)
		if s.v.ShowsLines() {
			label = s.word(s.v.FrameName(fs[i]))
		}
		at = s.Child(at, label)
	}
	return at
}
