package store

import (
	"sync"

	"github.com/sliverprof/sliver/stack"
)

// Func is a function, the unit that a timeline distinguishes.
type Func struct {
	Name   string `json:"name"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"` // first line; 0: unknown
	Module string `json:"module,omitempty"`
	// Kind is a word for stack.Kind, "" for native code.
	Kind string `json:"kind,omitempty"`
}

// Place is a code location.
type Place struct {
	Func    uint32
	File    string
	Line    int
	Addr    uint64 // in the target; 0: unknown
	Inlined bool   // Func was inlined into its caller
	Kind    stack.Kind
	Inner   []uint32
	// Inner are functions inlined into Func at this place, outermost first, if they have
	// no separate slices.
}

// Names holds the functions and places of a store. Its methods may be called from any
// goroutine.
type Names struct {
	mu      sync.RWMutex
	funcs   []Func
	byFunc  map[Func]uint32
	places  []Place
	funcOf  []uint32 // by place; replaced, not changed, when a place is renamed
	kindOf  []stack.Kind
	version uint64 // changes when a known place gets another function
}

func newNames() *Names { return &Names{byFunc: map[Func]uint32{}} }

// Func returns the number of f and adds it if it is new.
func (n *Names) Func(f Func) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fn(f)
}

func (n *Names) fn(f Func) uint32 {
	id, ok := n.byFunc[f]
	if !ok {
		id = uint32(len(n.funcs))
		n.funcs = append(n.funcs, f)
		n.byFunc[f] = id
	}
	return id
}

// Add adds a place and returns its number.
func (n *Names) Add(p Place) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.places = append(n.places, p)
	n.funcOf = append(n.funcOf, p.Func)
	n.kindOf = append(n.kindOf, p.Kind)
	return uint32(len(n.places) - 1)
}

// Rename replaces the contents of places.
func (n *Names) Rename(ids []uint32, ps []Place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	funcOf := append(make([]uint32, 0, len(n.funcOf)+256), n.funcOf...)
	changed := false
	for i, id := range ids {
		changed = changed || funcOf[id] != ps[i].Func
		n.places[id], funcOf[id] = ps[i], ps[i].Func
	}
	if changed {
		n.funcOf = funcOf
		n.version++
	}
}

// Since returns the functions from number i on.
func (n *Names) Since(i int) []Func {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.funcs[min(i, len(n.funcs)):len(n.funcs):len(n.funcs)]
}

// Version changes when known places get other functions.
func (n *Names) Version() uint64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.version
}

// Place returns place i.
func (n *Names) Place(i uint32) Place {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if int(i) >= len(n.places) {
		return Place{}
	}
	return n.places[i]
}

// FuncAt returns function i.
func (n *Names) FuncAt(i uint32) Func {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if int(i) >= len(n.funcs) {
		return Func{}
	}
	return n.funcs[i]
}

// Funcs returns the number of functions.
func (n *Names) Funcs() int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return len(n.funcs)
}

// FuncOf returns the function of each place; read-only.
func (n *Names) FuncOf() []uint32 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.funcOf[:len(n.funcOf):len(n.funcOf)]
}

// KindOf returns the kind of a place, which renaming does not change.
func (n *Names) KindOf(i uint32) stack.Kind {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if int(i) >= len(n.kindOf) {
		return stack.KindNative
	}
	return n.kindOf[i]
}
