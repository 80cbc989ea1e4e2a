package v8

import (
	"fmt"
	"sort"
)

// script is a source text with functions.
type script struct {
	words scriptWords
	file  string  // that it is from, or where it was evaluated
	first int     // number of lines before the text
	ends  []int32 // of lines, in characters
}

const (
	maxLines   = 1 << 22
	scriptHead = 120 // bytes to read of a Script
)

// scriptWords are words of a Script object: its map, source, name, preceding lines, line ends, number,
// the function that evaluated it and its place there, and the name in a comment.
type scriptWords [9]uint64

func (h *heap) scriptWords(obj uint64) (w scriptWords, err error) {
	b, err := h.object(obj, scriptHead)
	if err != nil {
		return w, err
	}
	l := h.l
	// The name in a comment follows the flags, a number. Some versions have another field before these
	// (compiled_lazy_function_positions, src/objects/script.tq of 11.3).
	url := le(b, l.scriptFlags+8)
	if _, ok := smi(le(b, l.scriptFlags)); !ok {
		url = le(b, l.scriptFlags+16)
	}
	return scriptWords{le(b, 0), le(b, l.source), le(b, l.name), le(b, l.lineOffset), le(b, l.lineEnds), le(b, l.id),
		le(b, l.evalFrom), le(b, l.evalPosition), url}, nil
}

// script reads a Script.
func (h *heap) script(obj uint64) (*script, error) {
	w, err := h.scriptWords(obj)
	if err != nil {
		return nil, err
	}
	if t, err := h.typeOf(w[0]); err != nil || t != h.l.types.script {
		return nil, errHeap
	}
	s := &script{words: w}
	s.first, _ = smi(w[3])
	// The comment //# sourceURL=NAME takes precedence, as in V8's own stack traces. webpack writes it.
	if s.file, err = h.nameAt(w[8]); err != nil {
		return nil, err
	}
	if s.file == "" {
		if s.file, err = h.nameAt(w[2]); err != nil {
			return nil, err
		}
	}
	if s.ends, err = h.ends(w[4]); err != nil || len(s.ends) == 0 {
		if s.ends, err = h.countLines(w[1]); err != nil {
			return nil, err
		}
	}
	was := h.ahead
	h.ahead = nil
	now, err := h.scriptWords(obj)
	if h.ahead = was; err != nil || now != w {
		return nil, errHeap // the object moved during the read
	}
	return s, nil
}

const evalAt = "eval at "

// maxNested bounds how deeply evaluated code that evaluates code is described.
const maxNested = 4

// evaluated describes where the text of a script without a name was evaluated, by eval or new Function:
// "eval at compile (/srv/app.js:7)". It returns "" if that is unknown.
func (r *Runtime) evaluated(h *heap, w *scriptWords) string {
	if h.nested >= maxNested {
		return "eval"
	}
	if t, err := h.typ(w[6]); err != nil || t != h.l.types.shared {
		return "" // not evaluated, or wrapped in a function by its loader
	}
	h.nested++
	f, err := r.function(h, w[6])
	if h.nested--; err != nil {
		return "eval"
	}
	line := f.First
	if n, ok := smi(w[7]); ok {
		if n < 0 { // not yet converted from an offset in the bytecode
			n, _ = text(at(f.places, -n))
		}
		if n >= 0 {
			line = f.script.line(n)
		}
	}
	return fmt.Sprintf(evalAt+"%s (%s:%d)", f.Name, f.File, line)
}

// ends reads a script's array of line ends. V8 creates it on demand.
func (h *heap) ends(obj uint64) ([]int32, error) {
	t := h.l.types.fixed
	if len(t) == 0 || !isObject(obj) {
		return nil, errHeap
	}
	if err := h.is(obj, t...); err != nil {
		return nil, err
	}
	v, err := h.field(obj, arrayLength)
	n, ok := smi(v)
	if err != nil || !ok || n < 0 || n > maxLines {
		return nil, errHeap
	}
	out := make([]int32, 0, n)
	last := -1
	err = h.pieces(obj-tag+arrayData, 8*n, func(b []byte) {
		for ; len(b) >= 8; b = b[8:] {
			e, ok := smi(le(b, 0))
			if !ok || e < last {
				e = last
			}
			out = append(out, int32(e))
			last = e
		}
	})
	return out, err
}

// countLines finds the line ends of a text.
func (h *heap) countLines(source uint64) (ends []int32, err error) {
	n, cr := int32(0), false
	end := func(c uint16) {
		// A line ends with \n, \r, \r\n, or one of Unicode's two separators.
		switch {
		case cr && c != '\n':
			ends = append(ends, n-1)
		}
		if cr = c == '\r'; c == '\n' || c == 0x2028 || c == 0x2029 {
			ends = append(ends, n)
		}
		n++
	}
	err = h.text(source, maxSource, func(b []byte, wide bool) {
		if len(ends) > maxLines {
			return
		}
		if !wide {
			for _, c := range b {
				end(uint16(c))
			}
			return
		}
		for ; len(b) >= 2; b = b[2:] {
			end(uint16(b[0]) | uint16(b[1])<<8)
		}
	})
	if cr {
		ends = append(ends, n-1)
	}
	return append(ends, n), err
}

// line returns the line of the character at off, counted from 1.
func (s *script) line(off int) int {
	return s.first + 1 + sort.Search(len(s.ends), func(i int) bool { return int(s.ends[i]) >= off })
}
