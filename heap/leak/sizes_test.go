package leak

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/internal/testprog"
)

// The JVM itself says how many bytes the objects of a class take: what the graph finds
// from addresses is the same for instances, and for arrays in total, whatever heads,
// references and alignment its flags set.
func TestSizesAgainstTheJVM(t *testing.T) {
	for _, c := range []struct {
		version string
		flags   []string
	}{
		{"17", nil},
		{"17", []string{"-XX:-UseCompressedOops"}},
		{"17", []string{"-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers"}},
		{"17", []string{"-XX:ObjectAlignmentInBytes=16"}},
		{"17", []string{"-XX:+UseSerialGC"}},
		{"21", []string{"-XX:+UseParallelGC"}},
		{"25", nil},
		{"25", []string{"-XX:+UseCompactObjectHeaders"}},
	} {
		t.Run(c.version+strings.Join(c.flags, ""), func(t *testing.T) {
			p := planted(t, c.version, "list,fill,duplicates", c.flags...)
			path := dumpHeap(t, p)
			out, err := exec.Command(testprog.Tool(t, "jcmd17"), fmt.Sprint(p.PID), "GC.class_histogram").Output()
			if err != nil {
				t.Fatal(err)
			}
			g, err := graph.Open(t.Context(), path, graph.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			lines := map[string]graph.Line{}
			for _, l := range g.Histogram() {
				lines[l.Class.Name] = l
			}
			compared, bytes := 0, int64(0)
			for line := range strings.Lines(string(out)) { // "  1:   20000   480000  java.lang.String (java.base@17)"
				f := strings.Fields(line)
				if len(f) < 4 || !strings.HasSuffix(f[0], ":") {
					continue
				}
				count, _ := strconv.ParseUint(f[1], 10, 64)
				want, _ := strconv.ParseInt(f[2], 10, 64)
				name := map[string]string{"[B": "byte[]", "[I": "int[]", "[J": "long[]", "[C": "char[]", "[Ljava.lang.Object;": "java.lang.Object[]",
					"[Ljava.util.HashMap$Node;": "java.util.HashMap$Node[]"}[f[3]]
				if name == "" {
					name = f[3]
				}
				l, ok := lines[name]
				if !ok || count == 0 || l.Count == 0 || name == "java.lang.Class" {
					continue
				}
				each, wantEach := float64(l.Bytes)/float64(l.Count), float64(want)/float64(count)
				if !l.Class.IsArray() && l.Count >= 5 {
					compared++
					if each != wantEach {
						t.Errorf("%s: %.1f bytes each, the JVM has %.1f", name, each, wantEach)
					}
				}
				if l.Class.IsArray() && l.Count == count && count > 100 {
					compared++
					bytes += want
					if d := float64(l.Bytes - want); d > 0.005*float64(want) || -d > 0.005*float64(want) {
						t.Errorf("%s: %d bytes in %d arrays, the JVM has %d", name, l.Bytes, count, want)
					}
				}
			}
			if compared < 50 || bytes < 1<<20 {
				t.Errorf("only %d classes and %d bytes of arrays compared", compared, bytes)
			}
			t.Logf("%d classes, %d bytes of arrays", compared, bytes)
		})
	}
}
