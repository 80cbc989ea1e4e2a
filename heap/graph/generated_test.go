package graph

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// Sizes in the heap that bench/heapgen simulates: a table of nodes, each with a key, its text, and an item
// with its data. Items are linked in lists of a thousand.
const (
	genTable = 0x700002000
	genNode  = 32 + 24 + 40 // with key and text
	genItem  = 32 + 24      // with data
	genEntry = genNode + genItem
	genList  = 1000
)

// generated returns the path of a heap dump of n objects, and how many entries its table has.
func generated(t *testing.T, n int) (string, int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gen.hprof")
	if out, err := exec.Command("go", "run", "../../bench/heapgen", "-objects", strconv.Itoa(n), "-o", path).CombinedOutput(); err != nil {
		t.Fatalf("heapgen: %v\n%s", err, out)
	}
	return path, n / 5
}

// checkGenerated compares retained sizes with those that heapgen's heap has by construction: an item that
// another one of its list refers to is dominated by the table, the first of a list by its node.
func checkGenerated(t *testing.T, g *Graph, entries int) {
	t.Helper()
	table := int64(16+entries*4+7) / 8 * 8
	want := func(id uint64, bytes int64) {
		o := g.Find(id)
		if o == 0 {
			t.Errorf("no object %#x", id)
			return
		}
		got := g.Retained(o)
		if g.Level() == LevelPaths {
			got, _ = g.RetainedBy(o)
		}
		if got != bytes {
			t.Errorf("%v: %#x keeps %d bytes, want %d", g.Level(), id, got, bytes)
		}
	}
	want(genTable, table+int64(entries)*genEntry)
	places := []int{0, 1, genList - 1, genList, genList + 1, entries / 2, entries - 1}
	if g.Level() == LevelPaths { // a search for each
		places = places[:2]
	}
	for _, i := range places {
		node := uint64(genTable+table) + uint64(i)*genEntry
		if i%genList == 0 {
			want(node, genEntry)
		} else {
			want(node, genNode)
		}
		want(node+genNode, genItem)
	}
	if n := g.Len() - 5*entries; n < 1 || n > 100 {
		t.Errorf("%d objects, heapgen wrote %d and its classes", g.Len(), 5*entries)
	}
}

// Retained sizes of a heap of 200,000 objects are those that its generator knows, at each level that has
// them, and the tree takes at most 100 bytes an object.
func TestGenerated(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a dump")
	path, entries := generated(t, 200_000)
	for _, level := range []Level{LevelFull, LevelMapped, LevelPaths} {
		g, err := Open(t.Context(), path, Options{Level: level, Temp: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if g.Level() != level {
			t.Errorf("level %v, want %v", g.Level(), level)
		}
		checkGenerated(t, g, entries)
		if per := g.PeakBytes() / int64(g.Len()); per > 100 {
			t.Errorf("%v: %d bytes an object", level, per)
		}
		g.Close()
	}
}

// Five million objects take at most a second, with tree and retained sizes, on a machine with nothing else to
// do, and 100 bytes an object.
func TestFiveMillion(t *testing.T) {
	if os.Getenv("SLIVER_LONG") == "" {
		t.Skip("measures time: SLIVER_LONG is not set")
	}
	path, entries := generated(t, 5_000_000)
	least := math.Inf(1)
	for range 5 {
		g, err := Open(t.Context(), path, Options{Level: LevelFull})
		if err != nil {
			t.Fatal(err)
		}
		took := (g.Took.Survey + g.Took.Index + g.Took.Read + g.Took.Tree).Seconds()
		t.Logf("%d objects: %.2f s (%+v), %d bytes an object", g.Len(), took, g.Took, g.PeakBytes()/int64(g.Len()))
		least = min(least, took)
		checkGenerated(t, g, entries)
		if per := g.PeakBytes() / int64(g.Len()); per > 100 {
			t.Errorf("%d bytes an object", per)
		}
		g.Close()
	}
	if least > 1 {
		t.Errorf("the least of five runs took %.2f s, at most 1 s is allowed", least)
	}
}

// A heap of SLIVER_HEAP_OBJECTS objects, for example 100,000,000 (4.3 GB, and as much in temporary files),
// within 2 GB of memory. The level is the one that the bound chooses.
func TestHugeHeap(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("SLIVER_HEAP_OBJECTS"))
	if err != nil || n < 1_000_000 {
		t.Skip("needs gigabytes of disk: SLIVER_HEAP_OBJECTS does not say how many objects")
	}
	path, entries := generated(t, n)
	const memory = 2 << 30
	for _, level := range []Level{0, LevelPaths} {
		start, most := time.Now(), int64(0)
		progress := func(string, float64) { most = max(most, anonymous(t)) }
		g, err := Open(t.Context(), path, Options{Level: level, Memory: memory, Temp: t.TempDir(), Progress: progress})
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, anonymous(t))
		t.Logf("%v: %d objects in %.1f s, %d MB of memory, %.1f bytes an object with those in a file", g.Level(), g.Len(), time.Since(start).Seconds(), most>>20, float64(g.PeakBytes())/float64(g.Len()))
		if most == 0 || most > memory {
			t.Errorf("%d bytes were used, %d are allowed", most, memory)
		}
		checkGenerated(t, g, entries)
		g.Close()
	}
}

// anonymous returns how many bytes of memory this process has that are not of a file (proc_pid_status(5)).
func anonymous(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("no RssAnon in\n%s", b)
	return 0
}
