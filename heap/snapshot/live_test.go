package snapshot

//sliver:layer live

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/internal/testprog"
)

// Of the objects that only a reference holds, and of garbage, those stay that HotSpot keeps. Nothing has been collected before.
func TestLiveReferences(t *testing.T) {
	for _, version := range []string{"17", "21", "25"} {
		t.Run(version, func(t *testing.T) {
			if testing.Short() && version != "21" {
				t.Skip("the short form takes some versions only")
			}
			proc := java(t, version, "references,list,fill", "-XX:+UseSerialGC")
			j := take(t, open(t, proc.PID))
			defer j.Close()
			count := func() map[string]uint64 {
				n := map[string]uint64{}
				for _, c := range j.Heap.Classes {
					n[strings.TrimPrefix(c.Name, "HeapLeaks$")] += c.Count
				}
				return n
			}
			all, objects := count(), j.Heap.Objects
			for name, n := range map[string]uint64{"Dropped": 700, "Weakly": 500, "Softly": 500, "Phantomly": 500, "Finalized": 500} {
				if all[name] != n {
					t.Errorf("%s: %d of all objects, want %d", name, all[name], n)
				}
			}
			if err := j.Live(t.Context()); err != nil {
				t.Fatal(err)
			}
			live := count()
			for name, n := range map[string][2]uint64{"Dropped": {0, 40}, "Weakly": {0, 5}, "Softly": {500, 500}, "Phantomly": {0, 5}, "Finalized": {500, 500}} {
				if live[name] < n[0] || live[name] > n[1] { // a stack may still have the address of some
					t.Errorf("%s: %d objects live, want %d to %d", name, live[name], n[0], n[1])
				}
			}
			if j.Heap.Objects >= objects || live["java/lang/Class"] == 0 {
				t.Errorf("%d objects of %d, %d classes", j.Heap.Objects, objects, live["java/lang/Class"])
			}
			path := filepath.Join(folder(t), "live.hprof")
			d := write(t, j, path)
			got := load(t, path)
			dangling(t, got)
			if uint64(len(got.objects)) != d.Objects || d.Nulled() > 0 {
				t.Errorf("%d objects in the file of %d, %d references dropped", len(got.objects), d.Objects, d.Nulled())
			}
		})
	}
}

// After a collection the objects that are reachable are those of jcmd's dump of live objects.
func TestLiveEqualsJcmd(t *testing.T) {
	testprog.Whole(t, "TestEqualsJcmd has all objects")
	testprog.Unraced(t, oneGoroutine)
	for version, all := range chosen() {
		for _, flags := range all {
			t.Run(version+strings.Join(flags, ""), func(t *testing.T) {
				kinds := "map,list,loader,threadlocal,duplicates,fill,nulls,array"
				if version != "17" {
					kinds += ",virtual"
				}
				proc := java(t, version, kinds, flags...)
				jcmd(t, proc.PID, "GC.run") // and once more by the dump: the first one promotes
				dir := folder(t)
				ours, theirs := filepath.Join(dir, "ours.hprof"), filepath.Join(dir, "theirs.hprof")
				jcmd(t, proc.PID, "GC.heap_dump", theirs)
				j := take(t, open(t, proc.PID))
				if err := j.Live(t.Context()); err != nil {
					t.Fatal(err)
				}
				write(t, j, ours)
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				compareLive(t, load(t, ours), load(t, theirs), unreachable(t, theirs))
				t.Logf("marked %d objects in %v", j.Heap.Objects, j.Mark)
			})
		}
	}
}

// unreachable returns the arrays of int that no root of a dump leads to: HotSpot fills gaps between objects with them.
func unreachable(t *testing.T, path string) map[uint64]bool {
	t.Helper()
	g, err := graph.Open(t.Context(), path, graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	fillers, held := map[uint64]bool{}, 0
	for o := graph.Object(1); int(o) <= g.Len(); o++ {
		if g.Kind(o) != graph.KindPrimitiveArray || g.Class(o).Element() != hprof.TypeInt {
			continue
		}
		if g.Strength(o) == graph.Garbage {
			fillers[g.ID(o)] = true
		} else {
			held++
		}
	}
	if held < 20 {
		t.Errorf("only %d arrays of int are held", held)
	}
	return fillers
}

// compareLive compares dumps by the objects' addresses.
func compareLive(t *testing.T, ours, theirs *dump, fillers map[uint64]bool) {
	t.Helper()
	both, fewer, more := 0, map[string]int{}, map[string]int{}
	nFewer, nMore := 0, 0
	for id, o := range theirs.objects {
		x, ok := ours.objects[id]
		switch {
		case !ok && fillers[id]:
			fewer["filler"]++
		case !ok:
			nFewer++
			fewer[theirs.name(o)]++
		case x.tag != o.tag || x.class != o.class:
			t.Errorf("%#x is of %s, in jcmd's dump of %s", id, ours.name(x), theirs.name(o))
		default:
			both++
		}
	}
	for id, o := range ours.objects {
		if _, ok := theirs.objects[id]; !ok {
			nMore++
			more[ours.name(o)]++
		}
	}
	// jcmd's own thread has objects. Conservative: a dead word of a stack may be the address of an object, which holds others.
	if both < 50_000 || nFewer > 8 || nMore > both/1000 {
		t.Errorf("%d objects of jcmd's dump are missing, %d are only in ours", nFewer, nMore)
	}
	t.Logf("%d in both, %d only jcmd's %v, %d only ours %v", both, nFewer, top(fewer), nMore, top(more))
}
