package v8

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
)

// engine is the V8 of a process.
type engine struct {
	unwind.NoPart
	rt     *Runtime
	mem    unwind.Memory
	table  *managed.Table
	copies copies
}

// placed is a function's place in the table.
type placed struct{ addr, size uint64 }

// v8Walk is a Walker's state for V8.
type v8Walk struct {
	of   *engine
	walk *Walker
	out  []stack.Frame
	// places are those of the frames that may be JavaScript's, and at the indexes of these frames.
	places []Place
	at     []int
}

// v8Thread is a Thread's state for V8.
type v8Thread struct {
	known Known
	lost  bool // the last walk lacks frames of JavaScript
}

var (
	v8Walks   unwind.Slot[v8Walk]
	v8Threads unwind.Slot[v8Thread]
)

// Stacks shows the functions of JavaScript, by their places in the table. The error is a *VersionError.
var Stacks = &unwind.Language{
	Name:       "V8",
	Properties: unwind.Generates | unwind.Remaps,
	Find:       find,
}

func find(s *unwind.Space, table *managed.Table) (unwind.Stepper, error) {
	for c := range s.Code() {
		if c.Again || !mayBeV8(&c) {
			continue
		}
		img, err := engineImage.Of(&c)
		var version *VersionError
		switch {
		case errors.As(err, &version):
			return nil, err
		case err != nil:
			continue // not V8, or not ELF
		}
		e := &engine{mem: s.Memory(), table: table, copies: copies{of: c}}
		e.rt = New(img, e.place)
		return e, nil
	}
	return nil, nil
}

// engineImage is the V8 in a file.
var engineImage = unwind.Fact[*Image]{Read: Load}

// mayBeV8 reports whether a file is worth searching.
func mayBeV8(c *unwind.Code) bool {
	name := c.Path[strings.LastIndexByte(c.Path, '/')+1:]
	return c.Own || strings.Contains(name, "node") || strings.Contains(name, "v8")
}

// Of returns the engine whose functions walks show, or nil.
func Of(s *unwind.Space) *Runtime {
	if e, ok := s.Followed(Stacks).(*engine); ok {
		return e.rt
	}
	return nil
}

// place assigns a function its place in the table.
func (e *engine) place(f *Function) any {
	lines := binary.AppendUvarint(nil, uint64(f.Start))
	f.Each(func(end uint64, line int) bool {
		lines = binary.AppendUvarint(lines, end)
		return true
	})
	k := managed.Key{Name: f.Name, File: f.File, First: f.First, Size: uint64(f.Size()), Lines: e.table.Hash(lines)}
	var p placed
	p.addr, p.size = e.table.Add(k, f.Each)
	return p
}

// Merge replaces the machine code that runs JavaScript by the JavaScript functions.
func (e *engine) Merge(w *unwind.Walker, th *unwind.Thread, frames []stack.Frame) []stack.Frame {
	t := v8Threads.Of(th)
	t.lost = false
	j := v8Walks.In(w)
	if j.of != e {
		j.of, j.walk = e, e.rt.Walker()
	}
	j.places, j.at = j.places[:0], j.at[:0]
	for i := range frames {
		if p, ok := v8Place(w, i, &frames[i]); ok {
			j.places, j.at = append(j.places, p), append(j.at, i)
		}
	}
	if len(j.places) == 0 {
		return frames
	}
	j.walk.Begin(w.Meter(), &t.known, j.places, w)
	next := 0
	j.out = j.out[:0]
	for i := range frames {
		f := &frames[i]
		ok := next < len(j.at) && j.at[next] == i
		if !ok {
			j.out = append(j.out, *f)
			continue
		}
		p := &j.places[next]
		next++
		if i > MaxFrames {
			if n := len(j.out); j.out[n-1].Kind != stack.KindError {
				t.lost = true
				j.out = append(j.out, stack.Frame{PC: uint64(stack.ReasonBound), Kind: stack.KindError})
			}
			continue
		}
		js, lost := j.walk.Frames(p, w)
		if lost {
			t.lost = true
			// One error frame covers consecutive missing frames.
			if n := len(j.out); n == 0 || j.out[n-1].Kind != stack.KindError {
				j.out = append(j.out, stack.Frame{PC: uint64(stack.ReasonMemory), Kind: stack.KindError})
			}
		} else if len(js) == 0 {
			j.out = append(j.out, *f)
		}
		for k := range js {
			at := js[k].Fn.Handle().(placed)
			j.out = append(j.out, stack.Frame{Func: at.addr, PC: at.addr + min(uint64(js[k].Off), at.size-1), CFA: f.CFA,
				Kind: stack.KindJS, Trust: stack.TrustTable, Exact: true, Order: uint8(min(len(js)-1-k, 255))})
		}
	}
	j.walk.End()
	return j.out
}

// Report implements Stepper.
func (e *engine) Report(th *unwind.Thread) unwind.Report {
	return unwind.Report{Gap: v8Threads.Of(th).lost}
}

// v8Place returns the frame in the form that V8's walker takes: code without tables.
func v8Place(w *unwind.Walker, i int, f *stack.Frame) (p Place, ok bool) {
	if f.Func != 0 || f.Kind != stack.KindNative || f.PC == 0 {
		return p, false
	}
	p = Place{PC: f.PC, Exact: f.Exact}
	at := f.PC
	if !f.Exact {
		at--
	}
	r, known := w.Region(at)
	if !known || !r.Exec && !r.Made {
		return p, false
	}
	p.Made = !r.File
	if f.CFA > 16 {
		p.FP = f.CFA - 16
	}
	if i == 0 {
		const r9, r12 = 9, 12
		leaf, first := w.Start()
		bp := w.Arch().FP()
		if fp := leaf.R[bp&31]; !leaf.Has(bp) || fp != p.FP || fp < first+16 {
			p.FP = 0
		}
		if leaf.Has(r9) && leaf.Has(r12) {
			p.Array, p.Offset = leaf.R[r12], leaf.R[r9]
		}
	}
	return p, p.Made || p.FP != 0
}
