package naming

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
	"github.com/sliverprof/sliver/trace"
)

// functionsOf returns the functions in a file's symbol table, by their start.
func functionsOf(t *testing.T, path string) map[uint64]elf.Symbol {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	out := map[uint64]elf.Symbol{}
	for _, s := range all {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 && s.Section != elf.SHN_UNDEF {
			if s.Size > out[s.Value].Size {
				out[s.Value] = s
			}
		}
	}
	return out
}

// placesIn returns some addresses in a function, including its last byte: a call of
// abort at the end has that lookup address.
func placesIn(s elf.Symbol) []uint64 {
	p := []uint64{s.Value, s.Value + s.Size/3, s.Value + s.Size/2, s.Value + s.Size - 1}
	slices.Sort(p)
	return slices.Compact(p)
}

// All addresses of a function without a symbol must have one name, that of its start;
// also from the cache, whose names do not depend on the file's path.
func TestFunctionsWithoutSymbols(t *testing.T) {
	whole, path := testprog.Build(t, "c/chain", "O2"), testprog.Build(t, "c/chain", "stripped")
	want := map[uint64]uint64{} // the start of the function, for each address
	var addrs []uint64
	n := 0
	for lo, s := range functionsOf(t, whole) {
		if !strings.HasPrefix(s.Name, "chain_") && !strings.HasPrefix(s.Name, "main") {
			continue // of the C library's start files, without tables
		}
		n++
		for _, a := range placesIn(s) {
			want[a] = lo
			addrs = append(addrs, a)
		}
	}
	if n < 10 {
		t.Fatalf("%d functions", n)
	}
	slices.Sort(addrs)
	dir, err := cache.Open(t.TempDir(), 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	const id = "0123456789abcdef0123456789abcdef01234567"
	// The cache has the addresses without a name, and one with a line.
	known := cache.Table{1: {{Func: "f", File: "f.c", Line: 1}}}
	for _, a := range addrs[:len(addrs)/2] {
		known[a] = []symbol.Frame{}
	}
	if err := dir.Store(id, false, known); err != nil {
		t.Fatal(err)
	}
	check := func(what string, a uint64, name string, start uint64) {
		t.Helper()
		if w := fmt.Sprintf("%s+%#x", filepath.Base(path), want[a]); name != w || start != want[a] {
			t.Errorf("%s: %#x is in %q from %#x, want %q", what, a, name, start, w)
		}
	}
	for _, c := range []*cache.Dir{nil, dir, dir} { // the third time the cache has all of them
		g := &gatherer{s: &trace.Symbols{}, ids: map[function]int{}}
		if err := g.module(0, &trace.Module{Path: path, BuildID: id}, addrs, one{path}, Options{Cache: c}, archOf("amd64")); err != nil {
			t.Fatal(err)
		}
		if len(g.s.Funcs) != n || len(g.s.Locs) != len(addrs) {
			t.Errorf("%d functions, %d places, want %d, %d", len(g.s.Funcs), len(g.s.Locs), n, len(addrs))
		}
		for k, fr := range g.s.Locs {
			fn := g.s.Funcs[fr[0].Func]
			check("a recording", k.Addr, fn.Name, fn.Start)
		}
	}
	for _, v := range dir.Load(id, false) { // the cache stores no name for addresses that the file does not name
		if len(v) > 0 && strings.Contains(v[0].Func, "+0x") {
			t.Errorf("the cache has %v", v)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := Open(f, path, "amd64", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, a := range addrs {
		fr := s.Frames(a, nil)
		if len(fr) != 1 {
			t.Fatalf("%#x: %v", a, fr)
		}
		check("a file", a, fr[0].Func, fr[0].Start)
	}
	if fr := s.Frames(1, nil); len(fr) > 0 {
		t.Errorf("outside of all functions: %v", fr)
	}
}

// A library stripped by the distribution: each function that its debug file contains
// and the library does not export must be found.
func TestFunctionsOfStrippedLibrary(t *testing.T) {
	const path = "/lib/x86_64-linux-gnu/libc.so.6"
	f, err := os.Open(path)
	if err != nil {
		t.Skip("no " + path)
	}
	defer f.Close()
	id, err := symbol.BuildID(f)
	if err != nil {
		t.Fatal(err)
	}
	debug := ""
	symbol.Dirs{}.Find(symbol.Query{Path: path, BuildID: id}, func(p string, src symbol.Source) bool {
		src.Close()
		debug = p
		return true
	})
	if debug == "" {
		testprog.Missing(t, "libc6-dbg", "no debug file of "+path)
	}
	s, err := Open(f, path, "amd64", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	right, wrong, without := 0, 0, 0
	for lo, fn := range functionsOf(t, debug) {
		if len(s.symbols(lo, nil)) > 0 {
			continue // exported
		}
		for _, a := range placesIn(fn) {
			switch fr := s.Frames(a, nil); {
			case len(fr) == 0:
				without++
			case fr[0].Func == fmt.Sprintf("libc.so.6+%#x", lo) && fr[0].Start == lo:
				right++
			default:
				if wrong++; wrong < 10 {
					t.Logf("%#x of %s from %#x: %v", a, fn.Name, lo, fr[0])
				}
			}
		}
	}
	t.Logf("%d places right, %d wrong, %d in functions without tables", right, wrong, without)
	if right < 2000 || 100*wrong > right || 100*without > right {
		t.Errorf("%d places right, %d wrong, %d without", right, wrong, without)
	}
}
