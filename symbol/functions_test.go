package symbol

import (
	"os"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// What exact tracing asks of a file: where functions end, and how often they were inlined.
func TestFunctions(t *testing.T) {
	testprog.Need(t, "gcc")
	r, err := os.Open(testprog.Build(t, "c/traced", "O2"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := Open(r, Options{Path: r.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := false
	f.EachFunction(func(raw string, _ func() string, vaddr uint64) bool {
		if raw != "probed" {
			return true
		}
		seen = true
		if end, ok := f.Extent(vaddr); !ok || end <= vaddr || end > vaddr+200 {
			t.Errorf("probed from %#x to %#x, %v", vaddr, end, ok)
		}
		if _, ok := f.Extent(vaddr + 1); ok {
			t.Error("a function begins inside another one")
		}
		if f.IsGo(vaddr) {
			t.Error("C is taken for Go")
		}
		return false
	})
	if !seen {
		t.Fatal("no function probed")
	}
	n := 0
	f.EachInlined(func(name, file string) bool {
		if name == "now" {
			n++
			if file == "" {
				t.Error("no source file")
			}
		}
		return true
	})
	// timed calls now three times; the compiler may unroll its loop.
	if n < 3 {
		t.Errorf("now was inlined into %d places, want 3 or more: %v", n, f.Problems())
	}
	var none *File
	if _, ok := none.Extent(1); ok || none.IsGo(1) {
		t.Error("no file has functions")
	}
	none.EachInlined(func(string, string) bool { t.Error("no file has inlined calls"); return false })
}
