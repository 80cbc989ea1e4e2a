package leak

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/internal/plural"
)

// A container is a class of collections: the field with its array, and the one with how
// many elements it has.
type container struct {
	class, array, count string
}

// containers are of java.util in OpenJDK 6 to 25 and Android.
var containers = []container{
	{"java.util.ArrayList", "elementData", "size"},
	{"java.util.ArrayList", "array", "size"}, // Android up to 6
	{"java.util.Vector", "elementData", "elementCount"},
	{"java.util.HashMap", "table", "size"},
	{"java.util.Hashtable", "table", "count"},
	{"java.util.WeakHashMap", "table", "size"},
	{"java.util.IdentityHashMap", "table", "size"},
	{"java.util.concurrent.ConcurrentHashMap", "table", "baseCount"},
	{"java.util.ArrayDeque", "elements", ""},
	{"java.util.PriorityQueue", "queue", "size"},
	{"android.util.ArrayMap", "mArray", "mSize"},
	{"android.util.SparseArray", "mValues", "mSize"},
	{"android.util.LongSparseArray", "mValues", "mSize"},
}

// fills are the classes into which collections are sorted by how full they are.
var fills = [...]struct {
	upTo float64
	name string
}{{0, "empty"}, {0.2, "up to 20 % full"}, {0.5, "20 to 50 % full"}, {1, "more than half full"}}

// collections finds capacity that is not used.
func (s *search) collections() error {
	g := s.g
	of := s.containerSlots()
	if len(of) == 0 {
		return nil
	}
	f := fillCount{s: s, ref: s.refBytes(), kinds: map[*graph.Class]*fillKind{}, counted: map[graph.Object]bool{}}
	for o := graph.Object(1); int(o) <= g.Len(); o++ {
		if o&0xfffff == 0 && s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if g.Kind(o) != graph.KindInstance {
			continue
		}
		if t := of[g.Class(o)]; t != nil && g.Strength(o) != graph.Garbage {
			f.collection(o, t)
		}
	}
	f.report()
	return nil
}

// containerSlots are where a class of collections has the fields of its container.
type containerSlots struct {
	array, count graph.Slot
	hasCount     bool
}

// containerSlots returns those of all classes of collections in the dump.
func (s *search) containerSlots() map[*graph.Class]*containerSlots {
	of := map[*graph.Class]*containerSlots{}
	for _, c := range s.g.Classes() {
		if c.Count == 0 || c.IsArray() {
			continue
		}
		for _, k := range containers {
			if t := s.slotsOf(c, k); t != nil {
				of[c] = t
				break
			}
		}
	}
	return of
}

// slotsOf returns the slots of a class; nil: it is not such a container.
func (s *search) slotsOf(c *graph.Class, k container) *containerSlots {
	if !c.Is(k.class) {
		return nil
	}
	array, ok := s.g.Slot(c, k.class, k.array)
	if !ok {
		return nil
	}
	t := &containerSlots{array: array}
	if k.count != "" {
		if t.count, t.hasCount = s.g.Slot(c, k.class, k.count); !t.hasCount {
			return nil
		}
	}
	return t
}

// fillCount counts collections by their class and by how full they are.
type fillCount struct {
	s       *search
	ref     int64 // bytes of a reference
	kinds   map[*graph.Class]*fillKind
	counted map[graph.Object]bool // arrays that several share, as empty lists do
}

// fillKind is a class of collections.
type fillKind struct {
	class string
	fill  [len(fills)]Class
	best  graph.Object // with most waste
	most  int64
}

// collection adds the collection o.
func (f *fillCount) collection(o graph.Object, t *containerSlots) {
	g := f.s.g
	v, ok := g.At(o, t.array)
	if !ok {
		return
	}
	array := g.Find(v.Bits)
	if v.Bits == 0 || array == 0 {
		return
	}
	capacity := int64(g.Length(array))
	if capacity == 0 {
		return
	}
	n := min(max(f.elements(o, t, array), 0), capacity)
	if capacity <= 16 && n == 0 { // shared by all empty ones, perhaps
		if f.counted[array] {
			return
		}
		f.counted[array] = true
	}
	f.add(o, n, capacity)
}

// elements returns how many elements a collection has.
func (f *fillCount) elements(o graph.Object, t *containerSlots, array graph.Object) (n int64) {
	g := f.s.g
	if t.hasCount {
		v, _ := g.At(o, t.count)
		if t.count != (graph.Slot{}) && v.Type != 0 {
			return int64(int32(v.Bits))
		}
		return int64(v.Bits)
	}
	g.Elements(array, 1<<20, func(_ int, v graph.Value) bool {
		if v.Bits != 0 {
			n++
		}
		return true
	})
	return n
}

// add counts a collection of n elements.
func (f *fillCount) add(o graph.Object, n, capacity int64) {
	class := f.s.g.Class(o)
	k := f.kinds[class]
	if k == nil {
		k = &fillKind{class: class.Name}
		f.kinds[class] = k
	}
	waste := (capacity - n) * f.ref
	i := 0
	for float64(n) > fills[i].upTo*float64(capacity) {
		i++
	}
	k.fill[i].Count++
	k.fill[i].Bytes += waste
	if k.best == 0 || waste > k.most {
		k.best, k.most = o, waste
	}
}

// sparse sums up the collections that are at most half full.
func (k *fillKind) sparse() (count int, bytes int64) {
	for _, u := range k.fill[:3] {
		count += int(u.Count)
		bytes += u.Bytes
	}
	return count, bytes
}

// report adds a finding for each of the classes with most unused capacity.
func (f *fillCount) report() {
	var all []*fillKind
	for _, k := range f.kinds {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b *fillKind) int {
		_, x := a.sparse()
		_, y := b.sparse()
		return cmp.Or(cmp.Compare(y, x), cmp.Compare(a.class, b.class))
	})
	for _, k := range all[:min(len(all), 5)] {
		n, bytes := k.sparse()
		if !f.s.worth(bytes) {
			break
		}
		found := Finding{Kind: KindCollections, Class: k.class, Count: n, Bytes: bytes, object: k.best,
			Title: fmt.Sprintf("%d %s of %s %s at most half full: %s of capacity without elements", n, plural.Word(n, "object", "objects"), k.class, plural.Word(n, "is", "are"), Bytes(bytes)),
			Notes: []string{"the path leads to the one with most of it"}}
		for i, u := range k.fill {
			if u.Count > 0 {
				found.Content = append(found.Content, Class{Name: fills[i].name, Count: u.Count, Bytes: u.Bytes, Retained: -1})
			}
		}
		f.s.add(found)
	}
}

// refBytes is what a reference takes of the heap.
func (s *search) refBytes() int64 { return s.g.RefBytes() }
