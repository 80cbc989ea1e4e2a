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

// count returns the number of operands of op.
func (tr *translations) count(op int) int { return int(tr.operands[op] - '0') }

// translations13 describes those of 13.6.
var translations13 = translations{
	operands:    "643321343321003311101111111111111111101111121",
	interpreted: 2, js: 4, begin: 14, match: 44,
	frameCount: 1, where: 0, literal: 1,
}

// begins reports whether op is the first operation of a translation.
func (tr *translations) begins(op int) bool { return op == tr.begin || op == tr.begin+1 }

// walk calls yield with the JavaScript frames of the translation at index of b, outermost first. ok
// is false if the translation is damaged or of an unknown kind.
func (tr *translations) walk(b []byte, index int, yield func(op int, operands [6]int64)) (ok bool) {
	d := decoder{tr: tr, b: b, index: index, at: index}
	left, ok := d.begin()
	if !ok {
		return false
	}
	for range maxSteps - 1 {
		op, ok := d.next()
		if !ok || tr.begins(op) {
			return false
		}
		if op >= tr.js {
			continue
		}
		yield(op, d.args)
		if left--; left == 0 {
			return true
		}
	}
	return false
}

// A decoder reads the operations of one translation. A translation may refer to an earlier one, from
// which it takes operations that are the same in both: a match is an operation that means the next
// ones of the referenced translation.
type decoder struct {
	tr    *translations
	b     []byte
	index int // of the translation
	at    int // next operation or operand
	prev  int // next operation or operand of the referenced translation
	left  int // operations to take from there, including the current one
	since int // operations since prev was updated
	args  [6]int64
}

// begin reads the first operation and returns the number of JavaScript frames.
func (d *decoder) begin() (js int64, ok bool) {
	op, ok := d.next()
	if !ok || !d.tr.begins(op) {
		return 0, false
	}
	back := d.args[0] // distance of the referenced translation; not positive: none
	if back > int64(d.index) {
		return 0, false
	}
	d.prev, d.since = d.index-int(max(back, 0)), 1
	all, js := d.args[d.tr.frameCount], d.args[d.tr.frameCount+1]
	return js, all > 0 && js > 0 && js <= all && js <= maxInline
}

// next reads the next operation, and its operands into args.
func (d *decoder) next() (op int, ok bool) {
	if d.left > 0 {
		d.left--
	}
	if d.left > 0 {
		return d.matched()
	}
	if d.at < 0 || d.at >= len(d.b) {
		return 0, false
	}
	op = int(d.b[d.at])
	d.at++
	if op < d.tr.match {
		d.since++
		return op, d.operands(op, &d.at)
	}
	if !d.match(op) {
		return 0, false
	}
	return d.matched()
}

// match begins to take operations from the referenced translation. It first skips there as many
// operations as this translation has read since the last match.
func (d *decoder) match(op int) bool {
	d.left = op - len(d.tr.operands)
	if op == d.tr.match {
		v, ok := d.number(&d.at, false)
		if !ok || v > maxSteps {
			return false
		}
		d.left = int(v)
	}
	if d.left <= 0 {
		return false
	}
	for ; d.since > 0; d.since-- {
		if !d.skip() {
			return false
		}
	}
	return true
}

// matched reads an operation of the referenced translation.
func (d *decoder) matched() (op int, ok bool) {
	if d.prev >= d.index {
		return 0, false
	}
	op = int(d.b[d.prev])
	d.prev++
	return op, op < d.tr.match && d.operands(op, &d.prev)
}

// skip moves over an operation of the referenced translation.
func (d *decoder) skip() bool {
	if d.prev < 0 || d.prev >= d.index || int(d.b[d.prev]) >= d.tr.match {
		return false
	}
	n := d.tr.count(int(d.b[d.prev]))
	for d.prev++; n > 0; n-- {
		if _, ok := d.number(&d.prev, false); !ok {
			return false
		}
	}
	return true
}

// operands reads the operands of op. They are signed, except for the first one of a beginning.
func (d *decoder) operands(op int, from *int) bool {
	for i := range d.tr.count(op) {
		var ok bool
		if d.args[i], ok = d.number(from, i > 0 || !d.tr.begins(op)); !ok {
			return false
		}
	}
	return true
}

// number reads a number and moves from behind it. A signed one has its sign in the lowest bit.
func (d *decoder) number(from *int, signed bool) (v int64, ok bool) {
	if *from < 0 || *from >= len(d.b) {
		return 0, false
	}
	u, n := varint(d.b[*from:])
	if n == 0 {
		return 0, false
	}
	*from += n
	if !signed {
		return int64(u), true
	}
	return int64(u>>1) * (1 - 2*int64(u&1)), true
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
