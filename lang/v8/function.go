package v8

import (
	"bytes"
	"encoding/binary"
	"path"
	"strings"
)

// Function is a function of JavaScript at its position in a script.
type Function struct {
	Name, File string
	Start, End int // range of its text, in characters of the script
	First      int // first line
	script     *script

	words    [4]uint64 // of its SharedFunctionInfo: map, data, name, script
	spanAt   uint64    // offset of span in its ScopeInfo
	span     [2]uint64 // start and end of its text
	bytecode uint64    // address of its bytecode object; 0: none
	places   []place   // places of the bytecode
	code     []byte    // the bytecode; nil: not read
	table    []byte    // encoded form of places
	handle   any
}

// Handle returns the value that New's make returned for the function.
func (f *Function) Handle() any { return f.handle }

// Each calls yield with the lines of the function's text in order, each up to end, in characters
// from its beginning. The last range has no line: see Frame.
func (f *Function) Each(yield func(end uint64, line int) bool) {
	s := f.script
	line := s.line(f.Start)
	for i := line - s.first - 1; i < len(s.ends) && int(s.ends[i]) < f.End; i++ {
		if !yield(uint64(int(s.ends[i])+1-f.Start), line) {
			return
		}
		line++
	}
	if n := uint64(f.Size()); n == 1 || yield(n-1, line) {
		yield(n, 0)
	}
}

// Size is the number of characters of the function, plus one for an unknown place.
func (f *Function) Size() int { return max(f.End-f.Start, 0) + 1 }

func (h *heap) sfiWords(obj uint64) (w [4]uint64, err error) {
	l := h.l
	b := h.buf[:48]
	if !isObject(obj) {
		return w, errHeap
	}
	if err := h.read(b, obj-tag); err != nil {
		return w, err
	}
	return [4]uint64{le(b, 0), le(b, l.sfiData), le(b, l.sfiName), le(b, l.sfiScript)}, nil
}

// function reads the function with the SharedFunctionInfo obj.
func (r *Runtime) function(h *heap, obj uint64) (*Function, error) {
	w, err := h.sfiWords(obj)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	f := r.functions[obj]
	r.mu.Unlock()
	if f != nil && f.words == w && h.still(f) {
		return f, nil
	}
	defer h.mem.FirstLook()()
	l := h.l
	if t, err := h.typeOf(w[0]); err != nil || t != l.types.shared {
		return nil, errHeap
	}
	f = &Function{words: w}
	if f.bytecode, err = h.bytecodeOf(w[1]); err != nil {
		return nil, err
	}
	if err := h.is(w[3], l.types.script); err != nil {
		return nil, err // DebugInfo, or undefined: a builtin
	}
	if f.script, err = r.script(h, w[3]); err != nil {
		return nil, err
	}
	f.File = f.script.file
	if err := h.scope(w[2], f); err != nil {
		return nil, err
	}
	last := int32(0)
	if n := len(f.script.ends); n > 0 {
		last = f.script.ends[n-1]
	}
	if f.Start < 0 || f.End < f.Start || f.Start > int(last) || f.End > int(last) {
		return nil, errHeap
	}
	f.First = f.script.line(f.Start)
	if f.bytecode != 0 {
		if err := h.bytecodes(f); err != nil {
			return nil, err
		}
	}
	if again, err := h.fresh(obj); err != nil || again != w || !h.still(f) {
		return nil, errHeap // the object moved during the read
	}
	f.handle = r.make(f)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.functions) >= maxKnown {
		clear(r.functions)
		clear(r.runs)
	}
	r.functions[obj] = f
	if f.bytecode != 0 && len(r.runs) < maxKnown {
		r.runs[f.bytecode] = obj
	}
	return f, nil
}

// still reports whether the objects that f's words lead to are unchanged. Their memory may be
// reused for another function, but no other script has the same number, and no other function the
// same range.
func (h *heap) still(f *Function) bool {
	id, err := h.field(f.words[3], h.l.id)
	if err != nil || id != f.script.words[5] {
		return false
	}
	b := h.buf[:16]
	if !isObject(f.words[2]) || h.read(b, f.words[2]-tag+f.spanAt) != nil {
		return false
	}
	return [2]uint64{le(b, 0), le(b, 8)} == f.span
}

// fresh reads the sfiWords from current memory.
func (h *heap) fresh(obj uint64) ([4]uint64, error) {
	was := h.ahead
	h.ahead = nil
	defer func() { h.ahead = was }()
	return h.sfiWords(obj)
}

// bytecodeOf follows the data of a SharedFunctionInfo or of baseline code to the bytecode.
func (h *heap) bytecodeOf(data uint64) (uint64, error) {
	t := &h.l.types
	for range 3 {
		typ, err := h.typ(data)
		if err != nil {
			return 0, err
		}
		switch typ {
		case t.bytecode:
			return data, nil
		case t.interpreterData:
			data, err = h.field(data, interpreted)
		case t.code:
			data, err = h.field(data, h.l.deopt)
		default:
			return 0, nil // not compiled, or compiled by asm.js
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, errHeap
}

const (
	maxBytecode = 1 << 20
	maxTableLen = 1 << 20
)

// bytecodes reads the bytecode of f and its table of positions.
func (h *heap) bytecodes(f *Function) error {
	v, err := h.field(f.bytecode, arrayLength)
	n, ok := smi(v)
	if err != nil || !ok || n < 0 || n > maxBytecode {
		return errHeap
	}
	f.code = make([]byte, n)
	if err := h.raw(f.code, f.bytecode-tag+h.l.bytecodeData); err != nil {
		return err
	}
	p, err := h.field(f.bytecode, h.l.bytecodePositions)
	if err != nil {
		return err
	}
	if table, err := h.table(p); err == nil { // it may not exist yet
		f.table, f.places = table, places(table)
	}
	return nil
}

// runs reports whether the bytecode of f is still in place. Discarded memory is unchanged until it
// is reused. Then it may hold another function's bytecode, while everything that leads there from f
// is unchanged.
func (h *heap) runs(f *Function) bool {
	now := Function{bytecode: f.bytecode}
	return h.is(f.bytecode, h.l.types.bytecode) == nil && h.bytecodes(&now) == nil &&
		bytes.Equal(now.code, f.code) && bytes.Equal(now.table, f.table)
}

// table reads an array of bytes.
func (h *heap) table(obj uint64) ([]byte, error) {
	if err := h.is(obj, h.l.types.bytes...); err != nil {
		return nil, err
	}
	v, err := h.field(obj, arrayLength)
	n, ok := smi(v)
	if err != nil || !ok || n < 0 || n > maxTableLen {
		return nil, errHeap
	}
	b := make([]byte, n)
	return b, h.raw(b, obj-tag+arrayData)
}

// Bits of a ScopeInfo's flags (V8 src/objects/scope-info.tq).
const (
	scopeType       = 0xf
	flagSavedClass  = 1 << 10
	shiftVariable   = 12 // of the function variable: two bits
	flagInferred    = 1 << 14
	maxLocals       = 1 << 16
	maxScopeVarying = 8 // words to read after the locals
)

// scope reads a function's name and position from its ScopeInfo.
func (h *heap) scope(obj uint64, f *Function) error {
	l := h.l
	if err := h.is(obj, l.types.scope); err != nil {
		return err // only a name: not compiled
	}
	var head [scopeNames]byte
	if err := h.read(head[:], obj-tag); err != nil {
		return err
	}
	flags := uint64(binary.LittleEndian.Uint32(head[scopeFlags:]))
	at := uint64(scopeRest)
	if l.scopeFixed {
		at = scopeNames
	} else {
		n, ok := smi(le(head[:], scopeFlags))
		if !ok {
			return errHeap
		}
		flags = uint64(n)
	}
	locals, ok := smi(le(head[:], scopeLocals))
	if !ok || locals < 0 || locals > maxLocals {
		return errHeap
	}
	if flags&scopeType == l.moduleType {
		at += 8
	}
	if locals < maxInlined {
		at += 16 * uint64(locals)
	} else {
		at += 8 + 8*uint64(locals)
	}
	if flags&flagSavedClass != 0 {
		at += 8
	}
	var buf [8 * maxScopeVarying]byte
	rest, err := h.some(buf[:], obj-tag+at, 8)
	if err != nil {
		return err
	}
	i := uint64(0)
	has := func(n uint64) bool { return i+n <= uint64(len(rest)) }
	if flags>>shiftVariable&3 != 0 {
		if !has(16) {
			return errHeap
		}
		if f.Name, err = h.nameAt(le(rest, i)); err != nil {
			return err
		}
		i += 16
	}
	if flags&flagInferred != 0 {
		if !has(8) {
			return errHeap
		}
		if f.Name == "" {
			if f.Name, err = h.nameAt(le(rest, i)); err != nil {
				return err
			}
		}
		i += 8
	}
	var pos []byte
	switch f.spanAt = at + i; {
	case l.scopeFixed:
		pos, f.spanAt = head[scopeStart:], scopeStart
	case has(16):
		pos = rest[i:]
	default:
		return errHeap
	}
	f.span = [2]uint64{le(pos, 0), le(pos, 8)}
	var ok2 bool
	f.Start, ok = smi(le(pos, 0))
	f.End, ok2 = smi(le(pos, 8))
	if !ok || !ok2 {
		return errHeap
	}
	if f.Name == "" {
		f.Name = anonymous(flags&scopeType, l, f)
	}
	return nil
}

// nameAt returns a name, or "" if there is none.
func (h *heap) nameAt(v uint64) (string, error) {
	if _, none := smi(v); none {
		return "", nil
	}
	t, err := h.typ(v)
	if err != nil || t >= notString {
		return "", err
	}
	return h.string(v)
}

// anonymous returns the display name of a function without a name.
func anonymous(kind uint64, l *layout, f *Function) string {
	if strings.HasPrefix(f.File, evalAt) && f.Start == 0 {
		return "(eval)"
	}
	if kind == l.moduleType || f.Start == 0 {
		if base := path.Base(strings.TrimPrefix(f.File, "file://")); base != "." && base != "/" {
			return "(" + base + ")"
		}
	}
	return "(anonymous)"
}

// script returns a script, from the cache or read now.
func (r *Runtime) script(h *heap, obj uint64) (*script, error) {
	w, err := h.scriptWords(obj)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	s := r.scripts[obj]
	r.mu.Unlock()
	// Line ends are computed on demand.
	if s != nil && s.words[0] == w[0] && s.words[1] == w[1] && s.words[2] == w[2] && s.words[5] == w[5] && s.words[8] == w[8] {
		return s, nil
	}
	if s, err = h.script(obj); err != nil {
		return nil, err
	}
	if s.file == "" {
		s.file = r.evaluated(h, &w)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.scripts) >= maxScripts {
		clear(r.scripts)
	}
	r.scripts[obj] = s
	return s, nil
}
