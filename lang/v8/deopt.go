package v8

import (
	"encoding/binary"
	"sort"
)

// Optimized code can be left for the interpreter at certain places. For each of them,
// deoptimization data describes the interpreter's frames: the inlined functions, and the bytecode
// that each has reached. V8 itself builds its stack traces from this data. After a call the place
// is the return address. Elsewhere the code checks a condition and jumps to an exit of its own; the
// exits are at the end of the code, and the place is the jump.
//
// From V8 13.6 (src/objects/deoptimization-data.{h,cc},
// src/deoptimizer/frame-translation-builder.cc and translation-opcode.h,
// src/maglev/maglev-code-generator.cc, src/compiler/backend/code-generator.cc).

// point is a place of optimized code with known frames.
type point struct {
	off   int // in code: after the call, or at the jump
	index int // of its translation
	call  bool
}

// level is the interpreter frame of one function.
type level struct {
	literal  int // index of the function among the code's literals
	bytecode int // bytecode offset; -1: at its beginning
}

const (
	// maxPoints bounds the places of one piece of code. exitSize is the size of an exit on amd64, in
	// bytes: call [r13+disp8].
	maxPoints = 1 << 14
	exitSize  = 4
	// maxScanned bounds the code that is searched for jumps, in bytes.
	maxScanned = 128 << 10
	// maxSteps bounds the operations of one translation.
	maxSteps = 1 << 14
	// entryWords is the number of words of one place in the deoptimization data.
	entryWords = 3
)

// translations describes the operations of V8's translations: the number of operands of each
// operation, by number. Numbers below js are frames of JavaScript, those below frames any frames.
// Numbers above all operations mean that many operations of another translation.
type translations struct {
	operands       string
	interpreted    int // below: functions whose bytecode runs
	js             int
	begin          int // first of two operations
	match          int
	frameCount     int // operand of begin: number of frames; the next one: those of JavaScript
	literal, where int // operands of a frame of JavaScript: function, bytecode offset
}

// translations13 describes those of 13.6.
var translations13 = translations{
	operands:    "643321343321003311101111111111111111101111121",
	interpreted: 2, js: 4, begin: 14, match: 44,
	frameCount: 1, where: 0, literal: 1,
}

// walk calls yield with the JavaScript frames of the translation at index of b, outermost first. ok
// is false if the translation is damaged or of an unknown kind.
func (tr *translations) walk(b []byte, index int, yield func(op int, operands [6]int64)) (ok bool) {
	var (
		at    = index
		prev  int // next operation of the referenced translation
		left  int // operations to take from there
		since int // operations since prev was updated
		args  [6]int64
	)
	read := func(from *int, signed bool) (v int64, ok bool) {
		if *from < 0 || *from >= len(b) {
			return 0, false
		}
		u, n := varint(b[*from:])
		if n == 0 {
			return 0, false
		}
		*from += n
		if !signed {
			return int64(u), true
		}
		return int64(u>>1) * (1 - 2*int64(u&1)), true
	}
	skip := func() bool {
		if prev < 0 || prev >= index || int(b[prev]) >= tr.match {
			return false
		}
		n := int(tr.operands[b[prev]] - '0')
		for prev++; n > 0; n-- {
			if _, ok := read(&prev, false); !ok {
				return false
			}
		}
		return true
	}
	want, js, begun := int64(0), int64(0), false
	for range maxSteps {
		from, op := &at, 0
		if left > 0 {
			left--
		}
		switch {
		case left > 0:
			from = &prev
			if prev >= index {
				return false
			}
			op = int(b[prev])
			prev++
		case at < 0 || at >= len(b):
			return false
		default:
			op = int(b[at])
			at++
			if op >= tr.match {
				left = op - len(tr.operands)
				if op == tr.match {
					v, ok := read(&at, false)
					if !ok || v > maxSteps {
						return false
					}
					left = int(v)
				}
				if left <= 0 {
					return false
				}
				for ; since > 0; since-- {
					if !skip() {
						return false
					}
				}
				if prev >= index {
					return false
				}
				op, from = int(b[prev]), &prev
				prev++
			} else {
				since++
			}
		}
		if op >= tr.match {
			return false
		}
		beginning := op == tr.begin || op == tr.begin+1
		if beginning != !begun {
			return false
		}
		n := int(tr.operands[op] - '0')
		for i := range n {
			var ok bool
			if args[i], ok = read(from, !beginning || i > 0); !ok {
				return false
			}
		}
		switch {
		case beginning:
			begun, since = true, 1
			if args[0] > int64(index) {
				return false
			}
			prev = index
			if args[0] > 0 {
				prev = index - int(args[0])
			}
			if want, js = args[tr.frameCount], args[tr.frameCount+1]; want <= 0 || js <= 0 || js > want || js > maxInline {
				return false
			}
		case op < tr.js:
			yield(op, args)
			if js--; js == 0 {
				return true
			}
		}
	}
	return false
}

// levels returns the JavaScript frames of a translation, innermost first. ok is false if they
// cannot be decoded.
func (c *code) levels(tr *translations, index int) (out []level, ok bool) {
	ok = tr.walk(c.trans, index, func(op int, args [6]int64) {
		if op < tr.interpreted { // others continue in a builtin
			out = append(out, level{int(args[tr.literal]), int(args[tr.where])})
		}
	})
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, ok && len(out) > 0
}

// points reads the places of c with known frames.
func (h *heap) points(c *code) error {
	l := h.l
	count := func(i uint64) (int, bool) {
		v, ok := smi(c.at(i))
		return v, ok && v >= 0 && v <= maxPoints
	}
	start, ok1 := smi(c.at(l.deoptExits))
	eager, ok2 := count(l.deoptExits + 1)
	lazy, ok3 := count(l.deoptExits + 2)
	if !ok1 || !ok2 || !ok3 || start < 0 || eager+lazy == 0 || eager+lazy > maxPoints {
		return nil // the code has no exits
	}
	var err error
	if c.trans, err = h.table(c.at(l.deoptFrames)); err != nil {
		return err
	}
	c.points = c.points[:0]
	b := make([]byte, 8*entryWords*(eager+lazy))
	if err := h.raw(b, c.words[2]-tag+arrayData+8*(l.deoptExits+3)); err != nil {
		return err
	}
	exits := map[int]int{} // exits of checks: their offset, to the translation
	behind := map[int]int{}
	for i := range eager + lazy {
		e := b[8*entryWords*i:]
		trans, ok1 := smi(le(e, 8))
		pc, ok2 := smi(le(e, 16))
		if !ok1 || !ok2 || trans < 0 || trans >= len(c.trans) {
			return errHeap
		}
		switch {
		case i >= eager && pc >= start: // Maglev's table has the offset of the exit
			behind[pc] = trans
		case i >= eager:
			c.points = append(c.points, point{pc, trans, true})
		case pc < 0: // TurboFan's exits are consecutive
			exits[start+exitSize*i] = trans
		default:
			exits[pc] = trans
		}
	}
	if len(behind) > 0 {
		if err := h.returns(c, behind); err != nil {
			return err
		}
	}
	c.sortPoints()
	if err := h.checks(c, start, exits); err != nil {
		return err
	}
	c.sortPoints()
	return nil
}

func (c *code) sortPoints() {
	sort.SliceStable(c.points, func(i, j int) bool {
		a, b := &c.points[i], &c.points[j]
		return a.off < b.off || a.off == b.off && a.call && !b.call
	})
}

// Maglev's safepoint table is after the exits. It has the words stack slots, entries, their format
// and tagged slots, then for each entry the return address, index and offset of the exit,
// registers, slots (V8 src/maglev/maglev-safepoint-table.h).
const (
	safepointHead = 16
	maxSafepoint  = 32 // size of an entry in bytes
)

// returns adds the calls of Maglev's code to the points. exits maps the offset of a call's exit to
// its translation.
func (h *heap) returns(c *code, exits map[int]int) error {
	var head [safepointHead]byte
	if err := h.read(head[:], c.end); err != nil {
		return err
	}
	u32 := binary.LittleEndian.Uint32
	n, form := u32(head[4:]), u32(head[8:])
	regs, pcs, index := int(form>>1&7), int(form>>4&7), int(form>>7&7)
	size := 2*pcs + index + regs + 1
	if form&1 == 0 || n > maxPoints || pcs == 0 || pcs > 4 || size > maxSafepoint {
		return errHeap
	}
	b := make([]byte, int(n)*size)
	if err := h.raw(b, c.end+safepointHead); err != nil {
		return err
	}
	number := func(b []byte) (v int) {
		for i := len(b) - 1; i >= 0; i-- {
			v = v<<8 | int(b[i])
		}
		return v
	}
	last := -1
	for ; len(b) >= size; b = b[size:] {
		pc, exit := number(b[:pcs]), number(b[pcs+index:][:pcs])-1
		if pc <= last || pc > int(c.end-c.start) {
			return errHeap // not a safepoint table
		}
		last = pc
		if trans, ok := exits[exit]; ok {
			c.points = append(c.points, point{pc, trans, true})
		}
	}
	return nil
}

// checks searches the code of c up to the exits for jumps to exits, and for loops. Each turn of a
// loop checks for interrupts. If there is one, code further on calls the runtime in the frames of
// the loop.
func (h *heap) checks(c *code, start int, exits map[int]int) error {
	size := int(c.end - c.start)
	if start > size || size > maxScanned {
		return nil
	}
	b := make([]byte, size)
	if err := h.raw(b, c.start); err != nil {
		return err
	}
	calls := c.points // calls found so far
	var loops []loop
	for i := 0; i+maxLoopEnd <= start && len(c.points) < 2*maxPoints; i++ {
		at := i + 1
		switch {
		case b[i] == 0x0f && b[i+1]&0xf0 == 0x80: // jcc
			at++
		case b[i] == 0xe9: // jmp
		case b[i] == 0x41 && b[i+1] == 0x80 && b[i+2] == 0x7d && b[i+4] == 0: // cmpb $0, disp8(%r13)
			if l, ok := loopAt(b, i); ok {
				k := sort.Search(len(calls), func(k int) bool { return calls[k].off > l.asks })
				if k < len(calls) && calls[k].off-l.asks < maxAsks {
					l.index = calls[k].index
					loops = append(loops, l)
				}
			}
			continue
		default:
			continue
		}
		if index, ok := exits[at+4+int(int32(binary.LittleEndian.Uint32(b[at:])))]; ok {
			c.points = append(c.points, point{i, index, false})
		}
	}
	// The frames from before a loop, if known, apply again after it.
	c.sortPoints()
	sort.Slice(loops, func(i, j int) bool { return loops[i].begin < loops[j].begin })
	for _, l := range loops {
		if x := c.point(l.begin-1, true); x != nil {
			c.points = append(c.points, point{l.end, x.index, false})
		}
		c.points = append(c.points, point{l.begin, l.index, false})
		c.sortPoints()
	}
	return nil
}

// loop holds the offsets of one loop in its code.
type loop struct {
	begin, end int
	asks       int // the code that calls the runtime
	index      int // translation of that call
}

const (
	// maxLoopEnd bounds the bytes from a loop's interrupt check to the jump to its beginning.
	// maxAsks bounds the code that calls the runtime.
	maxLoopEnd = 64
	maxAsks    = 192
	loopAlign  = 16 // alignment of loops' beginnings
)

// loopAt returns the loop whose interrupt check is at i of b.
func loopAt(b []byte, i int) (l loop, ok bool) {
	jump := func(at int) (to, next int, ok bool) {
		switch {
		case b[at] == 0xe9:
			return at + 5 + int(int32(binary.LittleEndian.Uint32(b[at+1:]))), at + 5, true
		case b[at] == 0xeb:
			return at + 2 + int(int8(b[at+1])), at + 2, true
		}
		return 0, 0, false
	}
	back := func(to int) bool { return to >= 0 && to <= i && to%loopAlign == 0 }
	const compare = 5
	at := i + compare
	if b[at] != 0x0f {
		return l, false
	}
	to := at + 6 + int(int32(binary.LittleEndian.Uint32(b[at+2:])))
	switch b[at+1] {
	case 0x84: // no interrupt: the next turn
		var ok bool
		if l.asks, l.end, ok = jump(at + 6); ok && back(to) {
			l.begin = to
			return l, true
		}
	case 0x85: // interrupt; then the next turn
		for k := at + 6; k < i+maxLoopEnd-5; k++ {
			if begin, end, ok := jump(k); ok && back(begin) {
				return loop{begin: begin, end: end, asks: to}, true
			}
		}
	}
	return l, false
}

// returnsTo reports whether off is the return address of a call with known frames.
func (c *code) returnsTo(off int) bool {
	p := c.point(off, false)
	return p != nil && p.call && p.off == off
}

// point returns the place that determines the frames of c at off: for a return address its call,
// and otherwise the last place before. It returns nil if off is before all of them.
func (c *code) point(off int, exact bool) *point {
	last := func(off int) int {
		return sort.Search(len(c.points), func(i int) bool { return c.points[i].off > off }) - 1
	}
	i := last(off)
	if !exact {
		for i >= 0 && c.points[i].off == off && !c.points[i].call {
			i--
		}
	}
	if i < 0 {
		return nil
	}
	return &c.points[i]
}
