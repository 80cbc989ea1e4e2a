package jfr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
)

// errShort says that a value goes past the end of what it is part of.
var errShort = errors.New("the bytes end in a value")

// cursor reads values from a chunk. After an error all reads return zero.
type cursor struct {
	b          []byte // the chunk, up to the end of the event
	off        int    // of the next byte, in the chunk
	compressed bool
	err        error
}

func (r *cursor) fail(err error) {
	if r.err == nil {
		r.err = fmt.Errorf("at %d: %w", r.off, err)
	}
}

func (r *cursor) take(n int) []byte {
	if r.err == nil && (n < 0 || n > len(r.b)-r.off) {
		r.fail(errShort)
	}
	if r.err != nil {
		return nil
	}
	b := r.b[r.off : r.off+n]
	r.off += n
	return b
}

func (r *cursor) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// maxLEB is how many bytes a compressed integer has at most. The last one has eight bits.
const maxLEB = 9

func (r *cursor) leb() uint64 {
	var v uint64
	for i := range maxLEB {
		b := r.byte()
		if i == maxLEB-1 {
			return v | uint64(b)<<(7*i)
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			break
		}
	}
	return v
}

func (r *cursor) long() int64 {
	if r.compressed {
		return int64(r.leb())
	}
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *cursor) int() int32 {
	if r.compressed {
		return int32(r.leb())
	}
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *cursor) short() uint16 {
	if r.compressed {
		return uint16(r.leb())
	}
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *cursor) float() float64 {
	if b := r.take(4); b != nil {
		return float64(math.Float32frombits(binary.BigEndian.Uint32(b)))
	}
	return 0
}

func (r *cursor) double() float64 {
	if b := r.take(8); b != nil {
		return math.Float64frombits(binary.BigEndian.Uint64(b))
	}
	return 0
}

// count reads a number of things of which each has at least one byte.
func (r *cursor) count() int {
	n := int(r.int())
	if n < 0 || n > len(r.b)-r.off {
		r.fail(fmt.Errorf("%d values in %d bytes", n, len(r.b)-r.off))
		return 0
	}
	return n
}

// The encodings of a string.
const (
	stringNull = iota
	stringEmpty
	stringConstant
	stringUTF8
	stringChars
	stringLatin1
)

// text reads a string. If it is a constant, ref is its key.
func (r *cursor) text() (s string, ref int64, kind Kind) {
	switch enc := r.byte(); enc {
	case stringNull:
		return "", 0, Null
	case stringEmpty:
	case stringConstant:
		return "", r.long(), Ref
	case stringUTF8:
		return strings.ToValidUTF8(string(r.take(r.count())), "\ufffd"), 0, Text
	case stringChars:
		n := r.count()
		u := make([]uint16, 0, n)
		for range n {
			u = append(u, r.short())
		}
		return string(utf16.Decode(u)), 0, Text
	case stringLatin1:
		b := r.take(r.count())
		u := make([]rune, 0, len(b))
		for _, c := range b {
			u = append(u, rune(c))
		}
		return string(u), 0, Text
	default:
		r.fail(fmt.Errorf("string of the unknown encoding %d", enc))
	}
	return "", 0, Text
}

// event reads the size and the type of an event at off, and returns a cursor on its fields, which ends with it.
func (c *Chunk) event(off int64) (r cursor, end, typ int64, err error) {
	r = cursor{b: c.data, off: int(off), compressed: c.compressed}
	size := int64(r.int())
	if r.err == nil && (size < int64(r.off)-off || size > int64(len(c.data))-off) {
		return r, 0, 0, fmt.Errorf("event of %d bytes at %d of a chunk of %d", size, off, len(c.data))
	}
	if r.err == nil {
		r.b = c.data[:off+size]
		typ = r.long()
	}
	return r, off + size, typ, r.err
}
