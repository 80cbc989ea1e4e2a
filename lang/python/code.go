package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf16"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
)

// Code is the content of a code object.
type Code struct {
	Name  string // qualified from 3.11 on
	File  string
	First int    // first line
	Size  uint64 // of its bytecode, in bytes
	form  lineForm
	lines []byte

	head   []byte   // see Runtime.head
	pieces []object // objects that it refers to
}

// Shim reports whether the code is the interpreter's own wrapper through which 3.13 and later call
// __init__. Tracebacks do not show it (_Py_InitCleanup, Python/codegen.c).
func (c *Code) Shim() bool { return c.Name == "__init__" && c.File == "__init__" }

// object is the content of a str or bytes object.
type object struct {
	addr uint64
	skip uint64 // from its type to its data, in bytes
	want []byte // type, length and data
}

// size is how many bytes of memory from the object's type on is compares.
func (o *object) size() int { return int(o.skip) + len(o.want) - 16 }

// is reports whether b, which begins with the object's type, has that content.
func (o *object) is(b []byte) bool {
	return len(b) >= o.size() && bytes.Equal(b[:16], o.want[:16]) && bytes.Equal(b[o.skip:], o.want[16:])
}

const (
	maxName  = 1 << 10 // characters of a function's or file's name to keep
	maxLines = 1 << 20 // bytes of a line table
	maxProof = 1 << 9  // bytes of it that identify the code
)

// ErrNoCode says that a code object was freed.
var ErrNoCode = errors.New("no code object is there any more")

// Code reads the code object at addr. It must not be freed during the read. Code on the stack of a
// stopped thread is not.
func (r *Runtime) Code(mem io.ReaderAt, addr uint64) (*Code, error) {
	l := &r.l
	c, b, err := r.names(mem, addr)
	if err != nil {
		return nil, err
	}
	if c.lines, err = r.byteString(mem, le(b, l.coLines), maxLines); err != nil {
		return nil, fmt.Errorf("lines of the code at %#x: %w", addr, err)
	}
	c.pieces = append(c.pieces, object{le(b, l.coLines), bytesData - obType,
		wanted(r.types.bytes, uint64(len(c.lines)), c.lines[:min(len(c.lines), maxProof)])})
	if l.coCode != none {
		c.Size = 2 * (le(b, obSize) & math.MaxUint32)
	} else if c.Size, err = word(mem, le(b, coBytecode)+obSize); err != nil {
		return nil, fmt.Errorf("bytecode of the code at %#x: %w", addr, err)
	}
	if c.Size == 0 || c.Size > maxBytecode {
		return nil, fmt.Errorf("%d bytes of bytecode of the code at %#x", c.Size, addr)
	}
	// It may have been freed, and its memory reused, during the read.
	if err := read(mem, b, addr); err != nil || !bytes.Equal(r.head(b), c.head) {
		return nil, fmt.Errorf("at %#x: %w", addr, ErrNoCode)
	}
	return c, nil
}

// names reads what identifies the code object at addr, b, its name and its file.
func (r *Runtime) names(mem io.ReaderAt, addr uint64) (c *Code, b []byte, err error) {
	l := &r.l
	b = make([]byte, min(l.coSize, maxCodeSize))
	if err := read(mem, b, addr); err != nil {
		return nil, nil, err
	}
	if le(b, obType) != r.types.code {
		return nil, nil, fmt.Errorf("at %#x: %w", addr, ErrNoCode)
	}
	c = &Code{First: int(int32(binary.LittleEndian.Uint32(b[l.coFirst:]))), form: formOf(r.img.Minor), head: r.head(b)}
	name := l.coName
	if l.coQualname != none {
		name = l.coQualname
	}
	if c.Name, err = r.textOf(mem, le(b, name), c); err != nil {
		return nil, nil, fmt.Errorf("name of the code at %#x: %w", addr, err)
	}
	if c.File, err = r.textOf(mem, le(b, l.coFile), c); err != nil {
		return nil, nil, fmt.Errorf("file of the code at %#x: %w", addr, err)
	}
	return c, b, nil
}

// In returns the function's address in t and its size there, in bytes.
func (c *Code) In(t *managed.Table) (addr, size uint64) {
	return t.Add(managed.Key{Name: c.Name, File: c.File, First: c.First, Size: c.Size, Lines: t.Hash(c.lines)}, c.Each)
}

// Same reports whether two reads of one place found the same code object.
func (c *Code) Same(o *Code) bool {
	if !bytes.Equal(c.head, o.head) || len(c.pieces) != len(o.pieces) || c.Size != o.Size || !bytes.Equal(c.lines, o.lines) {
		return false
	}
	for i := range c.pieces {
		p, q := &c.pieces[i], &o.pieces[i]
		if p.addr != q.addr || p.skip != q.skip || !bytes.Equal(p.want, q.want) {
			return false
		}
	}
	return true
}

// head returns the parts of the code object b in which another one at the same place would differ.
func (r *Runtime) head(b []byte) []byte {
	l := &r.l
	out := make([]byte, 0, 64)
	out = append(out, b[obType:obType+8]...)
	for _, f := range [...]uint64{l.coName, l.coQualname, l.coFile, l.coLines, l.coVersion} {
		if f != none {
			out = append(out, b[f:f+8]...)
		}
	}
	out = append(out, b[l.coFirst:l.coFirst+4]...)
	if l.coCode == none {
		return append(out, b[coBytecode:coBytecode+8]...)
	}
	return append(out, b[obSize:obSize+8]...)
}

func wanted(typ, size uint64, data []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, typ), size), data...)
}

// Spans appends the memory that Is compares for the code object at addr.
func (r *Runtime) Spans(addr uint64, c *Code, out []stack.Span) []stack.Span {
	out = append(out, stack.Span{Addr: addr, Len: int(min(r.l.coSize, maxCodeSize))})
	for i := range c.pieces {
		p := &c.pieces[i]
		out = append(out, stack.Span{Addr: p.addr + obType, Len: p.size()})
	}
	return out
}

// Is reports whether the code object is still c. mem returns the whole memory of the i-th of the
// Spans.
func (r *Runtime) Is(c *Code, mem func(i int) []byte) bool {
	b := mem(0)
	if uint64(len(b)) < min(r.l.coSize, maxCodeSize) || !bytes.Equal(r.head(b), c.head) {
		return false
	}
	for i := range c.pieces {
		if !c.pieces[i].is(mem(i + 1)) {
			return false
		}
	}
	return true
}

// textOf reads a str and adds it to the pieces of c.
func (r *Runtime) textOf(mem io.ReaderAt, addr uint64, c *Code) (string, error) {
	s, data, size, at, err := r.chars(mem, addr)
	if err == nil {
		c.pieces = append(c.pieces, object{addr, at - addr - obType, wanted(r.types.unicode, size, data)})
	}
	return s, err
}

// text reads a str.
func (r *Runtime) text(mem io.ReaderAt, addr uint64) (string, error) {
	s, _, _, _, err := r.chars(mem, addr)
	return s, err
}

// chars reads a str. It also returns its bytes, its length in characters and the address of the
// bytes.
func (r *Runtime) chars(mem io.ReaderAt, addr uint64) (s string, data []byte, size, at uint64, err error) {
	b := make([]byte, r.l.compact)
	if err := read(mem, b[:r.l.ascii], addr); err != nil {
		return "", nil, 0, 0, err
	}
	if le(b, obType) != r.types.unicode {
		return "", nil, 0, 0, fmt.Errorf("no str at %#x", addr)
	}
	// interned 2 bits, kind 3, compact 1, ascii 1 (struct PyASCIIObject in
	// Include/cpython/unicodeobject.h, 3.8 … 3.14).
	state := binary.LittleEndian.Uint32(b[uniState:])
	kind, compact, ascii := uint64(state>>2&7), state>>5&1 != 0, state>>6&1 != 0
	size = le(b, obSize)
	n := min(size, maxName)
	at = addr + r.l.compact
	switch {
	case !compact || kind != 1 && kind != 2 && kind != 4:
		return "", nil, 0, 0, fmt.Errorf("a str at %#x of a kind that is not known", addr)
	case ascii:
		at = addr + r.l.ascii
	}
	data = make([]byte, n*kind)
	if n == 0 {
		return "", data, size, at, nil
	}
	if err := read(mem, data, at); err != nil {
		return "", nil, 0, 0, err
	}
	switch {
	case ascii:
		return string(data), data, size, at, nil
	case kind == 2: // code points below 65536, with unpaired surrogates as they are
		u := make([]uint16, n)
		for i := range u {
			u[i] = binary.LittleEndian.Uint16(data[2*i:])
		}
		return string(utf16.Decode(u)), data, size, at, nil
	}
	out := make([]rune, n)
	for i := range out {
		if kind == 1 {
			out[i] = rune(data[i])
		} else {
			out[i] = rune(binary.LittleEndian.Uint32(data[4*i:]))
		}
	}
	return string(out), data, size, at, nil
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
