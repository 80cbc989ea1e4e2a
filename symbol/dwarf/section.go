package dwarf

import (
	"bytes"
	"io"
)

// MaxName bounds a string read from a file, in bytes. Longer strings are truncated: a
// megabyte for an unreadable name would waste memory.
const MaxName = 1 << 16

// chunk is how many bytes are read at once if the length of an item is not known in
// advance and its section is not in memory.
const chunk = 4096

// Section is the content of one ELF section, in memory or read piecewise. A nil Section
// is empty.
type Section struct {
	data []byte
	r    io.ReaderAt
	size uint64
	with any // kept alive as long as the section
}

// Bytes returns a Section of b, which must not change.
func Bytes(b []byte) *Section { return &Section{data: b, size: uint64(len(b))} }

// With keeps x, the budget that its memory is charged to, alive as long as s.
func (s *Section) With(x any) *Section {
	s.with = x
	return s
}

// At returns a Section of the first size bytes of r, read as needed.
func At(r io.ReaderAt, size uint64) *Section { return &Section{r: r, size: size} }

// Len returns the size in bytes.
func (s *Section) Len() uint64 {
	if s == nil {
		return 0
	}
	return s.size
}

// at returns n bytes at off, or fewer at the end of the section or if a read fails. The
// caller must not change the result.
func (s *Section) at(off, n uint64) []byte {
	if s == nil || off >= s.size {
		return nil
	}
	n = min(n, s.size-off)
	if s.r == nil {
		return s.data[off : off+n : off+n]
	}
	b := make([]byte, n)
	m, _ := s.r.ReadAt(b, int64(off))
	return b[:m]
}

// cstring returns the string at off up to its NUL; ok is false if there is none within
// the section.
func (s *Section) cstring(off uint64) (string, bool) {
	for n := uint64(128); ; n *= 8 {
		if s != nil && s.r == nil {
			n = MaxName
		}
		b := s.at(off, min(n, MaxName))
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(b[:i]), true
		}
		if uint64(len(b)) < n { // the end of the section, or MaxName
			return string(b), len(b) == MaxName
		}
		if n >= MaxName {
			return string(b), true
		}
	}
}

// sub returns the part [off, off+n) of s.
func (s *Section) sub(off, n uint64) *Section {
	if s == nil || off > s.size {
		return nil
	}
	n = min(n, s.size-off)
	if s.r == nil {
		return Bytes(s.data[off : off+n : off+n]).With(s.with)
	}
	return At(io.NewSectionReader(s.r, int64(off), int64(n)), n)
}

// cursor reads little-endian values from b. Reads beyond the end return zero and set
// bad; pos then stays at the end.
type cursor struct {
	b   []byte
	pos int
	bad bool
}

func (c *cursor) left() int { return len(c.b) - c.pos }

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b)-c.pos {
		c.bad = true
		c.pos = len(c.b)
		return nil
	}
	b := c.b[c.pos : c.pos+n]
	c.pos += n
	return b
}

func (c *cursor) skip(n uint64) {
	if n > uint64(len(c.b)-c.pos) {
		c.bad = true
		c.pos = len(c.b)
		return
	}
	c.pos += int(n)
}

func (c *cursor) u8() uint8 {
	if c.pos >= len(c.b) {
		c.bad = true
		return 0
	}
	v := c.b[c.pos]
	c.pos++
	return v
}

// uint reads n bytes, n at most 8.
func (c *cursor) uint(n int) uint64 {
	b := c.take(n)
	var v uint64
	for i := len(b) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

func (c *cursor) u16() uint16 { return uint16(c.uint(2)) }
func (c *cursor) u32() uint32 { return uint32(c.uint(4)) }

func (c *cursor) uleb() uint64 {
	if c.pos < len(c.b) {
		if v := c.b[c.pos]; v < 0x80 {
			c.pos++
			return uint64(v)
		}
	}
	var v uint64
	for shift := uint(0); ; shift += 7 {
		if c.pos >= len(c.b) {
			c.bad = true
			return 0
		}
		x := c.b[c.pos]
		c.pos++
		if shift < 64 {
			v |= uint64(x&0x7f) << shift
		}
		if x < 0x80 {
			return v
		}
	}
}

func (c *cursor) sleb() int64 {
	var v int64
	for shift := uint(0); ; shift += 7 {
		if c.pos >= len(c.b) {
			c.bad = true
			return 0
		}
		x := c.b[c.pos]
		c.pos++
		if shift < 64 {
			v |= int64(x&0x7f) << shift
		}
		if x < 0x80 {
			if x&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

// skipString moves past the next NUL.
func (c *cursor) skipString() {
	i := bytes.IndexByte(c.b[c.pos:], 0)
	if i < 0 {
		c.bad = true
		c.pos = len(c.b)
		return
	}
	c.pos += i + 1
}

func (c *cursor) string() string {
	from := c.pos
	c.skipString()
	if c.bad {
		return ""
	}
	return string(c.b[from:min(c.pos-1, from+MaxName)])
}

// length reads an initial length field (DWARF 5 section 7.4).
func (c *cursor) length() (n uint64, is64 bool) {
	n = uint64(c.u32())
	if n == 0xffffffff {
		return c.uint(8), true
	}
	if n >= 0xfffffff0 {
		c.bad = true
	}
	return n, false
}

func (c *cursor) offset(is64 bool) uint64 {
	if is64 {
		return c.uint(8)
	}
	return uint64(c.u32())
}

func (s *Sections) all() [11]*Section {
	return [...]*Section{s.Info, s.Abbrev, s.Str, s.LineStr, s.Line, s.Addr, s.StrOffsets, s.Ranges, s.RngLists,
		s.Aranges, s.CUIndex}
}

// size returns the size of all sections in bytes.
func (s *Sections) size() (n uint64) {
	for _, x := range s.all() {
		n += x.Len()
	}
	return n
}

// Whole reports whether all sections are in memory, so that their file may be closed.
func (s *Sections) Whole() bool {
	for _, x := range s.all() {
		if x != nil && x.r != nil {
			return false
		}
	}
	return true
}
