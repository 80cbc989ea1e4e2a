package web

import (
	"sync"

	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/idle"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/web/analysis"
)

// classes are the classes of a feed's states, made when a view first shows them.
type classes struct {
	mu      sync.Mutex
	version uint64 // of the names; a change makes all classes stale
	of      []uint8
}

// class returns the class of state number id: an kind.Class.
func (f *feed) class(id uint32) uint8 {
	c := &f.classes
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := f.st.Names.Version(); v != c.version {
		c.version, c.of = v, c.of[:0]
	}
	for int(id) >= len(c.of) {
		c.of = append(c.of, 0)
	}
	if c.of[id] == 0 {
		c.of[id] = uint8(f.classify(id)) + 1
	}
	return c.of[id] - 1
}

func (f *feed) classify(id uint32) kind.Class {
	x := f.st.State(id)
	call := ""
	if x.Call >= 0 {
		call = syscalls.Name(f.src.Process().Arch, x.Call)
	}
	w, ok := f.wait(x.Wait)
	desc := &w
	if !ok {
		desc = nil
	}
	var frames []idle.Frame
	if x.State == stack.StateBlocked && idle.May(desc, call) {
		f.st.StackPlaces(x.Stack, func(place uint32) bool {
			p := f.st.Names.Place(place)
			for i := len(p.Inner) - 1; i >= 0; i-- {
				frames = append(frames, f.frame(p.Inner[i], p.Kind))
			}
			frames = append(frames, f.frame(p.Func, p.Kind))
			return len(frames) < idle.MaxFrames
		})
	}
	return analysis.ClassOf(x.State, desc, call, frames)
}

func (f *feed) frame(fn uint32, kind stack.Kind) idle.Frame {
	x := f.st.Names.FuncAt(fn)
	return idle.Frame{Name: x.Name, Kind: kind, Module: x.Module, File: x.File}
}
