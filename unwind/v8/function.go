package v8

import (
	"bytes"
	"encoding/binary"
	"path"
	"strings"
)

// Function is a function of JavaScript as it stands in its script.
type Function struct {
	Name, File string
	Start, End int // of its text, in characters of the script
	First      int // line of its beginning
	script     *script

	words    [4]uint64 // of its SharedFunctionInfo: map, data, name, script
	spanAt   uint64    // where its ScopeInfo says span, from its beginning
	span     [2]uint64 // where its text begins and ends
	bytecode uint64    // object that it is interpreted from; 0: none
	places   []place   // of that
	code     []byte    // of that; nil: not read
	table    []byte    // that places are from
	handle   any
}

// Handle is what the caller's New made of the function.
func (f *Function) Handle() any { return f.handle }

// Each gives the lines of the function's text: each up to end, in characters from
// its beginning. The last one is none: see Frame.
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

// Size is how many characters the function has, and one more for an unknown place.
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

// function reads the function whose SharedFunctionInfo is obj.
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
		return nil, errHeap // it moved meanwhile
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

// still reports whether what f's words lead to is what it was: all of them can be used
// again for another function, but no script has the number of another, or two functions
// in one place.
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

// fresh is sfiWords as memory is now.
func (h *heap) fresh(obj uint64) ([4]uint64, error) {
	was := h.ahead
	h.ahead = nil
	defer func() { h.ahead = was }()
	return h.sfiWords(obj)
}

// bytecodeOf follows what a SharedFunctionInfo, or baseline code, has as its data.
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
			return 0, nil // not compiled, or by asm.js
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
	if table, err := h.table(p); err == nil { // it may not be made yet
		f.table, f.places = table, places(table)
	}
	return nil
}

// runs reports whether the bytecode of f is still where it was. What collectors threw
// away looks as before until its memory is used again: bytecode may lie there that is of
// another function, while all that leads there from f is as it was.
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
	shiftVariable   = 12 // of the function: two bits
	flagInferred    = 1 << 14
	maxLocals       = 1 << 16
	maxScopeVarying = 8 // words behind the locals that are read
)

// scope reads a function's name and where it stands from its ScopeInfo.
func (h *heap) scope(obj uint64, f *Function) error {
	l := h.l
	if err := h.is(obj, l.types.scope); err != nil {
		return err // a name alone: it is not compiled
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

// nameAt is a name, "" where there is none.
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

// anonymous is what a function without a name is called.
func anonymous(kind uint64, l *layout, f *Function) string {
	if kind == l.moduleType || f.Start == 0 {
		if base := path.Base(strings.TrimPrefix(f.File, "file://")); base != "." && base != "/" {
			return "(" + base + ")"
		}
	}
	return "(anonymous)"
}

// script is one that is known, or read now.
func (r *Runtime) script(h *heap, obj uint64) (*script, error) {
	w, err := h.scriptWords(obj)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	s := r.scripts[obj]
	r.mu.Unlock()
	// Ends of lines are made when they are needed.
	if s != nil && s.words[0] == w[0] && s.words[1] == w[1] && s.words[2] == w[2] && s.words[5] == w[5] {
		return s, nil
	}
	if s, err = h.script(obj); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.scripts) >= maxScripts {
		clear(r.scripts)
	}
	r.scripts[obj] = s
	return s, nil
}
