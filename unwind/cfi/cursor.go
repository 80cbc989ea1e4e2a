package cfi

import (
	"encoding/binary"
	"errors"
)

var (
	errShort = errors.New("ends in the middle of a value")
	errLEB   = errors.New("LEB128 number of more than 64 bits")
)

// maxLEB bounds a LEB128 number, in bytes: 64 bits need 10, and assemblers may pad.
const maxLEB = 16

// A cursor reads little-endian values. After the first error it stops advancing, and every value is
// zero. Callers check err before they use any value.
type cursor struct {
	b   []byte
	pos int
	err error
}

func (c *cursor) rest() int { return len(c.b) - c.pos }

func (c *cursor) take(n uint64) []byte {
	if c.err == nil && n > uint64(c.rest()) {
		c.err = errShort
	}
	if c.err != nil {
		return nil
	}
	b := c.b[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return b
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) uleb() uint64 {
	var v uint64
	for i := range maxLEB {
		b := c.u8()
		if c.err != nil {
			return 0
		}
		if s := 7 * i; s < 64 {
			v |= uint64(b&0x7f) << s
			if s == 63 && b&0x7e != 0 {
				break
			}
		} else if b&0x7f != 0 {
			break
		}
		if b&0x80 == 0 {
			return v
		}
	}
	c.err = errLEB
	return 0
}

func (c *cursor) sleb() int64 {
	var v int64
	for i := range maxLEB {
		b := c.u8()
		if c.err != nil {
			return 0
		}
		s := 7 * i
		if s < 64 {
			v |= int64(b&0x7f) << s
		}
		if b&0x80 == 0 {
			if s+7 < 64 && b&0x40 != 0 {
				v |= -1 << (s + 7)
			}
			return v
		}
	}
	c.err = errLEB
	return 0
}

func (c *cursor) cstring() string {
	for i := c.pos; i < len(c.b); i++ {
		if c.b[i] == 0 {
			s := string(c.b[c.pos:i])
			c.pos = i + 1
			return s
		}
	}
	c.err = errShort
	return ""
}
