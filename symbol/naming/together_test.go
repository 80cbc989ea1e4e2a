package naming

import (
	"errors"
	"io"
	"os"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/rule"
)

// keyed is a file that several recordings share.
type keyed struct {
	one
	key   any
	opens *atomic.Int32
}

func (k keyed) Key(int) any { return k.key }

func (k keyed) Open(i int, m *trace.Module) (io.ReaderAt, io.Closer, error) {
	k.opens.Add(1)
	return k.one.Open(i, m)
}

// failing opens no file.
type failing struct{}

func (failing) Open(int, *trace.Module) (io.ReaderAt, io.Closer, error) {
	return nil, nil, errors.New("no file")
}

// TestTogether: a file that two recordings use is opened once, each gets the names of its own
// locations, the same as alone, and nothing is kept afterwards.
func TestTogether(t *testing.T) {
	path := testprog.Build(t, "c/chain", "O2")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := symbol.Open(f, symbol.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var addrs []uint64
	for a := uint64(0x1000); a < 0x4000 && len(addrs) < 60; a += 4 {
		if len(s.Frames(a, nil)) > 0 {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) < 60 {
		t.Fatalf("%d addresses", len(addrs))
	}
	m := &trace.Module{Path: path}
	parts := [][]uint64{addrs[:40], addrs[20:]} // they overlap
	name := func(addrs []uint64, mods Modules, o Options) *trace.Symbols {
		t.Helper()
		g := &gatherer{s: &trace.Symbols{}, ids: map[function]int{}}
		if err := g.module(0, m, addrs, mods, o, rule.AMD64); err != nil || len(g.problems) > 0 {
			t.Fatal(err, g.problems)
		}
		return g.s
	}
	var opens atomic.Int32
	mods := keyed{one{path}, "the file", &opens}
	u := &union{addrs: map[uint64]bool{}, users: len(parts)}
	for _, p := range parts {
		for _, a := range p {
			u.addrs[a] = true
		}
	}
	together := &Together{files: map[any]*union{"the file": u}}
	for _, p := range parts {
		alone := name(p, one{path}, Options{})
		if got := name(p, mods, Options{Together: together}); !reflect.DeepEqual(got, alone) {
			t.Errorf("%d locations have other names than alone", len(p))
		}
	}
	if opens.Load() != 1 || len(together.files) > 0 {
		t.Errorf("opened %d times, %d files kept", opens.Load(), len(together.files))
	}
	// Resolve reads each file once, before the recordings ask.
	u = &union{addrs: map[uint64]bool{}, users: len(parts), first: user{0, m, mods, &Options{}, rule.AMD64}}
	none := &union{addrs: map[uint64]bool{addrs[0]: true}, users: 1, first: user{0, m, failing{}, &Options{}, rule.AMD64}}
	for _, a := range addrs {
		u.addrs[a] = true
	}
	together = &Together{files: map[any]*union{"the file": u, "none": none}}
	opens.Store(0)
	together.Resolve()
	if opens.Load() != 1 || none.err == nil || u.err != nil {
		t.Errorf("opened %d times, errors %v and %v", opens.Load(), u.err, none.err)
	}
	for _, p := range parts {
		if got := name(p, mods, Options{Together: together}); !reflect.DeepEqual(got, name(p, one{path}, Options{})) {
			t.Errorf("%d locations have other names than alone", len(p))
		}
	}
	if opens.Load() != 1 {
		t.Errorf("opened %d times", opens.Load())
	}
	opens.Store(1)
	// A recording that was not added, and a file that is not shared, are read alone.
	name(parts[0], mods, Options{Together: together})
	mods.key = nil
	name(parts[0], mods, Options{Together: together})
	if opens.Load() != 3 {
		t.Errorf("opened %d times, 3 expected", opens.Load())
	}
}
