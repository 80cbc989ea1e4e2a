package v8

import "sort"

// place is an entry of a source position table: from that offset on, the code is
// of that position.
type place struct {
	from int   // offset into code, in bytes
	pos  int64 // as V8 encodes it
}

// maxPlaces bounds one table.
const maxPlaces = 1 << 18

// varint decodes a number of 7 bits a byte, the lowest first; n is 0 where it is
// damaged.
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

// places decodes a source position table: what could be decoded.
func places(b []byte) (out []place) {
	from, pos := int64(-1), int64(0)
	for len(b) > 0 && len(out) < maxPlaces {
		d, n := zigzag(b)
		if n == 0 {
			break
		}
		b = b[n:]
		if d < 0 { // no statement begins there
			d = -d - 1
		}
		e, n := zigzag(b)
		if n == 0 {
			break
		}
		b = b[n:]
		from, pos = from+d, pos+e
		if from < -1 || from > maxArray { // -1 is the entry of the function
			break
		}
		out = append(out, place{int(from), pos})
	}
	return out
}

// at is the position of the code at off; 0: it has none.
func at(list []place, off int) int64 {
	i := sort.Search(len(list), func(i int) bool { return list[i].from > off })
	if i == 0 {
		return 0
	}
	return list[i-1].pos
}

// text is the offset into the script's text that a position says, -1 where it says
// none; inlined is the number of the call that was compiled in, 0: it is none.
func text(pos int64) (off, inlined int) {
	inlined = int(uint64(pos) >> 31 & 0xffff)
	if pos&1 != 0 {
		return -1, inlined
	}
	return int(pos>>1&(1<<30-1)) - 1, inlined
}

// bytecodeLength is the bytes of the bytecode that b begins with; 0: there is none.
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

// baselineOffset is the bytecode that baseline code at off is of, by its table. off
// is behind the instruction, as a return address is. It is false where the table ends before,
// or bytecodes' lengths are not known.
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
