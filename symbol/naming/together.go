package naming

import (
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
// first, then call Symbols for each of them, once. Symbols may be called from several goroutines.
type Together struct {
	mu    sync.Mutex
	files map[any]*union
}

// union is one file with the locations of all recordings.
type union struct {
	addrs map[uint64]bool // until they are resolved
	users int             // recordings that will ask for it; guarded by Together.mu

	once     sync.Once
	frames   map[uint64][]symbol.Frame
	problems []string
	err      error
}

// Add adds the locations of a recording.
func (t *Together) Add(rec *trace.Recording, mods KeyedModules) {
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
			u = &union{addrs: map[uint64]bool{}}
			t.files[key] = u
		}
		if !met[key] {
			met[key] = true
			u.users++
		}
		u.addrs[k.Addr] = true
	})
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
	u.once.Do(func() {
		all := make([]uint64, 0, len(u.addrs))
		for a := range u.addrs {
			all = append(all, a)
		}
		slices.Sort(all)
		u.addrs, u.frames = nil, make(map[uint64][]symbol.Frame, len(all))
		var mu sync.Mutex
		r := resolver{id: id, m: m, mods: mods, o: &o, arch: arch, set: func(vaddr uint64, frames []symbol.Frame) {
			mu.Lock()
			defer mu.Unlock()
			u.frames[vaddr] = slices.Clone(frames)
		}}
		u.err = contained(func() error { return r.resolve(all) })
		u.problems = r.problems
	})
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
