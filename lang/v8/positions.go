package v8

import "sort"

// place is an entry of a source position table: code from the offset from on has the position pos.
type place struct {
	from int   // offset in code, in bytes
	pos  int64 // as V8 encodes it
}

// maxPlaces bounds the entries of one table.
const maxPlaces = 1 << 18

// varint decodes a number of 7 bits per byte, the lowest first. n is 0 if it is damaged.
func varint(b []byte) (v uint64, n int) {
	for n < len(b) && n < 10 {
		c := b[n]
		v |= uint64(c&0x7f) << (7 * n)
		n++
		if c < 0x80 {
			return v, n
		}
	}
	return 0, 0
}

// zigzag is varint with the sign in the lowest bit.
func zigzag(b []byte) (int64, int) {
	v, n := varint(b)
	return int64(v>>1) ^ -int64(v&1), n
}

// places decodes a source position table up to the first damage.
func places(b []byte) (out []place) {
	from, pos := int64(-1), int64(0)
	for len(b) > 0 && len(out) < maxPlaces {
		d, n := zigzag(b)
		if n == 0 {
			break
		}
		b = b[n:]
		if d < 0 { // not the beginning of a statement
			d = -d - 1
		}
		e, n := zigzag(b)
		if n == 0 {
			break
		}
		b = b[n:]
		from, pos = from+d, pos+e
		if from < -1 || from > maxArray { // -1 is the function's entry
			break
		}
		out = append(out, place{int(from), pos})
	}
	return out
}

// at returns the position of the code at off, or 0 if it has none.
func at(list []place, off int) int64 {
	i := sort.Search(len(list), func(i int) bool { return list[i].from > off })
	if i == 0 {
		return 0
	}
	return list[i-1].pos
}

// text returns the offset in the script's text of a position, or -1 if it has none. inlined is the
// number of the inlined call, or 0.
func text(pos int64) (off, inlined int) {
	inlined = int(uint64(pos) >> 31 & 0xffff)
	if pos&1 != 0 {
		return -1, inlined
	}
	return int(pos>>1&(1<<30-1)) - 1, inlined
}

// bytecodeLength returns the length of the bytecode at the start of b, in bytes, or 0 if it is
// invalid.
func (l *layout) bytecodeLength(b []byte) int {
	n := len(l.bytecodeSizes) / 3
	if len(b) == 0 || n == 0 {
		return 0
	}
	scale, head := 0, 0
	switch b[0] {
	case 0, 2: // Wide, DebugBreakWide
		scale, head = 1, 1
	case 1, 3:
		scale, head = 2, 1
	}
	if head >= len(b) || int(b[head]) >= n {
		return 0
	}
	return head + int(l.bytecodeSizes[scale*n+int(b[head])])
}

// baselineOffset returns the bytecode offset of baseline code at off, from its table. off is after
// the instruction, like a return address. The result is false if the table ends earlier, or if the
// lengths of bytecodes are unknown.
func (l *layout) baselineOffset(table, bytecode []byte, off int) (int, bool) {
	end, at, next := uint64(0), 0, 0
	for first := true; ; first = false {
		d, n := varint(table)
		if n == 0 {
			return at, false
		}
		table = table[n:]
		if end += d; uint64(off) <= end {
			return at, true
		}
		if !first {
			at = next
		}
		k := l.bytecodeLength(bytecode[min(next, len(bytecode)):])
		if k <= 0 {
			return at, false
		}
		at, next = next, next+k
	}
}
