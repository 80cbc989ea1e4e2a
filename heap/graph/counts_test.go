package graph

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// instances returns how many objects each class has, without class objects.
func instances(g *Graph) map[string]int {
	n := map[string]int{}
	for _, c := range g.Classes() {
		if c.Count > 0 {
			n[c.Name] += int(c.Count)
		}
	}
	return n
}

// same reports where two counts differ.
func same(t *testing.T, got, want map[string]int, oracle string) {
	t.Helper()
	for name, n := range want {
		if n != 0 && got[name] != n {
			t.Errorf("%s: %d objects, %s has %d", name, got[name], oracle, n)
		}
	}
	for name, n := range got {
		if want[name] == 0 && n != 0 {
			t.Errorf("%s: %d objects, %s has none", name, n, oracle)
		}
	}
}

// hprof-slurp counts the same objects of each class.
func TestCorpusAgainstSlurp(t *testing.T) {
	testprog.Whole(t, "TestCorpusAgainstShark reads the same dumps")
	slurp := testprog.Tool(t, "hprof-slurp")
	for name, path := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			g, err := Open(t.Context(), path, Options{Temp: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if g.Dumps() > 1 {
				return // it adds up the objects of all dumps in a file
			}
			out := filepath.Join(t.TempDir(), "slurp.json")
			text, err := exec.Command(slurp, "-t", "1000000", "--json", "-o", out, plain(t, g, "dump")).CombinedOutput()
			if err != nil {
				t.Logf("hprof-slurp cannot read it: %v\n%s", err, text[max(0, len(text)-300):])
				return
			}
			b, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			var doc struct {
				Heap struct {
					Classes []struct {
						Name  string `json:"class_name"`
						Count int    `json:"instance_count"`
					} `json:"top_allocated_classes"`
				} `json:"heap"`
			}
			if err := json.Unmarshal(b, &doc); err != nil {
				t.Fatal(err)
			}
			want := map[string]int{}
			for _, c := range doc.Heap.Classes {
				want[className(c.Name)] += c.Count
			}
			if len(want) == 0 {
				t.Fatalf("hprof-slurp has no classes: %.300s", b)
			}
			same(t, instances(g), want, "hprof-slurp")
		})
	}
}

// Perfetto's trace_processor has as many objects.
func TestCorpusAgainstPerfetto(t *testing.T) {
	testprog.Whole(t, "TestCorpusAgainstShark has another reader of the same dumps")
	dir, node := testprog.Perfetto(t), testprog.Tool(t, "node")
	query := filepath.Join(testprog.Root(t), "testdata", "verify", "perfetto_query.mjs")
	for name, path := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			g, err := Open(t.Context(), path, Options{Temp: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if g.Dumps() > 1 {
				return
			}
			cmd := exec.Command(node, query, plain(t, g, "dump"), "select count(*) n from heap_graph_object")
			cmd.Env = append(os.Environ(), "TP_DIR="+dir)
			out, err := cmd.CombinedOutput()
			m := regexp.MustCompile(`│ 0 +│ (\d+) +│`).FindSubmatch(out)
			if m == nil {
				t.Fatalf("trace_processor: %v\n%s", err, out)
			}
			if n, _ := strconv.Atoi(string(m[1])); n != g.Len() {
				t.Errorf("%d objects, trace_processor has %d", g.Len(), n)
			}
		})
	}
}

// What Android's hprof-conv makes of a dump has the same objects and retained sizes.
func TestCorpusAgainstConv(t *testing.T) {
	conv := testprog.Tool(t, "hprof-conv")
	for name, path := range corpus(t) {
		if !strings.Contains(name, "android") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			a, err := Open(t.Context(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			out := filepath.Join(t.TempDir(), "converted.hprof")
			if text, err := exec.Command(conv, path, out).CombinedOutput(); err != nil {
				t.Fatalf("hprof-conv: %v\n%s", err, text)
			}
			b, err := Open(t.Context(), out, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			same(t, instances(b), instances(a), "the dump")
			if a.Len() != b.Len() || a.Refs() != b.Refs() {
				t.Errorf("%d objects and %d references, converted %d and %d", a.Len(), a.Refs(), b.Len(), b.Refs())
			}
		})
	}
}

// The whole of opening a dump, tree included, takes a small part of the time of VisualVM's
// library for the same retained sizes, and at most 100 bytes an object.
func TestFasterThanVisualVM(t *testing.T) {
	if os.Getenv("SLIVER_LONG") == "" {
		t.Skip("compares two programs' times: SLIVER_LONG is not set")
	}
	java, jcmd := testprog.Tool(t, "java17"), testprog.Tool(t, "jcmd17")
	p := testprog.StartCmd(t, exec.Command(java, "-Xmx1g", "-XX:-UsePerfData", "-cp", testprog.JavaClasses(t, "HeapLeaks"), "HeapLeaks", "big"))
	p.Line("READY")
	path := filepath.Join(t.TempDir(), "big.hprof")
	if out, err := exec.Command(jcmd, strconv.Itoa(p.PID), "GC.heap_dump", path).CombinedOutput(); err != nil {
		t.Fatalf("jcmd: %v\n%s", err, out)
	}
	p.Kill()
	var g *Graph
	took := math.Inf(1)
	for range 3 { // the least of three, as VisualVM's one run is long enough to be even
		if g != nil {
			g.Close()
		}
		var err error
		if g, err = Open(t.Context(), path, Options{}); err != nil {
			t.Fatal(err)
		}
		took = min(took, (g.Took.Survey + g.Took.Index + g.Took.Read + g.Took.Tree).Seconds())
	}
	defer g.Close()
	v := askVisualVM(t, path, "biggest")
	if len(v.retained) == 0 {
		t.Fatal("VisualVM has no retained sizes")
	}
	for id, w := range v.retained {
		o := g.Find(id)
		if o == 0 || float64(g.Retained(o)-w[1]) > 0.005*float64(w[1]) || float64(w[1]-g.Retained(o)) > 0.005*float64(w[1]) {
			t.Errorf("%#x: retained %d, VisualVM %d", id, g.Retained(o), w[1])
		}
	}
	ratio := float64(v.ms) / 1000 / took
	t.Logf("%d objects: %.2f s and %d bytes an object; VisualVM %.1f s, %.0f times as long", g.Len(), took, g.PeakBytes()/int64(g.Len()), float64(v.ms)/1000, ratio)
	if ratio < 10 {
		t.Errorf("VisualVM takes %.1f times as long", ratio)
	}
	if g.PeakBytes() > 100*int64(g.Len()) {
		t.Errorf("%d bytes an object", g.PeakBytes()/int64(g.Len()))
	}
}
