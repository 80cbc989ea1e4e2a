package graph

import (
	"bufio"
	"bytes"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// visualVM is what VisualVM's library finds in a dump.
type visualVM struct {
	counts   map[string]int // by class ID and name
	retained map[uint64][2]int64
	roots    int
	ms       int
}

// askVisualVM lets the library read a dump that is not compressed.
func askVisualVM(t testing.TB, file string, args ...string) visualVM {
	t.Helper()
	java := testprog.Tool(t, "java17")
	cmd := exec.Command(java, append([]string{"-Xmx2g", "-cp", testprog.VisualVM(t, "testdata/VisualVM.java"), "VisualVM", file}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("VisualVM's library: %v\n%s", err, errs.Bytes())
	}
	v := visualVM{counts: map[string]int{}, retained: map[uint64][2]int64{}}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		f := strings.Fields(s.Text())
		switch f[0] {
		case "class":
			n, _ := strconv.Atoi(f[2])
			v.counts[strings.Join(f[3:], " ")] += n
		case "retained":
			id, _ := strconv.ParseUint(f[1], 16, 64)
			size, _ := strconv.ParseInt(f[2], 10, 64)
			kept, _ := strconv.ParseInt(f[3], 10, 64)
			v.retained[id] = [2]int64{size, kept}
		case "roots":
			v.roots, _ = strconv.Atoi(f[1])
		case "took":
			v.ms, _ = strconv.Atoi(f[1])
		}
	}
	return v
}

// plain writes the decompressed dump into a folder of the test.
func plain(t testing.TB, g *Graph, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".hprof")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, io.NewSectionReader(g.file, 0, g.bytes)); err != nil {
		t.Fatal(err)
	}
	return path
}

// likeVisualVM makes the tree again as VisualVM's library sees it: referents are held like
// anything else, and what nothing leads to holds others too (DominatorTree and
// HprofHeap.computeReferences of lib.jfluid.heap, VisualVM 2.1.5). The library also lets a
// root be dominated by an object that refers to it, so that objects above such a place
// cannot be compared: these are returned.
func likeVisualVM(t *testing.T, g *Graph) (unlike []bool) {
	refs := map[uint32][]uint32{}
	hold := func(v, w uint32) { refs[v] = append(refs[v], w) }
	for o := Object(1); uint32(o) <= g.n; o++ {
		for _, to := range g.RefsOf(o, nil) {
			hold(uint32(o), uint32(to))
		}
	}
	for _, w := range g.weak {
		hold(w.owner, w.target)
	}
	f := &flow{n: g.n, stage: []stage{{}}}
	f.start, f.to = lists(int(g.n), refs)
	g.start, g.to = f.start, f.to
	f.stage[0].rest = g.unreached
	for _, r := range g.roots {
		f.stage[0].roots = append(f.stage[0].roots, uint32(r.Object))
	}
	g.kids = children{}
	var err error
	if g.tree, err = dominate(t.Context(), g.arena, f, func(uint32) uint64 { return 0 }); err != nil {
		t.Fatal(err)
	}
	unlike = make([]bool, len(g.tree.dom))
	for v, ws := range refs {
		for _, w := range ws {
			if len(g.RootsOf(Object(w))) > 0 {
				for x := v; x != 0 && !unlike[x]; x = g.tree.dom[x] {
					unlike[x] = true
				}
				for x := w; x != 0 && !unlike[x]; x = g.tree.dom[x] {
					unlike[x] = true
				}
			}
		}
	}
	return unlike
}

// VisualVM reports the same instances and classes, and the same retained sizes for all but
// one in a thousand objects, where its dominators are not exact: it stops
// at a fixed point of its iteration (TestDominatorsOfRandomGraphs has an exact oracle).
func TestCorpusAgainstVisualVM(t *testing.T) {
	testprog.Whole(t, "TestCorpusAgainstShark has another reader of the same dumps")
	for name, path := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			g, err := Open(t.Context(), path, Options{Temp: t.TempDir(), Dump: 1, Flat: true})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			v := askVisualVM(t, plain(t, g, "dump"), "all")
			counts := map[string]int{}
			for _, l := range g.Histogram() {
				counts[l.Class.Name] += int(l.Count)
			}
			for name, n := range v.counts {
				// It does not count class objects.
				if name = className(name); counts[name] != n && name != "java.lang.Class" {
					t.Errorf("%s: %d objects, VisualVM has %d", name, counts[name], n)
				}
			}
			if d := v.roots - len(g.Roots()); d < 0 || d > 1 {
				t.Errorf("%d roots, VisualVM has %d", len(g.Roots()), v.roots)
			}
			if g.Dumps() > 1 {
				return // the library takes references of the second dump for the first one's
			}
			unlike := likeVisualVM(t, g)
			kept := make([]int64, len(g.tree.dom)) // with its sizes
			g.walkTree(0, func(Object) bool { return true }, func(o Object) {
				if o == 0 {
					return
				}
				if g.Kind(o) != KindClass || g.Header().Version == "1.0.3" {
					kept[o] += v.retained[g.ID(o)][0]
				}
				kept[g.Dominator(o)] += kept[o]
			})
			sizes, off, n, compared := 0, 0, 0, 0
			for o := Object(1); int(o) <= g.Len(); o++ {
				w, ok := v.retained[g.ID(o)]
				if g.Kind(o) == KindClass {
					continue
				}
				if !ok {
					t.Errorf("VisualVM does not have the object %#x", g.ID(o))
				}
				n++
				if w[0] != g.Size(o) {
					sizes++
				}
				if w[1] == 0 || unlike[o] {
					continue
				}
				compared++
				if math.Abs(float64(w[1]-kept[o])) > 0.005*float64(w[1]) {
					if off++; off < 9 {
						t.Logf("%#x %s: retained %d, VisualVM %d", g.ID(o), g.Class(o).Name, kept[o], w[1])
					}
				}
			}
			t.Logf("%d objects: %d sizes and %d of %d retained sizes differ", n, sizes, off, compared)
			if off > 20+n/1000 {
				t.Errorf("%d of %d objects retain more or less than VisualVM says", off, n)
			}
		})
	}
}
