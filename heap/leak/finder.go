package leak

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/heap/graph"
)

// A finder looks for shortest paths in the order in which Shark does (PathFinder of
// LeakCanary 2, which KOOM has a copy of): roots by kind, then by class; fields by name;
// threads, what their frames hold and known leaks of libraries last.
type finder struct {
	g       *graph.Graph
	ctx     context.Context
	nodes   []node
	place   map[graph.Object]int32 // of an object's node
	queue   []int32
	last    []int32
	late    map[graph.Object]bool // its node is in last and was not visited
	seen    map[*graph.Class]int
	library map[string]string // class and field of known leaks
	globals map[string]string // classes of JNI globals that are known leaks
	whole   bool              // look into all objects of a class
	object  *graph.Class
	leaking map[graph.Object]bool
}

// node is an object with the way to it.
type node struct {
	object  graph.Object
	parent  int32 // -1: a root
	kind    refKind
	root    graph.RootKind
	name    string
	owner   *graph.Class
	library string
	moved   bool // to the first queue
}

type refKind uint8

const (
	refField refKind = iota
	refStatic
	refElement
	refLocal
)

var refKinds = [...]string{"INSTANCE_FIELD", "STATIC_FIELD", "ARRAY_ENTRY", "LOCAL"}

// trace is a way to a leaking object, for all that have the same one by class and field.
type trace struct {
	object    graph.Object
	objects   []graph.Object
	root      graph.RootKind
	steps     []traceStep
	signature string
	library   string
	count     int
}

type traceStep struct {
	object             graph.Object
	class, name, owner string
	kind               refKind
}

// sameInstances is how many objects of a class KOOM's copy of Shark looks into.
const sameInstances = 1024

// maxFinderNodes bounds the memory of a search.
const maxFinderNodes = 64 << 20

// sharkRoots are the kinds of roots that KOOM reads, in Shark's order: by the names of its
// classes, descending.
var sharkRoots = []graph.RootKind{graph.RootThread, graph.RootThreadBlock, graph.RootStickyClass, graph.RootNativeStack,
	graph.RootJNILocal, graph.RootJNIGlobal}

func newFinder(ctx context.Context, g *graph.Graph) *finder {
	fields, globals := (&android{g: g}).known()
	return &finder{g: g, ctx: ctx, place: map[graph.Object]int32{}, late: map[graph.Object]bool{},
		seen: map[*graph.Class]int{}, library: fields, globals: globals, object: g.ClassByName("java.lang.Object"), leaking: map[graph.Object]bool{}}
}

// groups returns the ways to the objects that roots lead to, by signature. Those of known
// leaks come last.
func (f *finder) groups(leaking []graph.Object) []*trace {
	for _, o := range leaking {
		f.leaking[o] = true
	}
	found := f.search()
	f.dedup(&found)
	by := map[string]*trace{}
	var own, library []*trace
	for _, i := range found {
		t := f.trace(i)
		if old := by[t.library+"\x00"+t.signature]; old != nil {
			old.count++
			old.objects = append(old.objects, t.object)
			continue
		}
		by[t.library+"\x00"+t.signature] = t
		if t.library != "" {
			library = append(library, t)
		} else {
			own = append(own, t)
		}
	}
	return append(own, library...)
}

func (f *finder) enqueueRoots() {
	g := f.g
	for _, kind := range sharkRoots {
		var all []graph.Root
		for _, r := range g.Roots() {
			if r.Kind == kind {
				all = append(all, r)
			}
		}
		slices.SortStableFunc(all, func(a, b graph.Root) int {
			return strings.Compare(g.Class(a.Object).Name, g.Class(b.Object).Name)
		})
		for _, r := range all {
			n := node{object: r.Object, parent: -1, root: kind}
			if kind == graph.RootJNIGlobal {
				n.library = f.globals[g.Class(r.Object).Name]
			}
			f.enqueue(n)
		}
	}
}

// search visits what roots lead to and returns the nodes of leaking objects, in the order
// in which they were reached.
func (f *finder) search() (found []int32) {
	f.enqueueRoots()
	visitingLast := false
	for n := 0; len(found) < len(f.leaking); n++ {
		if n&0xffff == 0 && f.ctx.Err() != nil {
			return found
		}
		var i int32
		switch {
		case len(f.queue) > 0 && !visitingLast:
			i, f.queue = f.queue[0], f.queue[1:]
		case len(f.last) > 0:
			visitingLast = true
			f.lastOnly()
			i, f.last = f.last[0], f.last[1:]
			if f.nodes[i].moved {
				continue
			}
			delete(f.late, f.nodes[i].object)
		default:
			return found
		}
		if f.leaking[f.nodes[i].object] {
			found = append(found, i)
		}
		f.visit(i)
	}
	return found
}

// lastOnly makes all that is found from now on wait in the last queue.
func (f *finder) lastOnly() {
	f.last = append(f.last, f.queue...)
	f.queue = nil
}

func (f *finder) visit(i int32) {
	g := f.g
	o := f.nodes[i].object
	switch g.Kind(o) {
	case graph.KindClass:
		g.NamedRefs(o, 0, func(r graph.Ref) bool {
			if !r.Static || r.Name == "$staticOverhead" || r.Name == "$classOverhead" {
				return true
			}
			f.enqueue(node{object: r.To, parent: i, kind: refStatic, name: r.Name, library: f.library[g.Class(o).Name+"."+r.Name]})
			return true
		})
	case graph.KindInstance:
		var refs []graph.Ref
		g.NamedRefs(o, 0, func(r graph.Ref) bool {
			if r.Class != nil && !r.Static && r.Class != f.object && !r.Local && !r.Meta {
				refs = append(refs, r)
			}
			return true
		})
		sortedRefs(refs)
		for _, r := range refs {
			library, ignored := f.known(g.Class(o), r.Name)
			if !ignored {
				f.enqueue(node{object: r.To, parent: i, kind: refField, name: r.Name, owner: r.Class, library: library})
			}
		}
	case graph.KindObjectArray:
		k := 0 // Shark numbers the elements that are not null
		g.NamedRefs(o, 1<<31-1, func(r graph.Ref) bool {
			if r.Index < 0 {
				return true
			}
			f.enqueue(node{object: r.To, parent: i, kind: refElement, name: strconv.Itoa(k)})
			k++
			return true
		})
	}
}

// known returns whether a field of an object is one of a known leak, or one that is never
// followed.
func (f *finder) known(c *graph.Class, field string) (library string, ignored bool) {
	for k := range c.Supers {
		key := k.Name + "." + field
		if ignoredFields[key] {
			return "", true
		}
		if l := f.library[key]; l != "" {
			return l, false
		}
	}
	return "", false
}

// ignoredFields are never followed: AndroidReferenceMatchers.REFERENCES of Shark.
var ignoredFields = map[string]bool{
	"java.lang.ref.WeakReference.referent": true, "leakcanary.KeyedWeakReference.referent": true,
	"java.lang.ref.SoftReference.referent": true, "java.lang.ref.PhantomReference.referent": true,
	"java.lang.ref.Finalizer.prev": true, "java.lang.ref.Finalizer.element": true, "java.lang.ref.Finalizer.next": true,
	"java.lang.ref.FinalizerReference.prev": true, "java.lang.ref.FinalizerReference.element": true, "java.lang.ref.FinalizerReference.next": true,
	"sun.misc.Cleaner.prev": true, "sun.misc.Cleaner.next": true,
}

func (f *finder) enqueue(n node) {
	late := n.library != "" || n.parent < 0 && n.root == graph.RootThread
	if at, ok := f.place[n.object]; ok {
		if late || !f.late[n.object] {
			return
		}
		f.nodes[at].moved = true
		delete(f.late, n.object)
		f.push(n, false)
		return
	}
	if len(f.nodes) >= maxFinderNodes {
		return
	}
	if !f.leaking[n.object] && f.dull(n.object) {
		f.place[n.object] = -1
		return
	}
	f.push(n, late)
}

func (f *finder) push(n node, late bool) {
	i := int32(len(f.nodes))
	f.nodes = append(f.nodes, n)
	f.place[n.object] = i
	if late {
		f.late[n.object] = true
		f.last = append(f.last, i)
	} else {
		f.queue = append(f.queue, i)
	}
}

// dull reports whether nothing that leaks can be found behind an object.
func (f *finder) dull(o graph.Object) bool {
	g := f.g
	c := g.Class(o)
	switch g.Kind(o) {
	case graph.KindPrimitiveArray:
		return true
	case graph.KindObjectArray:
		return strings.HasSuffix(c.Name, "[]") && wrappers[strings.TrimSuffix(c.Name, "[]")]
	case graph.KindInstance:
		if wrappers[c.Name] || c.Name == "java.lang.String" {
			return true
		}
		has := false
		for k := range c.Supers {
			has = has || k != f.object && k.HasRefs()
		}
		if !has {
			return true
		}
		for _, p := range [...]string{"java.util", "android.util", "java.lang.String"} {
			if strings.HasPrefix(c.Name, p) {
				return false
			}
		}
		if !f.whole && f.seen[c] >= sameInstances {
			return true
		}
		f.seen[c]++
	}
	return false
}

// dedup leaves out paths that go through another leaking object, and orders the others as
// a walk through the tree of all paths meets them.
func (f *finder) dedup(found *[]int32) {
	type trie struct {
		kids  map[graph.Object]*trie
		order []graph.Object
		leaf  int32
	}
	root := &trie{kids: map[graph.Object]*trie{}, leaf: -1}
	for _, i := range *found {
		path := f.up(i)
		t := root
		for k, n := range path {
			o := f.nodes[n].object
			c := t.kids[o]
			if k == len(path)-1 { // it replaces longer paths through it
				if c == nil {
					t.order = append(t.order, o)
				}
				t.kids[o] = &trie{leaf: n}
				break
			}
			if c == nil {
				c = &trie{kids: map[graph.Object]*trie{}, leaf: -1}
				t.kids[o] = c
				t.order = append(t.order, o)
			}
			if c.leaf >= 0 {
				break
			}
			t = c
		}
	}
	var out []int32
	todo := []*trie{root}
	for len(todo) > 0 {
		t := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if t.leaf >= 0 {
			out = append(out, t.leaf)
			continue
		}
		for k := len(t.order) - 1; k >= 0; k-- {
			todo = append(todo, t.kids[t.order[k]])
		}
	}
	*found = out
}

// up returns the nodes from the root to a node.
func (f *finder) up(i int32) (path []int32) {
	for ; i >= 0; i = f.nodes[i].parent {
		path = append(path, i)
	}
	slices.Reverse(path)
	return path
}

func (f *finder) trace(i int32) *trace {
	g := f.g
	path := f.up(i)
	t := &trace{object: f.nodes[i].object, root: f.nodes[path[0]].root, count: 1}
	t.objects = []graph.Object{t.object}
	t.library = f.nodes[path[0]].library
	var text strings.Builder
	for k, n := range path[1:] {
		from := f.nodes[path[k]].object
		to := &f.nodes[n]
		s := traceStep{object: from, class: g.Class(from).Name, name: to.name, owner: g.Class(from).Name, kind: to.kind}
		if to.owner != nil {
			s.owner = to.owner.Name
		}
		generic := s.name
		switch s.kind {
		case refElement:
			generic = "[x]"
			s.name = "[" + s.name + "]"
		case refLocal:
			generic = "<Java Local>"
		}
		text.WriteString(s.class)
		text.WriteString(generic)
		t.steps = append(t.steps, s)
		if t.library == "" {
			t.library = to.library
		}
	}
	if t.library != "" {
		text.Reset()
		text.WriteString(f.pattern(t))
	}
	t.signature = sha(text.String())
	return t
}

// pattern returns how Shark writes the place of a known leak.
func (f *finder) pattern(t *trace) string {
	dot := strings.LastIndexByte(t.library, '.')
	if f.globals[t.library] != "" || dot < 0 {
		return "native global variable referencing " + t.library
	}
	place := t.library[:dot] + "#" + t.library[dot+1:]
	for _, s := range t.steps {
		if s.kind == refStatic && s.class+"."+s.name == t.library {
			return "static field " + place
		}
	}
	return "instance field " + place
}
