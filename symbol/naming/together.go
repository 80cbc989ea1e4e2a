package naming

import (
	"runtime"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/rule"
)

// KeyedModules are Modules of which some are files that other recordings use too.
type KeyedModules interface {
	Modules
	// Key returns a comparable value that is equal for modules of the same file; nil: module i
	// is not shared.
	Key(i int) any
}

// Together names several recordings that have files in common, for example a compiler that ran a
// hundred times. It reads each file once, for the locations of all recordings. Add all recordings
// first, then call Resolve, and then Symbols for each of them, once. Symbols may be called from several goroutines.
type Together struct {
	mu    sync.Mutex
	files map[any]*union
}

// union is one file with the locations of all recordings.
type union struct {
	addrs map[uint64]bool // until they are resolved
	users int             // recordings that will ask for it; guarded by Together.mu
	first user

	once     sync.Once
	frames   map[uint64][]symbol.Frame
	problems []string
	err      error
}

// user is a file as a module of one recording.
type user struct {
	id   int
	m    *trace.Module
	mods Modules
	o    *Options
	arch rule.Arch
}

// Add adds the locations of a recording, which is named with o.
func (t *Together) Add(rec *trace.Recording, mods KeyedModules, o *Options) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files == nil {
		t.files = map[any]*union{}
	}
	keys := map[int]any{}
	met := map[any]bool{}
	rec.EachLoc(func(k trace.LocKey) {
		key, ok := keys[k.Module]
		if !ok {
			key = mods.Key(k.Module)
			keys[k.Module] = key
		}
		if key == nil {
			return
		}
		u := t.files[key]
		if u == nil {
			u = &union{addrs: map[uint64]bool{}, first: user{k.Module, &rec.Modules[k.Module], mods, o, archOf(rec.Process.Arch)}}
			t.files[key] = u
		}
		if !met[key] {
			met[key] = true
			u.users++
		}
		u.addrs[k.Addr] = true
	})
}

// Resolve resolves the locations of all files, several files at once and those with the most locations first. Without it,
// Symbols does that for one file after the other, as the recordings ask for them.
func (t *Together) Resolve() {
	t.mu.Lock()
	var all []*union
	for _, u := range t.files {
		all = append(all, u)
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b *union) int { return len(b.addrs) - len(a.addrs) })
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, u := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			u.first.o.Do(func() { u.resolve(&u.first) })
		})
	}
	wg.Wait()
}

// file returns the file of a module; nil: it is not shared.
func (t *Together) file(mods Modules, id int) *union {
	keyed, ok := mods.(KeyedModules)
	if !ok {
		return nil
	}
	key := keyed.Key(id)
	if key == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.files[key]
	if u == nil {
		return nil
	}
	// The last recording that uses a file takes it out: names need memory.
	if u.users--; u.users <= 0 {
		delete(t.files, key)
	}
	return u
}

// shared names the locations of a file that other recordings use.
func (g *gatherer) shared(u *union, id int, m *trace.Module, addrs []uint64, mods Modules, o Options, arch rule.Arch) error {
	u.resolve(&user{id, m, mods, &o, arch})
	for _, a := range addrs {
		if frames := u.frames[a]; frames != nil {
			g.set(id, a, frames)
		}
	}
	for _, p := range u.problems {
		g.problem("%s", p)
	}
	return u.err
}

// resolve names the locations, once.
func (u *union) resolve(x *user) {
	u.once.Do(func() {
		all := make([]uint64, 0, len(u.addrs))
		for a := range u.addrs {
			all = append(all, a)
		}
		slices.Sort(all)
		u.addrs, u.frames = nil, make(map[uint64][]symbol.Frame, len(all))
		var mu sync.Mutex
		r := resolver{id: x.id, m: x.m, mods: x.mods, o: x.o, arch: x.arch, set: func(vaddr uint64, frames []symbol.Frame) {
			mu.Lock()
			defer mu.Unlock()
			u.frames[vaddr] = slices.Clone(frames)
		}}
		u.err = contained(func() error { return r.resolve(all) })
		u.problems = r.problems
		u.first = user{}
	})
}
