package v8

import (
	"encoding/binary"
	"sort"
)

// code is machine code that V8 made of one function, or for itself.
type code struct {
	start, end uint64 // of the instructions
	obj        uint64 // Code object
	stream     uint64 // object that the instructions are in
	words      [6]uint64
	kind       uint32
	loaded     bool // what follows is read

	bytecode uint64 // that baseline code is of
	table    []byte // bytecodes of its places

	shared   uint64 // SharedFunctionInfo of the function that was optimized
	places   []place
	inlined  []inlined
	literals []uint64 // SharedFunctionInfos of the functions that were compiled in
}

// inlined is a call that was compiled in.
type inlined struct {
	pos int64 // where the call stands
	fn  int   // of literals; negative: the function itself
}

const (
	// V8 aligns instructions to 32 or 64 bytes (kCodeAlignment in
	// src/common/globals.h).
	codeAlign = 32
	// maxCodeBytes bounds how far in front of a place the beginning of its code is
	// looked for.
	maxCodeBytes = 1 << 20
	maxLiterals  = 1 << 16
)

// codeAt is the code that pc lies in, nil where there is none.
func (r *Runtime) codeAt(h *heap, pc uint64) *code {
	r.mu.Lock()
	i := sort.Search(len(r.codes), func(i int) bool { return r.codes[i].start > pc }) - 1
	var c *code
	if i >= 0 && pc < r.codes[i].end {
		c = r.codes[i]
	}
	r.mu.Unlock()
	if c != nil {
		if again := h.codeObject(c.stream); again != nil && again.words == c.words && again.start == c.start {
			return c
		}
		r.dropCode(c)
	}
	if c = h.findCode(pc); c != nil {
		r.addCode(c)
	}
	return c
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

// findCode looks for the object in front of pc whose instructions it is part of, a
// page at a time.
func (h *heap) findCode(pc uint64) *code {
	const page = 4096
	var buf [page]byte
	s := pc &^ (codeAlign - 1) // where instructions may begin
	for last := s - min(s, maxCodeBytes); s > last && s > h.l.header; {
		from := (s - h.l.header) &^ (page - 1)
		if h.raw(buf[:], from) != nil {
			return nil
		}
		for ; s > h.l.header && s-h.l.header >= from; s -= codeAlign {
			if w := le(buf[:], s-h.l.header-from); !isObject(w) || !h.isStream(w) {
				continue
			}
			if c := h.codeObject(s - h.l.header + tag); c != nil && pc >= c.start && pc < c.end {
				return c
			}
			if h.budget < 0 {
				return nil
			}
		}
	}
	return nil
}

// isStream reports whether objects whose map is m hold instructions.
func (h *heap) isStream(m uint64) bool {
	want := h.l.types.stream
	if h.l.inCode {
		want = h.l.types.code
	}
	t, err := h.typeOf(m)
	return err == nil && t == want
}

// codeObject reads the head of the code whose instructions the object holds; nil:
// it is none.
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
	return c
}

// load reads what tells the places of c.
func (h *heap) load(c *code) error {
	if c.loaded {
		return nil
	}
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
	most := int(max(l.deoptCount, l.deoptLiterals, l.deoptShared, l.deoptInlining)) + 1
	b, err := h.array(deopt, 8, most, l.types.fixed)
	if err != nil {
		return err
	}
	if len(b) < 8*most {
		return errHeap
	}
	c.shared = le(b, 8*l.deoptShared)
	if l.wrapped {
		if err := h.is(c.shared, l.types.wrapper); err != nil {
			return err
		}
		if c.shared, err = h.field(c.shared, wrappedSFI); err != nil {
			return err
		}
	}
	n, ok := smi(le(b, 8*l.deoptCount))
	if !ok || n < 0 || n > maxLiterals {
		return errHeap
	}
	if n > 0 {
		lit, err := h.array(le(b, 8*l.deoptLiterals), 8, n, l.types.fixed)
		if err != nil {
			return err
		}
		for ; len(lit) >= 8; lit = lit[8:] {
			c.literals = append(c.literals, le(lit, 0)&^2) // strong or weak
		}
		pos, err := h.table(le(b, 8*l.deoptInlining))
		if err != nil {
			return err
		}
		for ; len(pos) >= 16; pos = pos[16:] {
			c.inlined = append(c.inlined, inlined{int64(le(pos, 0)), int(int32(le(pos, 8)))})
		}
	}
	c.places, c.loaded = places(table), true
	return nil
}
