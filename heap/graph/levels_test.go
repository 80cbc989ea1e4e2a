package graph

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/internal/dumptest"
)

// randomDump returns a dump of random objects with all kinds of references.
func randomDump(seed uint64, n int) *dumptest.Dump {
	rng := rand.New(rand.NewPCG(seed, 1))
	version, ids := "1.0.2", 8
	if seed%2 == 1 {
		version, ids = "1.0.3", 4
	}
	d := dumptest.New(version, ids)
	ref := func(name string) dumptest.Field { return dumptest.Field{Name: name, Type: hprof.TypeObject} }
	d.Class("java.lang.Object", "", 0, nil)
	d.Class("java.lang.Class", "java.lang.Object", 0, nil)
	d.Class("java.lang.Object[]", "java.lang.Object", 0, nil)
	d.Class("java.lang.Thread", "java.lang.Object", 0, nil, ref("name"))
	d.Class("java.lang.ref.Reference", "java.lang.Object", 0, nil, ref("referent"))
	d.Class("java.lang.ref.WeakReference", "java.lang.ref.Reference", 0, nil)
	d.Class("java.lang.ref.SoftReference", "java.lang.ref.Reference", 0, nil)
	all := make([]uint64, n)
	for i := range all {
		all[i] = d.Alloc(64)
	}
	some := func() uint64 {
		if rng.IntN(4) == 0 {
			return 0
		}
		return all[rng.IntN(n)]
	}
	loader := some()
	d.Class("app.Node", "java.lang.Object", loader, []dumptest.Field{{Name: "root", Type: hprof.TypeObject, Value: some()}}, ref("left"), ref("right"),
		dumptest.Field{Name: "value", Type: hprof.TypeInt})
	holder := d.Class("app.Holder", "java.lang.Object", 0, []dumptest.Field{{Name: "a", Type: hprof.TypeObject, Value: some()}, {Name: "b", Type: hprof.TypeObject, Value: some()}})
	d.Root(hprof.SubRootSticky, holder)
	for i, id := range all {
		switch rng.IntN(10) {
		case 0:
			d.InstanceAt(id, "java.lang.ref.WeakReference", map[string]any{"referent": some()})
		case 1:
			d.InstanceAt(id, "java.lang.ref.SoftReference", map[string]any{"referent": some()})
		case 2:
			d.InstanceAt(id, "java.lang.Object", nil)
		default:
			d.InstanceAt(id, "app.Node", map[string]any{"left": some(), "right": some(), "value": i})
		}
	}
	elements := make([]uint64, 3)
	for i := range elements {
		elements[i] = some()
	}
	array := d.Objects("java.lang.Object[]", elements...)
	thread := d.Instance("java.lang.Thread", map[string]any{"name": array})
	d.Root(hprof.SubRootThread, thread, 1, 1)
	d.Root(hprof.SubRootJavaFrame, all[rng.IntN(n)], 1, 0)
	d.Root(hprof.SubRootJNILocal, all[rng.IntN(n)], 1, 0xffffffff)
	return d
}

// All levels say the same of the same objects.
func TestLevelsAgree(t *testing.T) {
	for seed := range uint64(60) {
		b := randomDump(seed, 5+int(seed)).Encode()
		open := func(l Level) *Graph {
			g, err := New(t.Context(), bytes.NewReader(b), int64(len(b)), Options{Level: l, Temp: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			if g.Level() != l {
				t.Fatalf("level %v, want %v", g.Level(), l)
			}
			return g
		}
		full, mapped, paths, histogram := open(LevelFull), open(LevelMapped), open(LevelPaths), open(LevelHistogram)
		for o := Object(1); int(o) <= full.Len(); o++ {
			if full.ID(o) != paths.ID(o) || full.Class(o).Name != paths.Class(o).Name || full.Kind(o) != paths.Kind(o) {
				t.Fatalf("seed %d: object %d differs", seed, o)
			}
			if full.Retained(o) != mapped.Retained(o) || full.Dominator(o) != mapped.Dominator(o) {
				t.Fatalf("seed %d: object %d retains %d, mapped %d", seed, o, full.Retained(o), mapped.Retained(o))
			}
			a, okA := full.Path(o)
			c, okC := paths.Path(o)
			if okA != okC || full.Strength(o) == Strong && len(a.Steps) != len(c.Steps) {
				t.Fatalf("seed %d: path of object %d: %d steps %v, level paths %d steps %v", seed, o, len(a.Steps), okA, len(c.Steps), okC)
			}
			if full.Strength(o) != Strong {
				continue
			}
			kept, n := full.RetainedBy(o)
			if k, m := paths.RetainedBy(o); n != m || k != kept {
				t.Fatalf("seed %d: object %d keeps %d bytes in %d objects, level paths %d in %d", seed, o, kept, n, k, m)
			}
			if kept != full.Retained(o) {
				t.Fatalf("seed %d: object %d: tree %d, search %d", seed, o, full.Retained(o), kept)
			}
		}
		counts, bytes := map[string]uint64{}, map[string]int64{}
		for _, l := range full.Histogram() {
			counts[l.Class.Name] += l.Count
			bytes[l.Class.Name] += l.Bytes
		}
		for _, g := range []*Graph{mapped, paths, histogram} {
			for _, l := range g.Histogram() {
				if counts[l.Class.Name] != l.Count || bytes[l.Class.Name] != l.Bytes {
					t.Fatalf("seed %d, %v: %d of %s, want %d; %d bytes, want %d", seed, g.Level(), l.Count, l.Class.Name, counts[l.Class.Name], l.Bytes, bytes[l.Class.Name])
				}
			}
		}
		for _, g := range []*Graph{full, mapped, paths, histogram} {
			g.Close()
		}
	}
}

// Memory that is allowed decides the level.
func TestMemoryChoosesTheLevel(t *testing.T) {
	b := randomDump(1, 5000).Encode()
	last := LevelHistogram
	seen := map[Level]bool{}
	for memory := int64(20 << 10); memory < 8<<20; memory += memory / 16 {
		g, err := New(t.Context(), bytes.NewReader(b), int64(len(b)), Options{Memory: memory, Temp: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if g.Level() > last {
			t.Errorf("%d bytes: %v, with less it was %v", memory, g.Level(), last)
		}
		if g.Level() == LevelFull && g.PeakBytes() > memory+memory/10 { // arrays are of whole pages
			t.Errorf("%d bytes were allowed, %d are used", memory, g.PeakBytes())
		}
		last = g.Level()
		seen[last] = true
		g.Close()
	}
	if len(seen) != 4 {
		t.Errorf("levels %v, want all four", seen)
	}
}

// IDs that are far apart need a sorted array, with the same results.
func TestIndexOfAnyIDs(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for round := range 200 {
		n := 1 + rng.IntN(3000)
		mask := uint64(1)<<(10+rng.IntN(54)) - 1
		shift := uint(rng.IntN(5))
		ids := map[uint64]bool{}
		var s span
		var list []uint64
		for range n {
			id := rng.Uint64() & mask << shift
			if !ids[id] {
				ids[id] = true
				s.add(id)
				list = append(list, id)
			}
		}
		indexes := []*index{newSorted(append([]uint64(nil), list...))}
		if s.pages() > 0 {
			x := newBitmap(s, make([]uint64, s.maxWords()))
			for _, id := range list {
				x.set(id)
			}
			x.seal()
			indexes = append(indexes, x)
		}
		for _, x := range indexes {
			if int(x.n) != len(list) {
				t.Fatalf("round %d: %d objects, want %d", round, x.n, len(list))
			}
			last := uint64(0)
			for o := uint32(1); o <= x.n; o++ {
				id := x.id(o)
				if !ids[id] || x.find(id) != o || o > 1 && id <= last {
					t.Fatalf("round %d: object %d has ID %#x, which is object %d", round, o, id, x.find(id))
				}
				last = id
			}
			for range 1000 {
				id := rng.Uint64() & mask
				if (x.find(id) != 0) != ids[id] {
					t.Fatalf("round %d: ID %#x: found %d, is there: %v", round, id, x.find(id), ids[id])
				}
			}
		}
	}
}

// Any bytes: no panic, and no more memory than the file justifies.
func FuzzGraph(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(randomDump(seed, 12).Encode(), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte, level uint8) {
		g, err := New(t.Context(), bytes.NewReader(b), int64(len(b)), Options{Level: Level(level%4 + 1), Partial: level&4 != 0, Workers: 1, Temp: t.TempDir()})
		if err != nil {
			return
		}
		defer g.Close()
		// An object has at least 9 bytes of the file and a reference 4.
		if limit := int64(len(b))*200 + 1<<20; g.PeakBytes() > limit {
			t.Fatalf("%d bytes of arrays for a file of %d", g.PeakBytes(), len(b))
		}
		if g.Len() > len(b)/9 {
			t.Fatalf("%d objects in %d bytes", g.Len(), len(b))
		}
		g.Histogram()
		g.Threads()
		for _, t := range g.Threads() {
			g.Stack(t)
		}
		g.Arrays(t.Context(), 100, func(*Array) {})
		if g.Level() == LevelHistogram {
			return
		}
		for o := Object(1); int(o) <= min(g.Len(), 30); o++ {
			g.Path(o)
			g.Fields(o)
			g.Text(o, 10)
			g.Heap(o)
			g.Size(o)
			g.Elements(o, 10, func(int, Value) bool { return true })
			g.Referrers(o, 3)
			g.RetainedBy(o)
			if g.HasTree() {
				g.Dominated(o)
			}
		}
	})
}
