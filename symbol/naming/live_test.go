package naming

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"reflect"
	"runtime"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/trace"
)

// self describes this test program as the only module, mapped at the addresses in its file.
func self(t *testing.T) (mods oneFile, m trace.Module, maps trace.Maps) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	e, err := elf.NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	m.Path = path
	for _, p := range e.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			m.Segments = append(m.Segments, trace.Segment{Off: p.Off, Vaddr: p.Vaddr, Size: p.Filesz})
			maps.Mappings = append(maps.Mappings, trace.Mapping{Start: base + p.Vaddr, End: base + p.Vaddr + p.Filesz, Off: p.Off, Module: 0})
		}
	}
	maps.At = 100
	return oneFile{f}, m, maps
}

const base = 0x10_0000_0000

type oneFile struct{ f *os.File }

func (o oneFile) Open(i int, _ *trace.Module) (io.ReaderAt, io.Closer, error) {
	if i != 0 {
		return nil, nil, errors.New("no such file")
	}
	return o.f, nil, nil
}

// here returns an address inside NewLive, as in the file: test programs are linked to a
// fixed address.
func here() uint64 { return uint64(reflect.ValueOf(NewLive).Pointer()) + 4 }

const hereName = "github.com/sliverprof/sliver/symbol/naming.NewLive"

type told struct {
	module string
	name   string // of the outermost frame
	times  int
}

// TestLive: places must get their module at once and their name later; maps that come
// late must be waited for; an unknown place must get no answer.
func TestLive(t *testing.T) {
	mods, m, maps := self(t)
	vaddr := here()
	l := NewLive(mods, LiveOptions{Arch: runtime.GOARCH, Made: Made{PerfMap: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte("7000 100 jitted_function\n"))), nil
	}}})
	defer l.Close()
	ask := func(places ...Place) map[int]told {
		out := map[int]told{}
		l.Name(context.Background(), places, func(i int, module string, _ uint64, frames []symbol.Frame) {
			x := out[i]
			x.module = module
			x.times++
			if len(frames) > 0 {
				x.name = frames[len(frames)-1].Func
			}
			out[i] = x
		})
		return out
	}
	done := make(chan map[int]told)
	go func() { done <- ask(Place{Addr: base + vaddr, At: 100}) }()
	l.Maps(maps, []trace.Module{m})
	if got := (<-done)[0]; got.name != hereName || got.module != m.Path || got.times != 2 {
		t.Errorf("maps that came late: %+v", got)
	}
	// Code without a file, in a later generation.
	later := trace.Maps{At: 200, Mappings: append([]trace.Mapping{{Start: 0x7000, End: 0x8000, Module: 1}}, maps.Mappings...)}
	l.Maps(later, []trace.Module{{Path: "[anon]"}})
	got := ask(Place{Addr: 0x7010, At: 250}, Place{Addr: base + vaddr, At: 250}, Place{Addr: 0x7f00, At: 250}, Place{Addr: 0x10, At: 250})
	if got[0].name != "jitted_function" || got[1].name != hereName || got[2] != (told{"[anon]", "", 1}) {
		t.Errorf("names %+v", got)
	}
	if _, ok := got[3]; ok {
		t.Errorf("an address outside of all maps: %+v", got[3])
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l.Name(ctx, []Place{{Addr: base + vaddr, At: 250}}, func(_ int, _ string, _ uint64, frames []symbol.Frame) {
		if len(frames) > 0 {
			t.Error("it goes on after its end")
		}
	})
}

func TestGeneration(t *testing.T) {
	ms := []trace.Maps{{At: 0}, {At: 100}, {At: 200}}
	for at, want := range map[stack.Time]int{0: 0, 50: 0, 100: 1, 150: 1, 200: 2, 1000: 2} {
		if got := generation(ms, at); got != want {
			t.Errorf("at %d: %d, want %d", at, got, want)
		}
	}
	if generation(nil, 5) != 0 {
		t.Error("no maps")
	}
}

// TestLiveUnread: code of a file that could not be read is named by its offset in the file, wherever it is mapped.
func TestLiveUnread(t *testing.T) {
	mods, _, _ := self(t)
	l := NewLive(mods, LiveOptions{Arch: runtime.GOARCH})
	defer l.Close()
	l.Maps(trace.Maps{At: 100, Mappings: []trace.Mapping{{Start: base, End: base + 0x4000, Off: 0x3000}}}, []trace.Module{{Path: "/lib/unread.so"}})
	var got []uint64
	l.Name(t.Context(), []Place{{Addr: base + 0x10, At: 100}}, func(_ int, _ string, addr uint64, _ []symbol.Frame) { got = append(got, addr) })
	if len(got) != 1 || got[0] != 0x3010 {
		t.Errorf("named by %#x, want 0x3010", got)
	}
}
