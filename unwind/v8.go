package unwind

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/v8"
)

// engine is the V8 of a process.
type engine struct {
	noPart
	rt     *v8.Runtime
	table  *managed.Table
	copies copies
}

// placed is a function's place in the table.
type placed struct{ addr, size uint64 }

// v8Walk is a Walker's state for V8.
type v8Walk struct {
	of   *engine
	walk *v8.Walker
	out  []stack.Frame
}

// FollowV8 makes walks show the functions of JavaScript, by their places in table, if the process
// has V8 mapped. It returns the engine, or nil if there is none. An error says why the engine
// cannot be read (*v8.VersionError). Read the maps again afterwards: see Copies.
func (s *Space) FollowV8(table *managed.Table) (*v8.Runtime, error) {
	if s.mem == nil {
		return nil, nil
	}
	snap := s.snap.Load()
	seen := map[*module]bool{}
	for i := range snap.regions {
		r := &snap.regions[i]
		if !r.exec || r.mod == nil || seen[r.mod] || r.mod.mapping.Inode == 0 || !mayBeV8(r.mod, i) {
			continue
		}
		seen[r.mod] = true
		r.mod.load()
		if r.mod.file == nil {
			continue
		}
		img, err := r.mod.v8Image()
		var version *v8.VersionError
		switch {
		case errors.As(err, &version):
			return nil, err
		case err != nil:
			continue // not V8, or not ELF
		}
		e := &engine{table: table, copies: copies{mod: r.mod}}
		e.rt = v8.New(img, e.place)
		s.setRuntimes(func(r *runtimes) { r.v8 = e })
		s.mark()
		s.shown.Add(1)
		return e.rt, nil
	}
	return nil, nil
}

// mark is markMade for the current mappings.
func (s *Space) mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.snap.Load()
	next := &snapshot{regions: slices.Clone(old.regions), epoch: old.epoch}
	next.markMade(old)
	s.snap.Store(next)
}

// markMade marks the memory in which V8 generates code. V8 reserves it as a whole and makes parts
// of it non-executable while it writes to them, so a single read of the maps is not conclusive.
// markMade marks all adjacent anonymous memory if any part of it is executable, or was before.
func (s *snapshot) markMade(old *snapshot) {
	made := func(r *region) bool { return r.mod == nil && !r.main && (r.exec || r.made) }
	for i := 0; i < len(s.regions); {
		j, any := i, false
		for ; j < len(s.regions) && s.regions[j].mod == nil && !s.regions[j].main && (j == i || s.regions[j-1].end == s.regions[j].start); j++ {
			r := &s.regions[j]
			any = any || made(r)
			for k := old.after(r.start); !any && k < len(old.regions) && old.regions[k].start < r.end; k++ {
				any = made(&old.regions[k])
			}
		}
		for k := i; k < j; k++ {
			s.regions[k].made = any
		}
		i = max(j, i+1)
	}
}

// mayBeMade reports whether ra may be in V8 code whose mapping is not known yet. Each thread with
// its own isolate has its own code memory. next is the frame pointer saved at fp.
func (w *Walker) mayBeMade(ra, next, fp uint64) bool {
	return w.with.v8 != nil && next > fp && next-fp <= maxFrame && ra>>47 == 0 && ra > smallPage && w.isNew(ra)
}

// isNew reports whether an address is outside of all known mappings, or in one that did not hold
// code.
func (w *Walker) isNew(addr uint64) bool {
	r := w.snap.find(addr - 1)
	return r == nil || r.mod == nil && !r.main && !r.exec && !r.made
}

// mayBeV8 reports whether a file is worth searching. region is its first.
func mayBeV8(m *module, region int) bool {
	name := m.mapping.Path[strings.LastIndexByte(m.mapping.Path, '/')+1:]
	return region < firstFile || strings.Contains(name, "node") || strings.Contains(name, "v8")
}

// v8Image searches a file for V8, once.
func (m *module) v8Image() (*v8.Image, error) {
	m.v8.once.Do(func() { m.v8.img, m.v8.err = v8.Load(m.file) })
	return m.v8.img, m.v8.err
}

// V8 returns the engine whose functions walks show, or nil.
func (s *Space) V8() *v8.Runtime {
	if e := s.runtimes.Load().v8; e != nil {
		return e.rt
	}
	return nil
}

// ForgetV8 undoes FollowV8, for a process that has become another program.
func (s *Space) ForgetV8() { s.setRuntimes(func(r *runtimes) { r.v8 = nil }) }

// place assigns a function its place in the table.
func (e *engine) place(f *v8.Function) any {
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

// merge replaces the machine code that runs JavaScript by the JavaScript functions.
func (e *engine) merge(w *Walker, th *Thread, frames []stack.Frame) []stack.Frame {
	th.lostJS = false
	j := &w.v8
	if j.of != e {
		j.of, j.walk = e, e.rt.Walker()
	}
	begun := false
	j.out = j.out[:0]
	for i := range frames {
		f := &frames[i]
		p, ok := w.v8Place(i, f)
		if ok && i > v8.MaxFrames {
			if n := len(j.out); j.out[n-1].Kind != stack.KindError {
				th.lostJS = true
				j.out = append(j.out, stack.Frame{PC: uint64(stack.ReasonBound), Kind: stack.KindError})
			}
			continue
		}
		if !ok {
			j.out = append(j.out, *f)
			continue
		}
		if !begun {
			begun = true
			j.walk.Begin(&w.meter, &th.v8)
		}
		js, lost := j.walk.Frames(&p, (*frozenStack)(w))
		if lost {
			th.lostJS = true
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
	if begun {
		j.walk.End()
		w.frames, j.out = j.out, frames
	}
	return w.frames
}

func (e *engine) gap(th *Thread) bool { return th.lostJS }

// v8Place returns the frame in the form that V8's walker takes: code without tables.
func (w *Walker) v8Place(i int, f *stack.Frame) (p v8.Place, ok bool) {
	if f.Func != 0 || f.Kind != stack.KindNative || f.PC == 0 {
		return p, false
	}
	p = v8.Place{PC: f.PC, Exact: f.Exact}
	at := f.PC
	if !f.Exact {
		at--
	}
	r := w.snap.find(at)
	if r == nil || !r.exec && !r.made {
		return p, false
	}
	p.Made = r.mod == nil
	if f.CFA > 16 {
		p.FP = f.CFA - 16
	}
	if i == 0 {
		const r9, r12 = 9, 12
		if fp := w.leaf.R[w.fp&31]; !w.leaf.Has(w.fp) || fp != p.FP || fp < w.first+16 {
			p.FP = 0
		}
		if w.leaf.Has(r9) && w.leaf.Has(r12) {
			p.Array, p.Offset = w.leaf.R[r12], w.leaf.R[r9]
		}
	}
	return p, p.Made || p.FP != 0
}

// frozenStack is a Walker's memory restricted to the copy.
type frozenStack Walker

// Word implements v8.Words.
func (f *frozenStack) Word(addr uint64) (uint64, bool) { return (*Walker)(f).word(addr) }
