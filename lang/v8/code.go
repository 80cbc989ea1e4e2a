package v8

import (
	"encoding/binary"
	"sort"
)

// code is machine code of one function, or of V8 itself.
type code struct {
	start, end uint64 // of the instructions
	obj        uint64 // address of the Code object
	stream     uint64 // address of the object with the instructions
	words      [6]uint64
	kind       uint32
	loaded     bool // the fields below are read

	bytecode uint64 // bytecode of baseline code
	table    []byte // bytecode offsets of its places

	// Of optimized code:
	head    [16]uint64 // deoptimization data: map, length, and the fields before the places
	shared  uint64     // SharedFunctionInfo of the function
	places  []place
	inlined []inlined
	points  []point // by off
	trans   []byte  // translations of the points
}

// same reports whether two reads found the same code: each compilation has a number in its
// deoptimization data.
func (c *code) same(o *code) bool {
	return c.words == o.words && c.start == o.start && c.head == o.head && c.shared == o.shared
}

// inlined is an inlined call.
type inlined struct {
	pos int64 // position of the call
	fn  int   // literal of the function; negative: the optimized function
}

const (
	// V8 aligns instructions to 32 or 64 bytes (kCodeAlignment in
	// src/common/globals.h).
	codeAlign = 32
	// maxCodeBytes bounds the search backward from a place for the beginning of its code.
	maxCodeBytes = 1 << 20
	maxLiterals  = 1 << 16
)

// codeAt returns the code that contains pc, or nil.
func (r *Runtime) codeAt(h *heap, pc uint64) *code {
	c := r.codeOf(pc)
	if c != nil {
		if again := h.codeObject(c.stream); again != nil && again.same(c) {
			return c
		}
		r.dropCode(c)
	}
	if !r.mayFind(pc) {
		return nil
	}
	c = h.findCode(pc)
	r.found(pc, c != nil || h.mem.Spent())
	if c != nil {
		r.addCode(c)
	}
	return c
}

// codeOf returns the known code that contained pc when it was read, or nil.
func (r *Runtime) codeOf(pc uint64) *code {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := sort.Search(len(r.codes), func(i int) bool { return r.codes[i].start > pc }) - 1
	if i < 0 || pc >= r.codes[i].end {
		return nil
	}
	return r.codes[i]
}

func (r *Runtime) dropCode(c *code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.codes {
		if r.codes[i] == c {
			r.codes = append(r.codes[:i:i], r.codes[i+1:]...)
			return
		}
	}
}

func (r *Runtime) addCode(c *code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.codes) >= maxKnown {
		r.codes = nil
	}
	keep := make([]*code, 0, len(r.codes)+1)
	for _, o := range r.codes {
		if o.end <= c.start || o.start >= c.end {
			keep = append(keep, o)
		}
	}
	i := sort.Search(len(keep), func(i int) bool { return keep[i].start > c.start })
	keep = append(keep, nil)
	copy(keep[i+1:], keep[i:])
	keep[i] = c
	r.codes = keep
}

// findCode searches backward from pc, a page at a time, for the object whose instructions contain
// it.
func (h *heap) findCode(pc uint64) *code {
	defer h.mem.FirstLook()()
	const page = 4096
	var buf [page]byte
	least := h.mem.Left() / 4  // reserve: the rest is for the functions of the frames below
	s := pc &^ (codeAlign - 1) // possible start of instructions
	for last := s - min(s, maxCodeBytes); s > last && s > h.l.header; {
		from := (s - h.l.header) &^ (page - 1)
		if h.mem.Left() < least || h.raw(buf[:], from) != nil {
			return nil
		}
		for ; s > h.l.header && s-h.l.header >= from; s -= codeAlign {
			if w := le(buf[:], s-h.l.header-from); !isObject(w) || !h.isStream(w) {
				continue
			}
			if c := h.codeObject(s - h.l.header + tag); c != nil && pc >= c.start && pc < c.end {
				return c
			}
			if h.mem.Spent() {
				return nil
			}
		}
	}
	return nil
}

// isStream reports whether objects with the map m hold instructions.
func (h *heap) isStream(m uint64) bool {
	want := h.l.types.stream
	if h.l.inCode {
		want = h.l.types.code
	}
	t, err := h.typeOf(m)
	return err == nil && t == want
}

// codeObject reads the head of the code whose instructions the object holds. It returns nil if the
// object does not hold instructions.
func (h *heap) codeObject(stream uint64) *code {
	l := h.l
	c := &code{stream: stream, obj: stream}
	m, err := h.field(stream, 0)
	if err != nil || !h.isStream(m) {
		return nil
	}
	if !l.inCode {
		if c.obj, err = h.field(stream, streamCode); err != nil || h.is(c.obj, l.types.code) != nil {
			return nil
		}
	}
	b := h.buf[:72]
	if !isObject(c.obj) || h.read(b, c.obj-tag) != nil {
		return nil
	}
	c.start = stream - tag + l.header
	if !l.inCode && le(b, l.start) != c.start {
		return nil
	}
	u32 := binary.LittleEndian.Uint32
	size := u32(b[min(l.size, 68):])
	if size == 0 || size > maxCodeBytes {
		return nil
	}
	c.end = c.start + uint64(size)
	flags := u32(b[min(l.flags, 68):])
	c.kind = flags & l.kindMask
	c.words = [6]uint64{m, c.obj, le(b, l.deopt), le(b, l.positions), uint64(size), uint64(c.kind)}
	if c.kind > l.baseline && h.deopt(c) != nil {
		return nil
	}
	return c
}

// deopt reads the head of the deoptimization data of optimized code.
func (h *heap) deopt(c *code) error {
	l := h.l
	if !isObject(c.words[2]) {
		return errHeap
	}
	b := h.buf[:8*(2+l.deoptHead)]
	if err := h.read(b, c.words[2]-tag); err != nil {
		return err
	}
	for i := range 2 + l.deoptHead {
		c.head[i] = le(b, 8*uint64(i))
	}
	if c.shared = c.at(l.deoptShared); !l.wrapped {
		return nil
	}
	if err := h.is(c.shared, l.types.wrapper); err != nil {
		return err
	}
	var err error
	c.shared, err = h.field(c.shared, wrappedSFI)
	return err
}

// at returns a word of the deoptimization data of optimized code.
func (c *code) at(i uint64) uint64 { return c.head[2+i] }

// literal returns an object that optimized code refers to. The collector may move it, so it is read
// each time.
func (h *heap) literal(c *code, i int) (uint64, error) {
	if i < 0 || i >= maxLiterals {
		return 0, errHeap
	}
	v, err := h.field(c.at(h.l.deoptLiterals), arrayData+8*uint64(i))
	return v &^ 2, err // strong or weak reference
}

// load reads the tables of c's places.
func (h *heap) load(c *code) error {
	if c.loaded {
		return nil
	}
	defer h.mem.FirstLook()()
	l := h.l
	deopt, positions := c.words[2], c.words[3]
	table, err := h.table(positions)
	if err != nil {
		return err
	}
	if c.kind == l.baseline {
		if c.bytecode, err = h.bytecodeOf(deopt); err != nil {
			return err
		}
		c.table, c.loaded = table, true
		return nil
	}
	if c.kind < l.baseline {
		return errHeap
	}
	if err := h.is(c.words[2], l.types.fixed...); err != nil {
		return err
	}
	if n, ok := smi(c.head[1]); !ok || n < l.deoptHead {
		return errHeap
	}
	n, ok := smi(c.at(l.deoptCount))
	if !ok || n < 0 || n > maxLiterals {
		return errHeap
	}
	if n > 0 {
		if err := h.is(c.at(l.deoptLiterals), l.types.fixed...); err != nil {
			return err
		}
		pos, err := h.table(c.at(l.deoptInlining))
		if err != nil {
			return err
		}
		for ; len(pos) >= 16; pos = pos[16:] {
			c.inlined = append(c.inlined, inlined{int64(le(pos, 0)), int(int32(le(pos, 8)))})
		}
	}
	if l.trans != nil {
		if err := h.points(c); err != nil {
			return err
		}
	}
	c.places, c.loaded = places(table), true
	return nil
}
