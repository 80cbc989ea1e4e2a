package python

// lineForm is how a version notes lines.
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

// Line is the source line of the instruction off bytes into the bytecode; 0:
// it belongs to none.
func (c *Code) Line(off uint64) int {
	switch c.form {
	case formLnotab:
		return c.lnotab(off)
	case formTable:
		return c.table(off)
	}
	return c.location(off)
}

// lnotab: pairs of the bytes and the lines that each step adds.
func (c *Code) lnotab(off uint64) int {
	line, at := c.First, uint64(0)
	for b := c.lines; len(b) >= 2; b = b[2:] {
		if at += uint64(b[0]); at > off {
			break
		}
		line += int(int8(b[1]))
	}
	return line
}

// table: pairs of a range's bytes and the lines that are added before it; -128
// is a range without a line.
func (c *Code) table(off uint64) int {
	line, end := c.First, uint64(0)
	for b := c.lines; len(b) >= 2; b = b[2:] {
		d := int(int8(b[1]))
		if d != -128 {
			line += d
		}
		if end += uint64(b[0]); off < end {
			if d == -128 {
				return 0
			}
			return line
		}
	}
	return 0
}

// location: entries of a byte with code and length, and what the code wants.
func (c *Code) location(off uint64) int {
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
		if off < end {
			if !known {
				return 0
			}
			return line
		}
	}
	return 0
}

// maxVarint is how many chunks of 6 bits a number may have.
const maxVarint = 6

// varint: chunks of 6 bits, the lowest first; bit 6 says that more follow.
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
