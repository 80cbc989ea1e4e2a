package naming

import (
	"errors"
	"io"
	"os"
	"reflect"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
	"github.com/sliverprof/sliver/trace"
)

// one is a module's file, or none.
type one struct{ path string }

func (o one) Open(int, *trace.Module) (io.ReaderAt, io.Closer, error) {
	if o.path == "" {
		return nil, nil, errors.New("gone")
	}
	f, err := os.Open(o.path)
	return f, f, err
}

// Names from the cache must match those from the file, which may be gone; only
// addresses missing in the cache are looked up in the file again.
func TestCache(t *testing.T) {
	path := testprog.Build(t, "c/chain", "O2")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, err := symbol.BuildID(f)
	if err != nil || id == "" {
		t.Fatal(id, err)
	}
	dir, err := cache.Open(t.TempDir(), 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	s, err := symbol.Open(f, symbol.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var addrs []uint64
	for a := uint64(0x1000); a < 0x4000 && len(addrs) < 200; a += 4 {
		if len(s.Frames(a, nil)) > 0 {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) < 50 {
		t.Fatalf("%d addresses", len(addrs))
	}
	var half []uint64
	for i := 0; i < len(addrs); i += 2 {
		half = append(half, addrs[i])
	}
	ask := func(from one, addrs []uint64, c *cache.Dir) (*trace.Symbols, error) {
		g := &gatherer{s: &trace.Symbols{}, ids: map[function]int{}}
		err := g.module(0, &trace.Module{Path: path, BuildID: id}, addrs, from, Options{Cache: c}, archOf("amd64"))
		return g.s, err
	}
	want, err := ask(one{path}, addrs, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(one{path}, half, dir); err != nil { // fills the cache
		t.Fatal(err)
	}
	if got, err := ask(one{}, half, dir); err != nil || len(got.Locs) != len(half) {
		t.Errorf("half of them, without the file: %d, %v", len(got.Locs), err)
	}
	if got, err := ask(one{}, addrs, dir); err == nil || len(got.Locs) != len(half) {
		t.Errorf("all of them, without the file: %d, %v", len(got.Locs), err)
	}
	for _, from := range []one{{path}, {}} { // the first one fills the rest
		got, err := ask(from, addrs, dir)
		if err != nil || !reflect.DeepEqual(got.Locs, want.Locs) || !reflect.DeepEqual(got.Funcs, want.Funcs) {
			t.Errorf("from %q: %d locations, want %d: %v", from.path, len(got.Locs), len(want.Locs), err)
		}
	}
}
