package graph

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// Shark has as many classes, instances and arrays of each dump of the corpus.
func TestCorpusAgainstShark(t *testing.T) {
	files := corpus(t)
	jars := filepath.Join(filepath.Dir(testprog.Tool(t, "shark")), "*")
	java, javac := testprog.Tool(t, "java17"), testprog.Tool(t, "javac")
	classes := t.TempDir()
	if out, err := exec.Command(javac, "-nowarn", "-cp", jars, "-d", classes, "testdata/SharkCounts.java").CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	var names, want []string
	args := []string{"-Xmx1g", "-cp", jars + ":" + classes, "SharkCounts"}
	for name, path := range files {
		g, err := Open(t.Context(), path, Options{Temp: t.TempDir()})
		if err != nil {
			t.Fatal(name, err)
		}
		defer g.Close()
		if g.Dumps() > 1 { // it adds up the objects of all dumps in a file
			continue
		}
		kinds := map[Kind]int{}
		for o := Object(1); int(o) <= g.Len(); o++ {
			kinds[g.Kind(o)]++
		}
		names = append(names, name)
		want = append(want, fmt.Sprint(kinds[KindClass], kinds[KindInstance], kinds[KindObjectArray], kinds[KindPrimitiveArray]))
		args = append(args, plain(t, g, fmt.Sprint(len(names))))
	}
	out, err := exec.Command(java, args...).Output()
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(got) != len(names) {
		t.Fatalf("Shark: %v\n%s", err, out)
	}
	for i, name := range names {
		if got[i] != want[i] {
			t.Errorf("%s: %s classes, instances, object arrays and primitive arrays, Shark has %s", name, want[i], got[i])
		}
	}
}
