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
	Runtime bool // native code of an interpreter or virtual machine
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
	traits  []trait  // by place; replaced likewise
	version uint64   // changes when a known place gets another function
	turned  uint64   // changes when a known place turns out to be a runtime's or not
	hosts   bool     // a place is a runtime's
}

// trait is what decides whether calls of a place are filtered out.
type trait struct {
	kind    stack.Kind
	runtime bool
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
	n.traits = append(n.traits, trait{p.Kind, p.Runtime})
	if p.Runtime && !n.hosts { // readers without such code have read as if there were none
		n.hosts = true
		n.turned++
		n.version++
	}
	return uint32(len(n.places) - 1)
}

// Rename replaces the contents of places.
func (n *Names) Rename(ids []uint32, ps []Place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	funcOf := append(make([]uint32, 0, len(n.funcOf)+256), n.funcOf...)
	var traits []trait
	changed := false
	for i, id := range ids {
		changed = changed || funcOf[id] != ps[i].Func
		if n.traits[id].runtime != ps[i].Runtime {
			if traits == nil {
				traits = append(make([]trait, 0, len(n.traits)+256), n.traits...)
			}
			traits[id].runtime = ps[i].Runtime
			n.hosts = n.hosts || ps[i].Runtime
		}
		n.places[id], funcOf[id] = ps[i], ps[i].Func
	}
	if changed || traits != nil {
		n.funcOf = funcOf
		n.version++
	}
	if traits != nil {
		n.traits = traits
		n.turned++
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

// Places returns the number of places.
func (n *Names) Places() int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return len(n.places)
}

// FuncOf returns the function of each place; read-only.
func (n *Names) FuncOf() []uint32 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.funcOf[:len(n.funcOf):len(n.funcOf)]
}

// sifting returns what it takes to filter calls: the traits of all places (read-only), the number of the
// change of traits, and k, or 0 if k leaves nothing out.
func (n *Names) sifting(k Kinds) ([]trait, uint64, Kinds) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if k == allCode && !n.hosts {
		k = 0
	}
	return n.traits[:len(n.traits):len(n.traits)], n.turned, k
}
