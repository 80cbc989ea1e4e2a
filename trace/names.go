package trace

import (
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Loc is a resolved frame word.
type Loc struct {
	ID     int // small number, unique per location, for interning
	Key    LocKey
	Addr   uint64 // run-time address as first seen (PC or return address)
	Word   event.Word
	Frames []LocFrame // innermost first, never empty
}

// Names resolves the words of a recording and caches the results. Words without a symbol
// are named module+0xvaddr (Module.Place); error frames have their reason in brackets. It must be used
// by one goroutine; Funcs grows as names are created.
type Names struct {
	Funcs []Func // by LocFrame.Func

	rec    *Recording
	locs   []*Loc
	byKey  map[locID]*Loc
	byWord []map[event.Word]*Loc // by generation of maps
	calls  map[event.Word]*Loc   // kernel frames
	made   map[string]int
	same   []int // see Same; nil: each function represents itself
	gen    int
}

type locID struct {
	key  LocKey
	kind stack.Kind
}

// NewNames returns Names for rec.
func NewNames(rec *Recording) *Names {
	n := &Names{rec: rec, byKey: map[locID]*Loc{}, made: map[string]int{}}
	if rec.Symbols != nil {
		n.Funcs = slices.Clip(rec.Symbols.Funcs) // shared until a name is added
		n.findSame()
	}
	n.byWord = make([]map[event.Word]*Loc, max(len(rec.Maps), 1))
	return n
}

// Locs returns all locations resolved so far, by ID.
func (n *Names) Locs() []*Loc { return n.locs }

// Func returns the function of a location's frame.
func (n *Names) Func(f *LocFrame) *Func { return &n.Funcs[f.Func] }

// Resolve returns the location of w in the address space at time t.
func (n *Names) Resolve(w event.Word, t stack.Time) *Loc {
	if l := n.calls[w]; l != nil && w.Kind() == stack.KindKernel {
		return l
	}
	g := n.generation(t)
	m := n.byWord[g]
	if m == nil {
		m = map[event.Word]*Loc{}
		n.byWord[g] = m
	}
	l := m[w]
	if l == nil {
		l = n.resolve(w, g)
		m[w] = l
	}
	return l
}

// Call defines a kernel frame that a reader adds to stacks: w, of stack.KindKernel,
// represents it in events.
func (n *Names) Call(w event.Word, name string) {
	if n.calls[w] != nil {
		return
	}
	if n.calls == nil {
		n.calls = map[event.Word]*Loc{}
	}
	l := &Loc{ID: len(n.locs), Key: LocKey{Module: -1, Addr: w.Addr()}, Word: w, Frames: []LocFrame{{Func: n.make(name, -1)}}}
	n.locs = append(n.locs, l)
	n.calls[w] = l
}

// generation returns the index of the maps in effect at t: the newest at or before t, or
// the first one for earlier times. Maps are read when an address appears that the
// previous maps do not contain, so a generation also covers the samples just before it:
// see Locate.
func (n *Names) generation(t stack.Time) int {
	ms := n.rec.Maps
	if len(ms) <= 1 {
		return 0
	}
	if ms[n.gen].At <= t && (n.gen+1 == len(ms) || ms[n.gen+1].At > t) {
		return n.gen
	}
	n.gen = max(sort.Search(len(ms), func(i int) bool { return ms[i].At > t })-1, 0)
	return n.gen
}

// Locate returns the module and address of code at addr (a lookup address) in generation
// g. If that one has no mapping there, it tries those after it, up to an exec. More than one may have been read, and be noted later, while
// the program mapped the code: on a busy machine, a process that just began has samples before the maps that have its libraries.
func (rec *Recording) Locate(addr uint64, g int) (k LocKey, ok bool) {
	m := rec.mapping(addr, g)
	if m == nil {
		return LocKey{Module: -1, Addr: addr}, false
	}
	if v, ok := rec.Modules[m.Module].Vaddr(addr - m.Start + m.Off); ok {
		addr = v
	}
	return LocKey{m.Module, addr}, true
}

// Place is Locate for the name of a location without a symbol: its address is that of Module.Place.
func (rec *Recording) Place(addr uint64, g int) (k LocKey, ok bool) {
	m := rec.mapping(addr, g)
	if m == nil {
		return LocKey{Module: -1, Addr: addr}, false
	}
	return LocKey{m.Module, rec.Modules[m.Module].Place(m, addr)}, true
}

func (rec *Recording) mapping(addr uint64, g int) *Mapping {
	for i := g; i < len(rec.Maps); i++ {
		if i > g && rec.Maps[i].Exec {
			break
		}
		ms := rec.Maps[i].Mappings
		j := sort.Search(len(ms), func(j int) bool { return ms[j].End > addr })
		if j < len(ms) && addr >= ms[j].Start {
			return &ms[j]
		}
	}
	return nil
}

func (n *Names) resolve(w event.Word, g int) *Loc {
	var key LocKey
	if w.Kind() == stack.KindError {
		key = LocKey{Module: -1, Addr: w.Addr()}
	} else {
		key, _ = n.rec.Locate(w.Lookup(), g)
	}
	id := locID{key, w.Kind()}
	if l := n.byKey[id]; l != nil {
		return l
	}
	l := &Loc{ID: len(n.locs), Key: key, Addr: w.Addr(), Word: w}
	if w.Kind() == stack.KindError {
		l.Frames = []LocFrame{{Func: n.make(fmt.Sprintf("[%s]", stack.Reason(w.Addr())), -1)}}
	} else if n.rec.Symbols != nil {
		l.Frames = n.frames(n.rec.Symbols.Locs[key], w.Kind())
	}
	if len(l.Frames) == 0 {
		l.Key, _ = n.rec.Place(w.Lookup(), g)
		if same := n.byKey[locID{l.Key, w.Kind()}]; same != nil {
			return same
		}
		id.key = l.Key
		l.Frames = []LocFrame{{Func: n.make(n.placeName(l.Key), l.Key.Module)}}
	}
	n.locs = append(n.locs, l)
	n.byKey[id] = l
	return l
}

// place returns a location at that of another, with one frame.
func (n *Names) place(of *Loc, f LocFrame) *Loc {
	l := &Loc{ID: len(n.locs), Key: of.Key, Addr: of.Addr, Word: of.Word, Frames: []LocFrame{f}}
	n.locs = append(n.locs, l)
	return l
}

// placeName names code without a symbol.
func (n *Names) placeName(k LocKey) string {
	if k.Module < 0 {
		return fmt.Sprintf("[unknown]+%#x", k.Addr)
	}
	return PlaceName(n.rec.Modules[k.Module].Path, k.Addr)
}

// probes is the mapping in which the kernel executes copies of instructions with uprobes. Their addresses mean nothing.
const probes = "[uprobes]"

// madePage is the size of the parts of memory whose code has one name if the program made it and did not name it. Where a
// function of a just-in-time compiler begins is unknown, and a name for each instruction would tear a hot loop apart.
const madePage = 4096

// PlaceName names code at addr of a module that has no symbol.
func PlaceName(module string, addr uint64) string {
	if module == probes {
		return probes
	}
	if module == "" {
		module = "[anon]"
	}
	if strings.HasPrefix(module, "[") && module != "[vdso]" || strings.HasPrefix(module, memfd) { // also [heap]
		addr -= addr % madePage
	}
	if !strings.HasPrefix(module, "[") {
		module = path.Base(module)
	}
	return fmt.Sprintf("%s+%#x", module, addr)
}

func (n *Names) make(name string, module int) int {
	id, ok := n.made[name]
	if !ok {
		id = len(n.Funcs)
		n.Funcs = append(n.Funcs, Func{Name: name, Module: module})
		n.made[name] = id
	}
	return id
}

// EachLoc calls yield once for every code location in the recording's events, in no
// particular order: the locations that need names.
func (rec *Recording) EachLoc(yield func(k LocKey)) {
	seen := map[LocKey]bool{}
	words := map[locWord]bool{}
	n := NewNames(rec)
	word := func(w event.Word, t stack.Time) {
		g := n.generation(t)
		if w.Kind() == stack.KindError || words[locWord{w, g}] {
			return
		}
		words[locWord{w, g}] = true
		if k, ok := rec.Locate(w.Lookup(), g); ok && !seen[k] {
			seen[k] = true
			yield(k)
		}
	}
	for i := range rec.Threads {
		for e := range rec.events(rec.Threads[i].Seq) {
			if k := e.Kind(); k == event.Enter || k == event.Move {
				word(event.Word(e.Payload()), e.Time)
			}
		}
	}
	rec.eachTaskWord(word)
	rec.eachCallWord(word)
}

type locWord struct {
	w event.Word
	g int
}
