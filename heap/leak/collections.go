package leak

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/heap/graph"
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
	type kind struct {
		class string
		fill  [len(fills)]Class
		waste int64
		best  graph.Object // with most waste
		most  int64
		count int
	}
	kinds := map[*graph.Class]*kind{}
	type slots struct {
		container
		array, count graph.Slot
		hasCount     bool
	}
	of := map[*graph.Class]*slots{}
	for _, c := range g.Classes() {
		if c.Count == 0 || c.IsArray() {
			continue
		}
		for _, k := range containers {
			if !c.Is(k.class) {
				continue
			}
			array, ok := g.Slot(c, k.class, k.array)
			if !ok {
				continue
			}
			t := &slots{container: k, array: array}
			if k.count != "" {
				if t.count, t.hasCount = g.Slot(c, k.class, k.count); !t.hasCount {
					continue
				}
			}
			of[c] = t
			break
		}
	}
	if len(of) == 0 {
		return nil
	}
	ref := s.refBytes()
	counted := map[graph.Object]bool{} // arrays that several share, as empty lists do
	for o := graph.Object(1); int(o) <= g.Len(); o++ {
		if o&0xfffff == 0 && s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if g.Kind(o) != graph.KindInstance {
			continue
		}
		t := of[g.Class(o)]
		if t == nil || g.Strength(o) == graph.Garbage {
			continue
		}
		v, ok := g.At(o, t.array)
		if !ok {
			continue
		}
		array := g.Find(v.Bits)
		if v.Bits == 0 || array == 0 {
			continue
		}
		capacity := int64(g.Length(array))
		n := capacity
		if t.hasCount {
			v, _ := g.At(o, t.count)
			if n = int64(v.Bits); t.count != (graph.Slot{}) && v.Type != 0 {
				n = int64(int32(v.Bits))
			}
		} else {
			n = 0
			g.Elements(array, 1<<20, func(_ int, v graph.Value) bool {
				if v.Bits != 0 {
					n++
				}
				return true
			})
		}
		n = min(max(n, 0), capacity)
		if capacity == 0 {
			continue
		}
		if capacity <= 16 && n == 0 { // shared by all empty ones, perhaps
			if counted[array] {
				continue
			}
			counted[array] = true
		}
		k := kinds[g.Class(o)]
		if k == nil {
			k = &kind{class: g.Class(o).Name}
			kinds[g.Class(o)] = k
		}
		waste := (capacity - n) * ref
		i := 0
		for float64(n) > fills[i].upTo*float64(capacity) {
			i++
		}
		k.fill[i].Count++
		k.fill[i].Bytes += waste
		k.waste += waste
		k.count++
		if k.best == 0 || waste > k.most {
			k.best, k.most = o, waste
		}
	}
	var all []*kind
	for _, k := range kinds {
		all = append(all, k)
	}
	sparse := func(k *kind) int64 { return k.fill[0].Bytes + k.fill[1].Bytes + k.fill[2].Bytes }
	slices.SortFunc(all, func(a, b *kind) int { return cmp.Or(cmp.Compare(sparse(b), sparse(a)), cmp.Compare(a.class, b.class)) })
	for _, k := range all[:min(len(all), 5)] {
		if !s.worth(sparse(k)) {
			break
		}
		n := int(k.fill[0].Count + k.fill[1].Count + k.fill[2].Count)
		f := Finding{Kind: KindCollections, Class: k.class, Count: n, Bytes: sparse(k), object: k.best,
			Title: fmt.Sprintf("%d objects of %s are at most half full: %s of capacity without elements", n, k.class, Bytes(sparse(k))),
			Notes: []string{"the path leads to the one with most of it"}}
		for i, u := range k.fill {
			if u.Count > 0 {
				f.Content = append(f.Content, Class{Name: fills[i].name, Count: u.Count, Bytes: u.Bytes, Retained: -1})
			}
		}
		s.add(f)
	}
	return nil
}

// refBytes is what a reference takes of the heap.
func (s *search) refBytes() int64 { return s.g.RefBytes() }
