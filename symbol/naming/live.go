package naming

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/managed"
)

// LiveOptions configure a Live.
type LiveOptions struct {
	Finder    symbol.Finder
	FullNames bool
	Cache     *cache.Dir // of names; nil: none
	Arch      string     // the target's architecture, as in GOARCH
	Made      Made       // of the program, for code that it generates
	// Managed names a location in a managed.Range; nil: there are none.
	Managed func(addr uint64) (symbol.Frame, bool)
	// Files are shared with the Lives of other processes; nil: the Live has files of its own.
	Files *LiveFiles
}

// LiveFiles keeps the files of several Lives open, each once for all processes that use it. It bounds the
// memory of all Lives together. Close it after the last Name.
type LiveFiles struct {
	mu     sync.Mutex // one Name at a time; guards the fields below
	closed bool
	files  *Files[any] // by KeyedModules.Key, or by ownModule
}

// ownModule identifies a module that no other process shares.
type ownModule struct {
	of *Live
	id int
}

// NewLiveFiles returns an empty LiveFiles for a machine, as in GOARCH.
func NewLiveFiles(arch string, o Options) *LiveFiles {
	return &LiveFiles{files: NewFiles[any](arch, maxLiveFiles, o)}
}

// Close closes the files after a running Name has returned.
func (f *LiveFiles) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.files.Close()
}

// Place is an address on a stack.
type Place struct {
	Addr uint64     // lookup address: for a return address one less
	At   stack.Time // time of the sample
}

// Live resolves locations while a recording grows. Its results are for display only:
// the recording's own names are resolved when it ends. Its methods may be called from
// any goroutine; calls of Name run one at a time.
type Live struct {
	mods Modules
	o    LiveOptions

	mu    sync.Mutex
	known trace.Recording // Maps and Modules so far
	fresh chan struct{}   // closed when there are more

	files *LiveFiles

	// Guarded by files.mu.
	closed bool
	made   Made
}

// Bounds of a Live.
const (
	maxLiveFiles = 12      // open at once
	liveBudget   = 8 << 20 // bytes of decoded DWARF for each
	mapsWait     = 500 * time.Millisecond
)

// NewLive returns a Live that opens files through mods.
func NewLive(mods Modules, o LiveOptions) *Live {
	l := &Live{mods: mods, o: o, fresh: make(chan struct{}), made: o.Made, files: o.Files}
	if l.files == nil {
		l.files = NewLiveFiles(o.Arch, Options{FullNames: o.FullNames, Cache: o.Cache})
	}
	return l
}

// Maps adds a generation of the address space, with its new modules, like
// trace.Recorder.Maps.
func (l *Live) Maps(m trace.Maps, mods []trace.Module) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Readers hold copies of these slices, so they may only be appended to.
	l.known.Maps = append(l.known.Maps, m)
	l.known.Modules = append(l.known.Modules, mods...)
	close(l.fresh)
	l.fresh = make(chan struct{})
}

// Close closes the files after a running Name has returned, unless other Lives share them.
func (l *Live) Close() {
	l.files.mu.Lock()
	l.closed = true
	l.files.mu.Unlock()
	if l.o.Files == nil {
		l.files.Close()
	}
}

// Retire says that the process has ended. Name and Locate still work, but for code that the program made.
func (l *Live) Retire() {
	l.files.mu.Lock()
	defer l.files.mu.Unlock()
	l.made = Made{}
}

// Locate returns the file of a place, with an identity that is equal for all Lives of one LiveFiles, and the
// address in it. It fails for a place that is in no file, or in one that other processes do not share.
func (l *Live) Locate(p Place) (file any, vaddr uint64, ok bool) {
	mods, keyed := l.mods.(KeyedModules)
	if !keyed {
		return nil, 0, false
	}
	l.mu.Lock()
	known := trace.Recording{Maps: l.known.Maps, Modules: l.known.Modules}
	l.mu.Unlock()
	k, ok := known.Locate(p.Addr, generation(known.Maps, p.At))
	if !ok {
		return nil, 0, false
	}
	inFile := func(x trace.Segment) bool { return k.Addr >= x.Vaddr && k.Addr-x.Vaddr < x.Size }
	if !slices.ContainsFunc(known.Modules[k.Module].Segments, inFile) {
		return nil, 0, false
	}
	file = mods.Key(k.Module)
	return file, k.Addr, file != nil
}

// place is a located Place.
type place struct {
	i     int
	key   trace.LocKey
	named uint64 // its address in a name, if it has no symbol
}

// Name calls answer with the index of a place, the path of its module, the address that names it without a symbol (see
// trace.Module.Place) and its frames, leaf first: first without frames, for all places whose module is known, then with the
// frames found. It returns early when ctx ends. Frames are valid only during the call.
func (l *Live) Name(ctx context.Context, places []Place, answer func(i int, module string, addr uint64, frames []symbol.Frame)) {
	l.files.mu.Lock()
	defer l.files.mu.Unlock()
	if l.closed || l.files.closed {
		return
	}
	known, found := l.locate(ctx, places)
	for _, p := range found {
		answer(p.i, known.Modules[p.key.Module].Path, p.named, nil)
	}
	slices.SortFunc(found, func(a, b place) int {
		if a.key.Module != b.key.Module {
			return a.key.Module - b.key.Module
		}
		return int(int64(a.key.Addr - b.key.Addr))
	})
	for len(found) > 0 && ctx.Err() == nil {
		id := found[0].key.Module
		n := 1
		for n < len(found) && found[n].key.Module == id {
			n++
		}
		l.module(ctx, &known.Modules[id], found[:n], answer)
		found = found[n:]
	}
}

// locate finds the modules of places. Samples may arrive a moment before the maps that
// explain them, so it waits briefly for missing ones, unless other processes would wait too.
func (l *Live) locate(ctx context.Context, places []Place) (*trace.Recording, []place) {
	late := time.NewTimer(mapsWait)
	defer late.Stop()
	for {
		l.mu.Lock()
		known := trace.Recording{Maps: l.known.Maps, Modules: l.known.Modules}
		fresh := l.fresh
		l.mu.Unlock()
		var found []place
		for i := range places {
			g := generation(known.Maps, places[i].At)
			if k, ok := known.Locate(places[i].Addr, g); ok {
				named, _ := known.Place(places[i].Addr, g)
				found = append(found, place{i, k, named.Addr})
			}
		}
		if len(found) == len(places) || l.o.Files != nil {
			return &known, found
		}
		select {
		case <-fresh:
			continue
		case <-late.C:
		case <-ctx.Done():
		}
		return &known, found
	}
}

// generation returns the index of the maps valid at t.
func generation(ms []trace.Maps, t stack.Time) int {
	i, _ := slices.BinarySearchFunc(ms, t, func(m trace.Maps, t stack.Time) int {
		if m.At <= t {
			return -1
		}
		return 1
	})
	return max(i-1, 0)
}

// key identifies module id among the files.
func (l *Live) key(id int) any {
	if keyed, ok := l.mods.(KeyedModules); ok && l.o.Files != nil {
		if k := keyed.Key(id); k != nil {
			return k
		}
	}
	return ownModule{l, id}
}

func (l *Live) module(ctx context.Context, m *trace.Module, places []place, answer func(int, string, uint64, []symbol.Frame)) {
	id := places[0].key.Module
	if len(m.Segments) == 0 && m.Path != "[vdso]" {
		l.nameMade(m, places, answer)
		return
	}
	// The reason of a failure is reported when the recording ends.
	f := l.files.files.With(l.o.Finder).Source(l.key(id), m.Path, func() (io.ReaderAt, io.Closer, error) { return l.mods.Open(id, m) })
	if f == nil {
		return
	}
	var buf []symbol.Frame
	for _, p := range places {
		if ctx.Err() != nil {
			return
		}
		if buf = f.Frames(p.key.Addr, buf[:0]); len(buf) > 0 {
			answer(p.i, m.Path, p.named, buf)
		}
	}
}

// nameMade names run-time addresses outside files. If an address has no name yet, it
// reads the program's descriptions again.
func (l *Live) nameMade(m *trace.Module, places []place, answer func(int, string, uint64, []symbol.Frame)) {
	var buf []symbol.Frame
	for _, p := range places {
		if _, ok := managed.Named(m.Path); ok && l.o.Managed != nil {
			if f, ok := l.o.Managed(p.key.Addr); ok {
				answer(p.i, m.Path, p.named, []symbol.Frame{f})
			}
			continue
		}
		buf = l.made.Frames(p.key.Addr, buf[:0])
		if len(buf) == 0 && l.made.Read() {
			buf = l.made.Frames(p.key.Addr, buf[:0])
		}
		if len(buf) > 0 {
			answer(p.i, m.Path, p.named, buf)
		}
	}
}
