package snapshot

//sliver:layer live

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/hotspot"
	"github.com/sliverprof/sliver/heap/leak"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// The graph of a copy, whose objects are not encoded, is that of the dump that is written: object by object, class by
// class, finding by finding, with the same losses. SLIVER_LONG=1 takes more kinds of objects and layouts.
func TestGraphEqualsDump(t *testing.T) {
	testprog.Whole(t, "TestEqualsJcmd has each object of the dump")
	testprog.Unraced(t, "TestDamagedMemory has the same goroutines, and fewer objects")
	long := os.Getenv("SLIVER_LONG") != ""
	kinds := "list,loader,threadlocal,duplicates,nulls,references"
	if long {
		kinds += ",map,fill,zeros,array"
	}
	for version, all := range chosen() {
		if !long {
			all = all[:1]
		}
		for _, flags := range all {
			t.Run(version+strings.Join(flags, ""), func(t *testing.T) {
				kinds := kinds
				if version != "17" {
					kinds += ",virtual"
				}
				j := take(t, open(t, java(t, version, kinds, flags...).PID))
				defer j.Close()
				levels := []graph.Options{{}, {Report: true}, {Flat: true}, {Level: graph.LevelMapped}, {Level: graph.LevelPaths, Memory: 1 << 30}, {Level: graph.LevelHistogram}}
				if !long {
					levels = slices.Delete(levels, 2, 4)
				}
				sameGraphs(t, j, levels...)
				if err := j.Live(t.Context()); err != nil {
					t.Fatal(err)
				}
				sameGraphs(t, j, graph.Options{Report: true})
			})
		}
	}
	t.Run("churn", func(t *testing.T) { // objects that are being made, and stale references
		j := take(t, open(t, java(t, "21", "churn,unload").PID))
		defer j.Close()
		sameGraphs(t, j, graph.Options{})
	})
}

// sameGraphs compares the graph of a copy with that of its dump, at some levels.
func sameGraphs(t *testing.T, j *Java, levels ...graph.Options) {
	t.Helper()
	path := filepath.Join(folder(t), "x.hprof")
	want := write(t, j, path)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, o := range levels {
		d, err := j.Dump(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, written := newGraph(t, d, d.Size(), o), newGraph(t, file, want.Size(), o)
		if d.Nulled() != want.Nulled() {
			t.Errorf("%v: %d references to no object counted, %d as the dump was written", o.Level, d.Nulled(), want.Nulled())
		}
		sameClasses(t, got, written)
		if o.Level == 0 || o.Level == graph.LevelPaths {
			sameObjects(t, got, written)
		}
		sameText(t, "arrays", arrays(t, got), arrays(t, written))
		sameText(t, "report", report(t, got), report(t, written))
		if o.Report { // digests of arrays say the same as a pass over them
			plain := newGraph(t, file, want.Size(), graph.Options{})
			sameText(t, "report by digests", report(t, got), report(t, plain))
			plain.Close()
		}
		const room = 600_000 * 4 // for the references of the array of "nulls", which a worker uses for the next objects in part
		if o.Level == 0 && got.PeakBytes() > 100*int64(got.Len())+room {
			t.Errorf("%d bytes for %d objects", got.PeakBytes(), got.Len())
		}
		got.Close()
		written.Close()
	}
	t.Logf("%d objects, %d references to no object", want.Objects, want.Nulled())
}

var _ graph.Memory = (*hotspot.Dump)(nil)

func newGraph(t testing.TB, file io.ReaderAt, size int64, o graph.Options) *graph.Graph {
	t.Helper()
	g, err := graph.New(t.Context(), file, size, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// sameClasses compares counts, sizes, roots and losses.
func sameClasses(t *testing.T, got, want *graph.Graph) {
	t.Helper()
	of := func(g *graph.Graph) string {
		var b strings.Builder
		fmt.Fprintln(&b, g.Header(), g.Level(), g.Len(), g.Refs(), g.Dangled, g.Twice, g.LostRoots, g.Total(), g.RefBytes(), g.Roots())
		for _, c := range g.Classes() {
			fmt.Fprintln(&b, c.Name, c.ID, c.Object, c.Loader, c.Count, c.Elements)
		}
		lines := g.Histogram()
		slices.SortFunc(lines, func(a, b graph.Line) int {
			return strings.Compare(fmt.Sprint(a.Class.Name, a.Class.ID), fmt.Sprint(b.Class.Name, b.Class.ID))
		})
		for _, l := range lines {
			fmt.Fprintln(&b, l.Class.Name, l.Count, l.Bytes, l.Retained)
		}
		return b.String()
	}
	sameText(t, "classes", of(got), of(want))
}

// sameObjects compares each object: what it is, holds and keeps, and its values.
func sameObjects(t *testing.T, got, want *graph.Graph) {
	t.Helper()
	of := func(g *graph.Graph, o graph.Object) string {
		s := fmt.Sprint(g.ID(o), g.Kind(o), g.Class(o).Name, g.Size(o), g.Length(o), g.RefsOf(o, nil), g.Strength(o), g.Retained(o))
		if g.HasTree() {
			s += fmt.Sprint(g.Dominator(o))
		}
		for _, f := range g.Fields(o) {
			s += fmt.Sprint(f.Name, f.Value)
		}
		h := fnv.New64a()
		g.Elements(o, 20, func(i int, v graph.Value) bool {
			h.Write([]byte{byte(i), byte(v.Type), byte(v.Bits), byte(v.Bits >> 8), byte(v.Bits >> 16), byte(v.Bits >> 24), byte(v.Bits >> 32)})
			return true
		})
		return s + fmt.Sprint(h.Sum64())
	}
	bad := 0
	for o := graph.Object(1); int(o) <= min(got.Len(), want.Len()) && bad < 5; o++ {
		if a, b := of(got, o), of(want, o); a != b {
			t.Errorf("object %d is\n%.300s, want\n%.300s", o, a, b)
			bad++
		}
	}
	if !slices.Equal(got.FileOrder(), want.FileOrder()) {
		t.Error("objects are in another order")
	}
}

// arrays lists all arrays with their contents.
func arrays(t *testing.T, g *graph.Graph) string {
	t.Helper()
	var b strings.Builder
	err := g.Arrays(t.Context(), 64<<10, func(a *graph.Array) {
		h := fnv.New64a()
		h.Write(a.Bytes)
		fmt.Fprintln(&b, a.Offset, a.ID, a.Object, a.Class.Name, a.Type, a.Length, a.Size, a.Whole, a.Nulls, a.Same, len(a.Bytes), h.Sum64())
		if a.Length == 600_000 || a.Length == 33_554_432 {
			x, ok := g.ArrayAt(a.Offset, 100)
			fmt.Fprintln(&b, ok, x.ID, x.Bytes)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func report(t testing.TB, g *graph.Graph) string {
	t.Helper()
	r, err := leak.Find(t.Context(), g, "x", leak.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// sameText reports the first line in which texts differ.
func sameText(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Errorf("%s: line %d is\n%.500s, want\n%.500s", what, i, a[i], b[i])
			return
		}
	}
	t.Errorf("%s: %d lines, want %d", what, len(a), len(b))
}

// BenchmarkCopy copies processes of 2.4 million objects and of 5 million small ones, and reads the copies: the walk, the graph
// and the report from the objects, the same from their encoded form, and the dump. cpu-ns/object is CPU time, which
// other work on the machine changes less.
func BenchmarkCopy(b *testing.B) {
	for _, kind := range []string{"big", "small"} {
		b.Run(kind, func(b *testing.B) { benchmarkCopy(b, open(b, java(b, "25", kind, "-Xmx1g").PID)) })
	}
}

func benchmarkCopy(b *testing.B, p *target.Process) {
	j := take(b, p)
	defer j.Close()
	each := func(name string, f func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			begin := used(b)
			for b.Loop() {
				f(b)
			}
			all := float64(b.N) * float64(j.Heap.Objects)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/all, "ns/object")
			b.ReportMetric(float64(used(b)-begin)/all, "cpu-ns/object")
		})
	}
	dump := func(b *testing.B) *hotspot.Dump {
		d, err := j.Dump(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		return d
	}
	leaks := func(b *testing.B, file io.ReaderAt, d *hotspot.Dump) {
		g := newGraph(b, file, d.Size(), graph.Options{Report: true})
		report(b, g)
		g.Close()
	}
	each("histogram", func(b *testing.B) { take(b, p).Close() })
	each("leaks/objects", func(b *testing.B) { d := dump(b); leaks(b, d, d) })
	each("leaks/encoded", func(b *testing.B) { d := dump(b); leaks(b, struct{ io.ReaderAt }{d}, d) })
	each("dump", func(b *testing.B) {
		d := dump(b)
		b.SetBytes(d.Size())
		if err := d.Write(b.Context(), io.Discard); err != nil {
			b.Fatal(err)
		}
	})
}

// used is the CPU time of this process in nanoseconds.
func used(b *testing.B) int64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
