// Package naming resolves all locations of a recording: it looks up each module's
// addresses with package symbol and collects the results as trace.Symbols. It is used
// when a recording ends, and again when a recording without names (because its recorder
// was killed) is exported.
//
// It knows no process: files come through Modules.
package naming

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
	"github.com/sliverprof/sliver/symbol/dwarf"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/rule"
)

// Modules opens the files of a recording's modules.
type Modules interface {
	// Open returns module i, with the path and build ID of m. If the file is gone or
	// was replaced it returns an error, and the module's names are lost.
	Open(i int, m *trace.Module) (io.ReaderAt, io.Closer, error)
}

// Options configure Symbols.
type Options struct {
	Finder    symbol.Finder
	FullNames bool
	// Cache stores the names of files by their build ID; nil: no cache.
	Cache *cache.Dir
	// Captured are pieces captured during the recording: "perf-map", "jitdump",
	// "gdb-jit", "vdso" and the What of each managed.Range. Each "perf-map" continues
	// the previous one, and is valid from its time on.
	Captured []trace.Captured
	// Run calls its argument, which is one of several parts of the work, in the
	// caller's way, and returns after it. It is called from several goroutines at a
	// time. nil: a plain call.
	Run func(part func())
	// Together shares the names of files with other recordings; nil: with none. The recording
	// was added to it.
	Together *Together
}

// sections returns the cache of decompressed sections; nil: none.
func (o *Options) sections() symbol.Sections {
	if o.Cache == nil {
		return nil
	}
	return o.Cache
}

// Do runs a part of the work through Run.
func (o *Options) Do(part func()) {
	if o.Run == nil {
		part()
		return
	}
	o.Run(part)
}

// Symbols names all locations of rec. problems has one line for each read that failed;
// a failure costs names, never the result.
func Symbols(rec *trace.Recording, mods Modules, o Options) (s *trace.Symbols, problems []string) {
	byModule := map[int][]uint64{}
	rec.EachLoc(func(k trace.LocKey) { byModule[k.Module] = append(byModule[k.Module], k.Addr) })
	ids := make([]int, 0, len(byModule))
	for m := range byModule {
		ids = append(ids, m)
	}
	slices.Sort(ids)
	g := &gatherer{s: &trace.Symbols{}, ids: map[function]int{}}
	jit := &jitNames{log: perfLog(o.Captured, g), dump: jitDump(o.Captured, g), ends: ends(rec)}
	jit.readObjects(o, g)
	arch := archOf(rec.Process.Arch)
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, id := range ids {
		addrs := byModule[id]
		slices.Sort(addrs)
		m := &rec.Modules[id]
		if r, ok := managed.Named(m.Path); ok {
			g.managed(id, addrs, managedFunctions(r, o.Captured, g))
			continue
		}
		if len(m.Segments) == 0 && m.Path != "[vdso]" {
			jit.add(g, id, addrs)
			continue
		}
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wg.Done() }()
			o.Do(func() {
				if err := contained(func() error { return g.module(id, m, addrs, mods, o, arch) }); err != nil {
					g.problem("no names for %s: %v", m.Path, err)
				}
			})
		}()
	}
	jit.finish(g)
	wg.Wait()
	slices.Sort(g.problems)
	return g.s, g.problems
}

// module names the locations of one file.
func (g *gatherer) module(id int, m *trace.Module, addrs []uint64, mods Modules, o Options, arch rule.Arch) error {
	if o.Together != nil {
		if u := o.Together.file(mods, id); u != nil {
			return g.shared(u, id, m, addrs, mods, o, arch)
		}
	}
	r := resolver{id: id, m: m, mods: mods, o: &o, arch: arch, set: func(vaddr uint64, frames []symbol.Frame) { g.set(id, vaddr, frames) }}
	err := r.resolve(addrs)
	for _, p := range r.problems {
		g.problem("%s", p)
	}
	return err
}

// resolver looks up locations of one file.
type resolver struct {
	id   int
	m    *trace.Module
	mods Modules
	o    *Options
	arch rule.Arch
	set  func(vaddr uint64, frames []symbol.Frame) // may be called from several goroutines

	problems []string
}

// resolve names the addresses from the cache, and otherwise from the file.
func (r *resolver) resolve(addrs []uint64) error {
	known, missing := cached(r.m.BuildID, addrs, *r.o)
	l := lookup{resolver: r, known: known}
	for _, a := range addrs {
		if frames, ok := known[a]; ok {
			r.set(a, frames)
			if len(frames) == 0 {
				l.nameless = append(l.nameless, a)
			}
		}
	}
	if len(missing)+len(l.nameless) == 0 {
		return nil // the file itself may be gone
	}
	file, c, err := open(r.mods, r.id, r.m, r.o.Captured)
	if err != nil {
		if len(missing) == 0 {
			return nil
		}
		return err
	}
	if c != nil {
		defer c.Close()
	}
	l.file = file
	if err := l.all(missing); err != nil {
		return err
	}
	fns := functions{path: r.m.Path, r: file, arch: r.arch}
	for _, a := range l.nameless {
		if fr, ok := fns.frame(a); ok {
			r.set(a, []symbol.Frame{fr})
		}
	}
	slices.Sort(l.found)
	r.problems = append(r.problems, slices.Compact(l.found)...)
	// Lookups affected by a damaged or missing debug file are not cached, so that they
	// are repeated.
	if known != nil && len(l.found) == 0 && len(known) <= maxCached {
		if err := r.o.Cache.Store(r.m.BuildID, r.o.FullNames, known); err != nil {
			r.problems = append(r.problems, fmt.Sprintf("names of %s are not kept: %v", r.m.Path, err))
		}
	}
	return nil
}

// lookup names the locations of a file that the cache does not have.
type lookup struct {
	*resolver
	file   io.ReaderAt
	parts  int
	shared symbol.Shared

	mu       sync.Mutex  // guards the following
	known    cache.Table // nil: the file has no cache
	nameless []uint64
	found    []string // problems
}

// all looks up many locations in concurrent parts: each part opens the file itself, and
// neighbours stay together.
func (l *lookup) all(addrs []uint64) (err error) {
	l.parts = max(1, min(runtime.GOMAXPROCS(0), maxParts, len(addrs)/minPart))
	if l.parts == 1 {
		if len(addrs) == 0 {
			return nil
		}
		return l.part(addrs)
	}
	var wg sync.WaitGroup
	for part := range slices.Chunk(addrs, (len(addrs)+l.parts-1)/l.parts) {
		wg.Go(func() {
			l.o.Do(func() {
				if e := contained(func() error { return l.part(part) }); e != nil {
					l.mu.Lock()
					defer l.mu.Unlock()
					err = e
				}
			})
		})
	}
	wg.Wait()
	return err
}

// part looks up some of the locations.
func (l *lookup) part(addrs []uint64) error {
	f, err := symbol.Open(l.file, symbol.Options{Path: l.m.Path, Finder: l.o.Finder, FullNames: l.o.FullNames, Budget: dwarf.DefaultBudget / l.parts, Shared: &l.shared, Sections: l.o.sections(),
		GoTable: func(in io.ReaderAt) (symbol.GoTable, error) { return goTable(in, l.arch) }})
	if err != nil {
		return err
	}
	defer f.Close()
	symbol.ResolveModule(f, addrs, l.add)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range f.Problems() {
		l.found = append(l.found, p.Error())
	}
	return nil
}

// add sets the names of a location.
func (l *lookup) add(vaddr uint64, frames []symbol.Frame) {
	l.set(vaddr, frames)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known != nil {
		l.known[vaddr] = slices.Clone(frames)
	}
	if len(frames) == 0 {
		l.nameless = append(l.nameless, vaddr)
	}
}

// contained is f, but a panic in f costs the names of one file, not the recording.
func contained(f func() error) (err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v", x)
		}
	}()
	return f()
}

// A file with at least twice minPart locations to name is opened up to maxParts times.
const (
	minPart  = 2048
	maxParts = 8
)

// maxCached bounds the cached addresses of a file.
const maxCached = 1 << 20

// cached returns the cached names, and the addresses missing in the cache; known is nil
// without a cache for the file.
func cached(buildID string, addrs []uint64, o Options) (known cache.Table, missing []uint64) {
	if o.Cache == nil || buildID == "" {
		return nil, addrs
	}
	if known = o.Cache.Load(buildID, o.FullNames); known == nil {
		return cache.Table{}, addrs
	}
	for _, a := range addrs {
		if _, ok := known[a]; !ok {
			missing = append(missing, a)
		}
	}
	return known, missing
}

// gatherer collects results from several goroutines.
type gatherer struct {
	mu       sync.Mutex
	s        *trace.Symbols
	ids      map[function]int
	problems []string
}

// function is the key of a function within its file. It has only one of two names,
// because hashing both is slow.
type function struct {
	name         string // linkage name; bare: the displayed name
	bare         bool
	line, module int
	start        uint64
}

func (g *gatherer) problem(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.problems = append(g.problems, fmt.Sprintf(format, args...))
}

// set stores the frames of one location. It omits unnamed locations, for which readers
// show module+offset.
func (g *gatherer) set(module int, vaddr uint64, frames []symbol.Frame) {
	if len(frames) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]trace.LocFrame, len(frames))
	for i := range frames {
		f := &frames[i]
		// A function is the same whatever files its lines come from (macros, #include):
		// if its declaration is unknown, its file is that of the first location seen in
		// it.
		fn := trace.Func{Name: f.Func, Linkage: f.Linkage, StartLine: f.StartLine, Module: module}
		if !f.Inlined {
			fn.Start = f.Start
		}
		key := function{name: fn.Linkage, line: fn.StartLine, module: module, start: fn.Start}
		if key.name == "" {
			key.name, key.bare = fn.Name, true
		}
		id, ok := g.ids[key]
		if !ok || g.s.Funcs[id].Name != fn.Name {
			if fn.File = f.StartFile; fn.File == "" {
				fn.File = f.File
			}
			id = g.s.FuncID(fn)
			g.ids[key] = id
		}
		out[i] = trace.LocFrame{Func: id, File: f.File, Line: f.Line, Inlined: f.Inlined}
	}
	g.s.Set(trace.LocKey{Module: module, Addr: vaddr}, out)
}

func open(mods Modules, id int, m *trace.Module, kept []trace.Captured) (io.ReaderAt, io.Closer, error) {
	if m.Path == "[vdso]" {
		for _, c := range kept {
			if c.What == trace.VDSO {
				return bytes.NewReader(c.Data), nil, nil
			}
		}
		return nil, nil, fmt.Errorf("the recording holds no copy of it")
	}
	return mods.Open(id, m)
}

func archOf(goarch string) rule.Arch {
	if goarch == "arm64" {
		return rule.ARM64
	}
	return rule.AMD64
}

// goNames adapts a pclntab to package symbol.
type goNames struct {
	t   *gopcln.Table
	buf []gopcln.Inline
}

func goTable(r io.ReaderAt, arch rule.Arch) (symbol.GoTable, error) {
	t, err := gopcln.Load(r, arch)
	if err != nil {
		return nil, err
	}
	return &goNames{t: t}, nil
}

// Frames implements symbol.GoTable.
func (g *goNames) Frames(vaddr uint64, buf []symbol.Frame) []symbol.Frame {
	entry, name, ok := g.t.Func(vaddr)
	if !ok {
		return buf
	}
	g.buf = g.t.Inlines(vaddr, g.buf[:0])
	for i := range g.buf {
		in := &g.buf[i]
		buf = append(buf, symbol.Frame{Func: in.Func, File: in.File, Line: in.Line, Inlined: i+1 < len(g.buf), Start: entry})
	}
	if len(g.buf) == 0 {
		f := symbol.Frame{Func: name, Start: entry}
		f.File, f.Line, _ = g.t.Line(vaddr)
		buf = append(buf, f)
	}
	return buf
}
