package v8

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
)

// Words reads 8 bytes of the copied stack.
type Words interface {
	Word(addr uint64) (uint64, bool)
}

// Place is a frame of machine code without unwind tables: V8's own, or that of an assembly library.
type Place struct {
	PC    uint64
	FP    uint64 // of its frame; 0: not created yet, or already removed
	Exact bool   // PC is the next instruction, not a return address
	Made  bool   // generated code: not in a file
	// Array and Offset are the registers of the interpreter's bytecode position (r12, r9), at the
	// leaf; 0: unknown.
	Array, Offset uint64
}

// Frame is a function of JavaScript with a position in its text.
type Frame struct {
	Fn  *Function
	Off int // characters from its beginning; the last one of its Size: unknown
}

// Walker finds the functions of frames. It reuses its memory for the next stack.
type Walker struct {
	r   *Runtime
	h   heap
	out []Frame
	k   *Known
	// plan is the batch of readAhead, and at its indexes by address.
	plan []stack.Span
	at   map[uint64]int
}

// Walker returns a new Walker.
func (r *Runtime) Walker() *Walker {
	return &Walker{r: r, h: heap{l: r.l, maps: map[uint64]uint16{}, ahead: map[uint64]int{}}, at: map[uint64]int{}}
}

// Begin sets mem as the memory for a stack of the thread with known. places are the frames for which Frames
// will be called, and words is the stack.
func (w *Walker) Begin(mem *meter.Meter, known *Known, places []Place, words Words) {
	w.r.begin()
	w.h.mem, w.h.frame = mem, 0
	clear(w.h.maps)
	w.k = known
	w.readAhead(places, words)
}

// End ends the stack.
func (w *Walker) End() { w.h.mem = nil }

// Offsets of a frame's slots below its frame pointer (V8 src/execution/frame-constants.h, x64).
const (
	slotContext  = 8 // context, or the frame's type
	slotFunction = 16
	slotBytecode = 32
	slotOffset   = 40
)

// Frames returns the functions that p runs, innermost first. It returns none if p is not JavaScript
// or cannot be identified. lost says that p may be JavaScript, but reading its data would exceed
// the limit of one walk. The frames are valid until the next call.
func (w *Walker) Frames(p *Place, mem Words) (frames []Frame, lost bool) {
	w.h.frame++
	w.h.spans = w.h.spans[:0]
	frames = w.frames(p, mem)
	w.learn(p, mem)
	return frames, len(frames) == 0 && w.h.mem.Spent() && (p.Made || hasFunction(p, mem))
}

// hasFunction reports whether the words of p may be those of a function's frame.
func hasFunction(p *Place, mem Words) bool {
	if p.FP == 0 {
		return false
	}
	for _, slot := range [...]uint64{slotContext, slotFunction, slotBytecode} {
		if v, ok := mem.Word(p.FP - slot); !ok || !isObject(v) {
			return false
		}
	}
	return true
}

func (w *Walker) frames(p *Place, mem Words) []Frame {
	w.out = w.out[:0]
	h, l := &w.h, w.r.l
	var c *code
	if p.Made {
		if c = w.r.codeAt(h, p.PC-behind(p)); c != nil && c.kind > l.baseline {
			w.optimized(p, c, mem)
			return w.shown(true)
		}
		if c != nil && c.kind == l.regexp {
			w.add(w.r.regexp, 0)
			return w.shown(true)
		}
	}
	if c != nil && c.kind == l.baseline && p.Exact {
		if done := w.building(p, c); done {
			return w.shown(true)
		}
	}
	if p.FP == 0 {
		return nil
	}
	context, ok1 := mem.Word(p.FP - slotContext)
	fn, ok2 := mem.Word(p.FP - slotFunction)
	array, ok3 := mem.Word(p.FP - slotBytecode)
	if !ok1 || !ok2 || !ok3 || !isObject(context) || !isObject(fn) || !isObject(array) {
		return nil
	}
	if h.is(array, l.types.bytecode) != nil {
		return nil // a builtin's frame
	}
	f := w.closure(fn)
	if f == nil || f.bytecode != array {
		// The closure may have moved since the stop.
		if f = w.owner(array); f == nil {
			return w.shown(false)
		}
	}
	off, known := 0, true
	switch {
	case c != nil && c.kind == l.baseline:
		if h.load(c) != nil || c.bytecode != array {
			return w.shown(false)
		}
		at := int(p.PC - c.start)
		if p.Exact {
			at++
		}
		off, known = l.baselineOffset(c.table, f.code, at)
	default:
		v, ok := mem.Word(p.FP - slotOffset)
		n, isSmi := smi(v)
		if !ok || !isSmi {
			return w.shown(false)
		}
		off = n - int(l.bytecodeData) + tag
		if p.Exact && p.Array == array {
			if o := int64(p.Offset) - int64(l.bytecodeData) + tag; o >= 0 && o < int64(len(f.code)) {
				off = int(o)
			}
		}
	}
	w.add(f, f.at(off, known))
	return w.shown(true)
}

// at returns the position in the script's text of the bytecode at off, or -1 if it is unknown.
func (f *Function) at(off int, known bool) int {
	if !known {
		return -1
	}
	pos, _ := text(at(f.places, off))
	return pos
}

// owner returns the function of a bytecode array, if it was seen before and the bytecode is still
// its own. Otherwise it returns nil.
func (w *Walker) owner(array uint64) *Function {
	w.r.mu.Lock()
	shared, ok := w.r.runs[array]
	w.r.mu.Unlock()
	if !ok {
		return nil
	}
	if f, err := w.r.function(&w.h, shared); err == nil && f.bytecode == array && w.h.runs(f) {
		return f
	}
	return nil
}

// building handles baseline code whose frame is not created yet, or already removed. It finds the
// function by its bytecode. done is false if there is a frame, or if no function with that bytecode
// was seen.
func (w *Walker) building(p *Place, c *code) (done bool) {
	if p.FP != 0 || w.h.load(c) != nil {
		return false
	}
	f := w.owner(c.bytecode)
	if f == nil {
		return false
	}
	w.add(f, f.at(w.r.l.baselineOffset(c.table, f.code, int(p.PC-c.start)+1)))
	return true
}

// behind is the number to subtract from a return address to get into its call.
func behind(p *Place) uint64 {
	if p.Exact {
		return 0
	}
	return 1
}

// shown returns the result, if the version has passed validation.
func (w *Walker) shown(ok bool) []Frame {
	w.r.count(ok && len(w.out) > 0)
	if !w.r.proved() {
		return nil
	}
	return w.out
}

// add appends a frame of f at an offset of its script. -1 means that V8 has no position.
func (w *Walker) add(f *Function, pos int) {
	off := f.Size() - 1
	if pos >= f.Start && pos < f.End {
		off = pos - f.Start
	}
	w.out = append(w.out, Frame{f, off})
}

// closure returns the function of a JSFunction.
func (w *Walker) closure(obj uint64) *Function {
	h, l := &w.h, w.r.l
	if t, err := h.typ(obj); err != nil || t < l.types.function || t > l.types.lastFunction {
		return nil
	}
	s, err := h.field(obj, l.shared)
	if err != nil {
		return nil
	}
	f, err := w.r.function(h, s)
	if err != nil {
		return nil
	}
	return f
}

// optimized appends the functions that optimized code runs at p.
func (w *Walker) optimized(p *Place, c *code, mem Words) {
	h := &w.h
	if h.load(c) != nil || !w.optimizedOf(p, c, mem) {
		w.r.dropCode(c)
		return
	}
	ok := false
	// For an inlined call, the position table may give the end of the loop around it. V8's
	// Error().stack resolves a return address to the call itself, as levels does.
	if w.r.l.trans != nil && (len(c.places) == 0 || !p.Exact && c.returnsTo(int(p.PC-c.start))) {
		ok = w.levels(p, c)
	} else {
		ok = w.inlined(p, c)
	}
	if !ok {
		// The code has changed since: a later walk reads it again.
		w.out = w.out[:0]
		w.r.dropCode(c)
	}
}

// optimizedOf reports whether the closure in the frame of optimized code belongs to its function.
// The code may have moved since the stop, and other code may be in its place. Without a frame, or
// without a closure in it, the result is true.
func (w *Walker) optimizedOf(p *Place, c *code, mem Words) bool {
	if p.FP == 0 {
		return true
	}
	h, l := &w.h, w.r.l
	fn, ok := mem.Word(p.FP - slotFunction)
	if !ok || !isObject(fn) {
		return true
	}
	if t, err := h.typ(fn); err != nil || t < l.types.function || t > l.types.lastFunction {
		return true
	}
	s, err := h.field(fn, l.shared)
	return err == nil && s == c.shared
}

// inlined appends the functions by the code's position table.
func (w *Walker) inlined(p *Place, c *code) bool {
	h := &w.h
	pos := at(c.places, w.place(p, c))
	for range maxInline {
		off, id := text(pos)
		shared := c.shared
		last := id == 0 || id > len(c.inlined)
		if !last {
			in := c.inlined[id-1]
			if in.fn >= 0 {
				var err error
				if shared, err = h.literal(c, in.fn); err != nil {
					return false
				}
			}
			if _, outer := text(in.pos); outer >= id {
				return false // each is inside of an earlier one
			}
			pos = in.pos
		}
		f, err := w.r.function(h, shared)
		if err != nil {
			return false
		}
		w.add(f, off)
		if last {
			return true
		}
	}
	return false
}

// levels appends the functions by the code's deoptimization data.
func (w *Walker) levels(p *Place, c *code) bool {
	h := &w.h
	if x := c.point(int(p.PC-c.start), p.Exact); x != nil {
		if list, ok := c.levels(w.r.l.trans, x.index); ok {
			for _, x := range list {
				shared, err := h.literal(c, x.literal)
				if err != nil {
					return false
				}
				f, err := w.r.function(h, shared)
				if err != nil || f.bytecode == 0 || x.bytecode >= len(f.code) {
					return false
				}
				pos, _ := text(at(f.places, max(x.bytecode, 0)))
				w.add(f, pos)
			}
			return true
		}
	}
	f, err := w.r.function(h, c.shared)
	if err != nil {
		return false
	}
	w.add(f, f.Start)
	return true
}
