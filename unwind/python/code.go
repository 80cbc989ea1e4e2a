package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
)

// Code is what a code object says of itself.
type Code struct {
	Name  string // qualified from 3.11 on
	File  string
	First int // line of its beginning
	form  lineForm
	lines []byte
}

const (
	maxName  = 1 << 10 // characters of a function's or file's name that are kept
	maxLines = 1 << 20 // bytes of a line table
)

// ErrNoCode says that there is no code object where one was: it was freed.
var ErrNoCode = errors.New("no code object is there any more")

// Code reads the code object at addr.
func (r *Runtime) Code(mem io.ReaderAt, addr uint64) (*Code, error) {
	l := &r.l
	b := make([]byte, min(l.coSize, maxCodeSize))
	if err := read(mem, b, addr); err != nil {
		return nil, err
	}
	if le(b, obType) != r.types.code {
		return nil, fmt.Errorf("at %#x: %w", addr, ErrNoCode)
	}
	c := &Code{First: int(int32(binary.LittleEndian.Uint32(b[l.coFirst:]))), form: formOf(r.img.Minor)}
	name := l.coName
	if l.coQualname != none {
		name = l.coQualname
	}
	var err error
	if c.Name, err = r.text(mem, le(b, name)); err != nil {
		return nil, fmt.Errorf("name of the code at %#x: %w", addr, err)
	}
	if c.File, err = r.text(mem, le(b, l.coFile)); err != nil {
		return nil, fmt.Errorf("file of the code at %#x: %w", addr, err)
	}
	if c.lines, err = r.byteString(mem, le(b, l.coLines), maxLines); err != nil {
		return nil, fmt.Errorf("lines of the code at %#x: %w", addr, err)
	}
	// It may have been freed, and its memory be another's, since it was read.
	var again [16]byte
	if err := read(mem, again[:], addr); err != nil || le(again[:], obType) != r.types.code {
		return nil, fmt.Errorf("at %#x: %w", addr, ErrNoCode)
	}
	return c, nil
}

// text reads a str.
func (r *Runtime) text(mem io.ReaderAt, addr uint64) (string, error) {
	b := make([]byte, r.l.compact)
	if err := read(mem, b[:r.l.ascii], addr); err != nil {
		return "", err
	}
	if le(b, obType) != r.types.unicode {
		return "", fmt.Errorf("no str at %#x", addr)
	}
	// interned 2 bits, kind 3, compact 1, ascii 1 (struct PyASCIIObject in
	// Include/cpython/unicodeobject.h, 3.8 … 3.13).
	state := binary.LittleEndian.Uint32(b[uniState:])
	kind, compact, ascii := uint64(state>>2&7), state>>5&1 != 0, state>>6&1 != 0
	n := min(le(b, obSize), maxName)
	at := addr + r.l.compact
	switch {
	case !compact || kind != 1 && kind != 2 && kind != 4:
		return "", fmt.Errorf("a str at %#x of a kind that is not known", addr)
	case ascii:
		at = addr + r.l.ascii
	}
	data := make([]byte, n*kind)
	if n == 0 {
		return "", nil
	}
	if err := read(mem, data, at); err != nil {
		return "", err
	}
	switch {
	case ascii:
		return string(data), nil
	case kind == 2: // the code points below 65536, surrogates standing for themselves
		u := make([]uint16, n)
		for i := range u {
			u[i] = binary.LittleEndian.Uint16(data[2*i:])
		}
		return string(utf16.Decode(u)), nil
	}
	out := make([]rune, n)
	for i := range out {
		if kind == 1 {
			out[i] = rune(data[i])
		} else {
			out[i] = rune(binary.LittleEndian.Uint32(data[4*i:]))
		}
	}
	return string(out), nil
}

// byteString reads a bytes object of at most limit bytes.
func (r *Runtime) byteString(mem io.ReaderAt, addr uint64, limit uint64) ([]byte, error) {
	var head [24]byte
	if err := read(mem, head[:], addr); err != nil {
		return nil, err
	}
	n := le(head[:], obSize)
	if le(head[:], obType) != r.types.bytes || n > limit {
		return nil, fmt.Errorf("no bytes object at %#x, or %d bytes of it", addr, n)
	}
	b := make([]byte, n)
	if n == 0 {
		return b, nil
	}
	return b, read(mem, b, addr+bytesData)
}
