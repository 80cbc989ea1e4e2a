package leak

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/internal/testprog"
)

// planted starts HeapLeaks with kinds of leaks on a version of Java, and returns it when
// all are planted.
func planted(t *testing.T, version, kinds string, flags ...string) *testprog.Proc {
	t.Helper()
	java := testprog.Tool(t, "java"+version)
	args := append(flags, "-Xmx256m", "-XX:-UsePerfData", "-cp", testprog.JavaClasses(t, "HeapLeaks"), "HeapLeaks", kinds)
	p := testprog.StartCmd(t, exec.Command(java, args...))
	p.Line("READY")
	return p
}

// dumpHeap lets jcmd write a dump of the process.
func dumpHeap(t *testing.T, p *testprog.Proc) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sliver-heap-") // a test's own folder may have characters in its name that jcmd takes for an option
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "heap.hprof")
	if out, err := exec.Command(testprog.Tool(t, "jcmd17"), fmt.Sprint(p.PID), "GC.heap_dump", path).CombinedOutput(); err != nil {
		t.Fatalf("jcmd: %v\n%s", err, out)
	}
	return path
}

func analyze(t *testing.T, path string, o graph.Options, share float64) (*graph.Graph, *Report) {
	t.Helper()
	o.Temp = t.TempDir()
	g, err := graph.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	r, err := Find(t.Context(), g, filepath.Base(path), Options{Share: share})
	if err != nil {
		t.Fatal(err)
	}
	return g, r
}

// Each planted leak is found, with its field, its number and its bytes within 0.5 %.
func TestPlantedLeaks(t *testing.T) {
	// With compressed references and class pointers: the head of an array, a HashMap's node, a String. The map's
	// table has 4,096 places, the list's array 9,369.
	const head, node, str = 16, 32, 24
	up := func(n int64) int64 { return (n + 7) / 8 * 8 }
	tests := []struct {
		kind, finding string
		field         string // that the path has to name
		count         int
		bytes         int64 // 0: see least
		least         int64
		text          string // in the title or content
	}{
		{"map", KindDominator, "HeapLeaks.sessionCache", 1, up(head+4*4096) + 2000*(node+str+up(head+12)+up(head+5000)), 0, "java.util.HashMap"},
		{"list", KindDominator, "HeapLeaks.listeners", 1, up(head+4*9369) + 8000*(16+up(head+960)), 0, "HeapLeaks$Listener"},
		{"loader", KindLoaders, "HeapLeaks.plugins", 20, 0, 20 * up(head+100_000), "HeapLeaks$Plugin"},
		{"threadlocal", KindThreadLocals, "", 64, 64 * up(head+70_000), 0, "HeapLeaks.requestBuffer"},
		{"duplicates", KindStrings, "", 0, 0, 0, "the same customer name"},
		{"fill", KindCollections, "HeapLeaks.halfEmpty", 0, 0, 3000 * 255 * 4, "java.util.HashMap"},
		{"zeros", KindConstant, "HeapLeaks.zeros", 0, 300 * up(head+20_000), 0, "byte[] of 0"},
		{"nulls", KindNulls, "HeapLeaks.nulls", 1, 599_999 * 4, 0, "599999 of 600000"},
		{"array", KindDominator, "HeapLeaks.held", 1, 33_554_448, 0, "byte[]"},
	}
	for _, version := range []string{"17", "21", "25"} {
		for _, c := range tests {
			t.Run(version+"/"+c.kind, func(t *testing.T) {
				if version != "21" && c.kind != "map" && c.kind != "loader" {
					testprog.Whole(t, "two kinds of other versions")
				}
				t.Parallel()
				_, r := analyze(t, dumpHeap(t, planted(t, version, c.kind)), graph.Options{}, 0)
				for _, f := range r.Findings {
					if f.Kind != c.finding || c.count != 0 && f.Count != c.count {
						continue
					}
					text, _ := json.Marshal(f)
					if !strings.Contains(string(text), c.text) || c.field != "" && f.Field != c.field {
						continue
					}
					if c.bytes != 0 && math.Abs(float64(f.Bytes-c.bytes)) > 0.005*float64(c.bytes) {
						t.Errorf("%s: %d bytes, planted %d", f.Title, f.Bytes, c.bytes)
					}
					if c.least != 0 && (f.Bytes < c.least || float64(f.Bytes) > 1.25*float64(c.least)) {
						t.Errorf("%s: %d bytes, the values alone are %d", f.Title, f.Bytes, c.least)
					}
					if len(f.Path) == 0 {
						t.Errorf("%s: no path", f.Title)
					}
					return
				}
				var out bytes.Buffer
				r.WriteText(&out)
				t.Errorf("not found in:\n%s", out.Bytes())
			})
		}
	}
}

// Leaks of other shapes: links of a list, wrappers around wrappers, a concurrent queue, inner
// classes, a pool's threads, a local variable of a method that runs.
func TestPlantedShapes(t *testing.T) {
	java := testprog.Tool(t, "java21")
	for _, c := range []struct{ kind, finding, want string }{
		{"chain", KindDominator, `"one HeapMore$Registry keeps`},
		{"deep", KindDominator, `"one HeapMore$Registry keeps`},
		{"queue", KindDominator, `HeapMore$Registry.queue`},
		{"inner", KindDominator, `"field":"HeapMore$Registry.hooks"`},
		{"sessions", KindDominator, `"field":"HeapMore$Registry.sessions"`},
		{"beside", KindDominator, `"field":"HeapMore$Registry.sessions"`},
		{"beside", KindDominator, `"one HeapMore$Registry keeps`},
		{"pool", KindThreadLocals, `"40 threads keep 2.4`},
		{"pool", KindThreadLocals, `the thread local HeapMore.builder`},
		{"one", KindThreadLocals, `"1 thread keeps 6`},
		{"local", KindDominator, `local variable in HeapMore.main (HeapMore.java`},
	} {
		t.Run(c.kind, func(t *testing.T) {
			p := testprog.StartCmd(t, exec.Command(java, "-Xmx256m", "-XX:-UsePerfData", "-cp", testprog.JavaClasses(t, "HeapMore"), "HeapMore", c.kind))
			p.Line("READY")
			_, r := analyze(t, dumpHeap(t, p), graph.Options{}, 0)
			for _, f := range r.Findings {
				if text, _ := json.Marshal(f); f.Kind == c.finding && strings.Contains(string(text), c.want) {
					return
				}
			}
			var out bytes.Buffer
			r.WriteText(&out)
			t.Errorf("no %s with %s in:\n%s", c.finding, c.want, out.Bytes())
		})
	}
}

// Parked virtual threads are reported with the objects that their frames hold, if the dump
// has frames: from JDK 25 on.
func TestPlantedVirtualThreads(t *testing.T) {
	for _, version := range []string{"21", "25"} {
		t.Run(version, func(t *testing.T) {
			g, r := analyze(t, dumpHeap(t, planted(t, version, "virtual")), graph.Options{}, 0)
			for _, f := range r.Findings {
				if f.Kind != KindVirtual {
					continue
				}
				if f.Count != 500 {
					t.Errorf("%d virtual threads, planted 500", f.Count)
				}
				const want = 500 * 40_016
				if version == "25" && (f.Bytes < want || f.Bytes > want*5/4) {
					t.Errorf("they keep %d, their locals alone are %d", f.Bytes, want)
				}
				if version == "25" && !strings.Contains(f.Content[0].Name, "HeapLeaks.hold") {
					t.Errorf("parked in %q", f.Content[0].Name)
				}
				if version == "21" && (len(f.Notes) == 0 || !strings.Contains(f.Notes[0], "no frames")) {
					t.Errorf("JDK 21's dump has no frames of virtual threads, and the report does not say so: %q", f.Notes)
				}
				return
			}
			var out bytes.Buffer
			r.WriteText(&out)
			t.Errorf("no virtual threads of %d objects in:\n%s", g.Len(), out.Bytes())
		})
	}
}

// Growth between two dumps is reported by path.
func TestPlantedGrowth(t *testing.T) {
	java := testprog.Tool(t, "java17")
	p := testprog.StartCmd(t, exec.Command(java, "-Xmx256m", "-XX:-UsePerfData", "-cp", testprog.JavaClasses(t, "HeapLeaks"), "HeapLeaks", "list,map,grow"))
	p.Line("READY")
	var sides []Side
	for i := range 2 {
		path := dumpHeap(t, p)
		g, err := graph.Open(t.Context(), path, graph.Options{})
		if err != nil {
			t.Fatal(err)
		}
		sides = append(sides, Side{filepath.Base(path), g.Histogram(), Tree(g)})
		g.Close()
		os.Remove(path)
		if i == 0 {
			p.Say("")
			p.Line("GROWN")
		}
	}
	d := Compare(sides[0], sides[1])
	var out bytes.Buffer
	d.WriteText(&out)
	if len(d.Paths) == 0 || !strings.Contains(strings.Join(d.Paths[0].Path, " "), "class HeapLeaks java.util.ArrayList java.lang.Object[]") || d.Paths[0].Objects != 3000 {
		t.Errorf("the first path is not that of the listeners:\n%s", out.Bytes())
	}
	if d.Classes[0].Class != "long[]" || d.Classes[0].Objects < 3000 || d.Classes[0].Objects > 3010 {
		t.Errorf("the class that grew most is not long[]:\n%s", out.Bytes())
	}
}
