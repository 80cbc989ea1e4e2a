package session

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/unwind/managed"
)

// Namer resolves names of functions while their process runs. It caches the data of
// files. It is for one goroutine; Close it before the Flight.
type Namer struct {
	f     *Flight
	files *naming.Files[int] // by module ID
	known map[place][]string
	buf   []symbol.Frame
}

type place struct {
	module int
	vaddr  uint64
}

// maxPlaces bounds the cache of a Namer.
const maxPlaces = 1 << 16

// Namer returns a new Namer.
func (f *Flight) Namer() *Namer {
	files := naming.NewFiles[int](runtime.GOARCH, 0, naming.Options{Finder: live.Finder(f.proc, f.o.DebugDirs, nil), FullNames: f.o.FullNames, Cache: f.o.Cache})
	return &Namer{f: f, files: files, known: map[place][]string{}}
}

// Funcs returns the functions at w as of t, inlined ones included, leaf first. It is
// empty if the location has no name.
func (n *Namer) Funcs(w event.Word, t stack.Time) []string {
	if w.Kind() == stack.KindError {
		return nil
	}
	l, ok := n.f.rec.Locate(w.Lookup(), t)
	if !ok {
		return nil
	}
	key := place{l.ID, l.Vaddr}
	if names, ok := n.known[key]; ok {
		return names
	}
	if _, ok := managed.Named(l.Module.Path); ok {
		if f, ok := n.f.runtimes.Find(l.Vaddr); ok {
			return []string{f.Func}
		}
		return nil
	}
	file := n.file(l.ID, &l.Module)
	var names []string
	if file != nil {
		n.buf = file.Frames(l.Vaddr, n.buf[:0])
		for i := range n.buf {
			names = append(names, n.buf[i].Func)
		}
	}
	if len(n.known) >= maxPlaces {
		clear(n.known)
	}
	n.known[key] = names
	return names
}

// file returns the file of module id, nil if it cannot be read.
func (n *Namer) file(id int, m *trace.Module) *naming.Source {
	return n.files.Source(id, m.Path, func() (io.ReaderAt, io.Closer, error) { return n.f.mods.Open(id, nil) })
}

// Find returns the addresses in memory, at most most, of functions that match want
// according to is. It does not find functions that are only inlined.
func (n *Namer) Find(want string, is func(want, name string) bool, most int) (addrs []uint64) {
	core := lastWord(want)
	n.f.rec.EachModule(func(id int, m *trace.Module, addr func(vaddr uint64) (uint64, bool)) bool {
		n.file(id, m).EachFunction(func(raw string, readable func() string, vaddr uint64) bool {
			if strings.Contains(raw, core) && is(want, readable()) {
				if a, ok := addr(vaddr); ok && !slices.Contains(addrs, a) {
					addrs = append(addrs, a)
				}
			}
			return len(addrs) < most
		})
		return len(addrs) < most
	})
	return addrs
}

// lastWord returns the last identifier in a pattern, which the name of every matching
// function contains, mangled or not; "" if it has none without a wildcard.
func lastWord(want string) string {
	i := len(want)
	for i > 0 && (want[i-1] == '_' || want[i-1] >= '0' && want[i-1] <= '9' || want[i-1]|0x20 >= 'a' && want[i-1]|0x20 <= 'z') {
		i--
	}
	return want[i:]
}

// Name returns the function at w, the one that others are inlined into, or the location
// in its file.
func (n *Namer) Name(w event.Word, t stack.Time) string {
	if w.Kind() == stack.KindError {
		return "[" + stack.Reason(w.Addr()).String() + "]"
	}
	if names := n.Funcs(w, t); len(names) > 0 {
		return names[len(names)-1]
	}
	l, ok := n.f.rec.Locate(w.Lookup(), t)
	if !ok {
		return fmt.Sprintf("%#x", w.Addr())
	}
	return symbol.Unknown(l.Module.Path, l.Named)
}

// Close closes the files.
func (n *Namer) Close() { n.files.Close() }
