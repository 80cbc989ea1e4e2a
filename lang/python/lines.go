package python

import "math"

// lineForm is a version's encoding of lines.
type lineForm uint8

const (
	formLnotab   lineForm = iota // co_lnotab, up to 3.9: Objects/lnotab_notes.txt of 3.9
	formTable                    // co_linetable of 3.10: Objects/lnotab_notes.txt of 3.10
	formLocation                 // co_linetable since 3.11: Objects/locations.md of 3.11
)

func formOf(minor int) lineForm {
	switch {
	case minor <= 9:
		return formLnotab
	case minor == 10:
		return formTable
	}
	return formLocation
}

// Line returns the source line of the instruction off bytes into the bytecode, or 0 if it has none.
func (c *Code) Line(off uint64) (line int) {
	c.Each(func(end uint64, at int) bool {
		line = at
		return end <= off
	})
	return line
}

// Each calls yield with the lines of the code in order, until yield returns false. A line is valid
// up to end, in bytes from the beginning. Line 0 means none.
func (c *Code) Each(yield func(end uint64, line int) bool) {
	switch c.form {
	case formLnotab:
		c.lnotab(yield)
	case formTable:
		c.table(yield)
	default:
		c.location(yield)
	}
}

// lnotab: pairs of the bytes and the lines that each step adds. The last line extends to the end.
func (c *Code) lnotab(yield func(uint64, int) bool) {
	line, at := c.First, uint64(0)
	for b := c.lines; len(b) >= 2; b = b[2:] {
		if b[0] > 0 {
			if at += uint64(b[0]); !yield(at, line) {
				return
			}
		}
		line += int(int8(b[1]))
	}
	yield(math.MaxUint64, line)
}

// table: pairs of the size of a range in bytes and the lines to add before it. -128 is a range
// without a line.
func (c *Code) table(yield func(uint64, int) bool) {
	line, end := c.First, uint64(0)
	for b := c.lines; len(b) >= 2; b = b[2:] {
		d := int(int8(b[1]))
		if d != -128 {
			line += d
		}
		at := line
		if d == -128 {
			at = 0
		}
		if end += uint64(b[0]); b[0] > 0 && !yield(end, at) {
			return
		}
	}
	yield(math.MaxUint64, 0)
}

// location: entries of a byte with code and length, and the operands of the code.
func (c *Code) location(yield func(uint64, int) bool) {
	line, end := c.First, uint64(0)
	for b := c.lines; len(b) > 0; {
		code := b[0] >> 3 & 15
		end += 2 * (uint64(b[0]&7) + 1)
		b = b[1:]
		known := true
		switch {
		case code == 15:
			known = false
		case code == 14, code == 13:
			var v uint64
			v, b = varint(b)
			line += signed(v)
			for range 3 * int(code-13) { // end line and columns
				_, b = varint(b)
			}
		case code >= 10:
			line += int(code - 10)
			b = b[min(2, len(b)):]
		default:
			b = b[min(1, len(b)):]
		}
		at := line
		if !known {
			at = 0
		}
		if !yield(end, at) {
			return
		}
	}
	yield(math.MaxUint64, 0)
}

// maxVarint bounds the 6-bit chunks of a number.
const maxVarint = 6

// varint: chunks of 6 bits, the lowest first; bit 6 is set if more follow.
func varint(b []byte) (v uint64, rest []byte) {
	for i := 0; i < len(b); i++ {
		if i < maxVarint {
			v |= uint64(b[i]&63) << (6 * i)
		}
		if b[i]&64 == 0 {
			return v, b[i+1:]
		}
	}
	return v, nil
}

// signed: the lowest bit is the sign.
func signed(v uint64) int {
	if v&1 != 0 {
		return -int(v >> 1)
	}
	return int(v >> 1)
}
