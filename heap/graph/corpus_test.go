package graph

//sliver:layer live

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// corpus returns the real dumps of the folder SLIVER_HPROF_CORPUS, by name.
func corpus(t testing.TB) map[string]string {
	t.Helper()
	folder := os.Getenv("SLIVER_HPROF_CORPUS")
	files := map[string]string{}
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		if strings.Contains(e.Name(), "hprof") {
			files[e.Name()] = filepath.Join(folder, e.Name())
		}
	}
	if folder != "" && (err != nil || len(files) == 0) {
		t.Fatalf("no dumps in SLIVER_HPROF_CORPUS: %v", err)
	}
	if folder == "" {
		for name := range strings.SplitSeq(os.Getenv("SLIVER_REQUIRE"), ",") {
			if slices.Contains([]string{"all", "corpus"}, strings.TrimSpace(name)) {
				t.Fatal("SLIVER_REQUIRE needs the dumps, and SLIVER_HPROF_CORPUS does not name their folder")
			}
		}
		t.Skip("SLIVER_HPROF_CORPUS is not set: no real dumps")
	}
	return files
}

// Every object of the corpus is in the tree, its parts add up, and what the tree says of
// the largest ones is what a search without them finds.
func TestCorpusRetained(t *testing.T) {
	testprog.Whole(t, "TestCorpusAgainstShark has the same dumps")
	for name, path := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			g, err := Open(t.Context(), path, Options{Temp: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			var sum int64
			most := make([]Object, 0, g.Len())
			for o := Object(1); int(o) <= g.Len(); o++ {
				sum += g.Size(o)
				if g.Strength(o) == Strong {
					most = append(most, o)
				}
			}
			if g.Retained(0) != sum || g.Total() != sum {
				t.Errorf("the root retains %d, the histogram has %d, all objects are %d", g.Retained(0), g.Total(), sum)
			}
			counts, err := Open(t.Context(), path, Options{Temp: t.TempDir(), Level: LevelHistogram})
			if err != nil {
				t.Fatal(err)
			}
			defer counts.Close()
			bytes := map[*Class]int64{}
			for _, l := range counts.Histogram() {
				bytes[l.Class] = l.Bytes
			}
			for i, l := range g.Histogram() {
				if b := bytes[counts.classes.all[l.Class.number]]; b != l.Bytes && g.Twice == 0 {
					t.Errorf("line %d: %d bytes of %s, counts alone say %d", i, l.Bytes, l.Class.Name, b)
				}
			}
			slices.SortFunc(most, func(a, b Object) int { return int(g.Retained(b) - g.Retained(a)) })
			for _, o := range most[:min(8, len(most))] {
				if got, _ := g.RetainedBy(o); got != g.Retained(o) {
					t.Errorf("object %#x %s: the tree says %d, a search without it %d", g.ID(o), g.Class(o).Name, g.Retained(o), got)
				}
			}
			t.Logf("%d objects, %d references, %d roots (%d lost), dangled %d, twice %d, %d bytes, garbage %d, weak %d, soft %d; model %+v; %v",
				g.Len(), g.Refs(), len(g.Roots()), g.LostRoots, g.Dangled, g.Twice, sum, g.Held(Garbage), g.Held(Weak), g.Held(Soft), g.sizes, g.Took)
		})
	}
}
