package v8

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
)

const (
	// maxPointer is above all addresses of user space.
	maxPointer = 1 << 47
	// maxName bounds a name, in characters.
	maxName = 4096
	// maxSource bounds the text of a script in which lines are counted, in characters.
	maxSource = 32 << 20
	// maxNesting bounds the nesting of a string's parts.
	maxNesting = 64
	// maxArray bounds one array, in bytes.
	maxArray = 4 << 20
)

var errHeap = errors.New("unexpected data in V8's heap")

// isObject reports whether v has the bits of a pointer to an object.
func isObject(v uint64) bool { return v&3 == tag && v > 4096 && v < maxPointer }

// smi decodes a tagged value as a small integer.
func smi(v uint64) (int, bool) { return int(int32(v >> 32)), v&(1<<32-1) == 0 }

// le returns 8 bytes of b, or 0 beyond its end.
func le(b []byte, at uint64) uint64 {
	if at+8 > uint64(len(b)) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[at:])
}

// heap reads V8's objects. Blocks that were read ahead are used first.
type heap struct {
	l     *layout
	mem   *meter.Meter
	ahead map[uint64]int // blocks by address; nil: all is read again
	maps  map[uint64]uint16

	blocks []block
	frame  int          // number of the current frame
	spans  []stack.Span // memory that it needed

	buf [256]byte
	// nested counts the scripts that are being read for the place of their evaluation.
	nested int
}

// maxMaps bounds the cached types per stack.
const maxMaps = 4096

func (h *heap) read(b []byte, addr uint64) error {
	var x *block
	if i, ok := h.ahead[addr]; ok {
		x = &h.blocks[i]
	}
	h.note(addr, len(b), x)
	if x != nil && len(x.data) >= len(b) {
		copy(b, x.data)
		return nil
	}
	if err := h.raw(b, addr); err != nil {
		return err
	}
	if h.ahead != nil && len(h.blocks) < 2*maxSpans {
		h.hold(addr, block{append([]byte(nil), b...), h.frame, len(b)})
	}
	return nil
}

// some reads an object that may be shorter than b. V8's memory may end at the end of a page, so
// some may return fewer bytes than b, but not fewer than least.
func (h *heap) some(b []byte, addr uint64, least int) ([]byte, error) {
	const page = 4096
	n := int(min(page-addr%page, uint64(len(b))))
	if n < len(b) {
		if h.read(b, addr) == nil {
			return b, nil
		}
		if n < least {
			return nil, fmt.Errorf("at %#x: %w", addr, errHeap)
		}
	}
	return b[:n], h.read(b[:n], addr)
}

// raw reads memory without the blocks that were read ahead.
func (h *heap) raw(b []byte, addr uint64) error {
	return within(h.mem.ReadAt, b, addr)
}

// within reads memory at addresses that may be valid.
func within(read func([]byte, int64) (int, error), b []byte, addr uint64) error {
	if addr >= maxPointer || addr+uint64(len(b)) >= maxPointer {
		return fmt.Errorf("at %#x: %w", addr, errHeap)
	}
	n, err := read(b, int64(addr))
	if n == len(b) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("at %#x: %w", addr, err)
}

func (h *heap) word(addr uint64) (uint64, error) {
	var b [8]byte
	err := h.read(b[:], addr)
	return binary.LittleEndian.Uint64(b[:]), err
}

// field returns the word at off of an object.
func (h *heap) field(obj, off uint64) (uint64, error) {
	if !isObject(obj) {
		return 0, errHeap
	}
	return h.word(obj - tag + off)
}

// object reads n bytes of an object.
func (h *heap) object(obj uint64, n int) ([]byte, error) {
	if !isObject(obj) {
		return nil, errHeap
	}
	b := make([]byte, n)
	return b, h.read(b, obj-tag)
}

// typ returns the type of an object. Its map must have the map of maps.
func (h *heap) typ(obj uint64) (uint16, error) {
	m, err := h.field(obj, 0)
	if err != nil {
		return 0, err
	}
	return h.typeOf(m)
}

// typeOf returns the type of objects with the map m.
func (h *heap) typeOf(m uint64) (uint16, error) {
	if t, ok := h.maps[m]; ok {
		return t, nil
	}
	t, meta, err := h.instance(m)
	if err != nil {
		return 0, err
	}
	if mt, _, err := h.instance(meta); err != nil || mt != h.l.types.maps {
		return 0, fmt.Errorf("map at %#x: %w", m, errHeap)
	}
	if len(h.maps) >= maxMaps {
		clear(h.maps)
	}
	h.maps[m] = t
	return t, nil
}

func (h *heap) instance(m uint64) (typ uint16, meta uint64, err error) {
	if !isObject(m) {
		return 0, 0, errHeap
	}
	b := h.buf[:16]
	if at := h.l.mapInstanceType; at+2 > 16 {
		return 0, 0, errHeap
	}
	if err := h.read(b, m-tag); err != nil {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint16(b[h.l.mapInstanceType:]), le(b, 0), nil
}

// is checks an object's type.
func (h *heap) is(obj uint64, types ...uint16) error {
	t, err := h.typ(obj)
	if err != nil {
		return err
	}
	for _, x := range types {
		if x == t {
			return nil
		}
	}
	return fmt.Errorf("object of type %d at %#x: %w", t, obj, errHeap)
}

// Strings: the low bits of their types (V8 src/objects/instance-type.h).
const (
	notString = 0x80
	oneByte   = 0x08
	shapeMask = 0x07
	seqShape  = 0
	consShape = 1
	extShape  = 2
	slice     = 3
	thin      = 5
)

// text passes the characters of a string to f in pieces, at most most of them: Latin-1 bytes, or
// UTF-16 if wide.
func (h *heap) text(obj uint64, most int, f func(piece []byte, wide bool)) error {
	type part struct {
		obj       uint64
		from, len int // range in it
	}
	todo := []part{{obj, 0, most}}
	for n := 0; len(todo) > 0; n++ {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		t, err := h.typ(p.obj)
		if err != nil {
			return err
		}
		if t&^(notString-1) != 0 || n > maxNesting*maxNesting {
			return fmt.Errorf("string at %#x: %w", p.obj, errHeap)
		}
		var buf [32]byte
		b, err := h.some(buf[:], p.obj-tag, stringData)
		if err != nil {
			return err
		}
		length := int(int32(binary.LittleEndian.Uint32(b[stringLength:])))
		p.len = min(p.len, length-p.from)
		if length < 0 || p.from < 0 || p.len <= 0 {
			continue
		}
		at := p.obj - tag + stringData
		switch t & shapeMask {
		case consShape:
			first := le(b, stringData)
			t, err := h.field(first, stringLength-4)
			if err != nil {
				return err
			}
			k := int(int32(t >> 32))
			if k < 0 || len(todo) > maxNesting {
				return errHeap
			}
			if second := le(b, stringSecond); p.from+p.len > k {
				from := max(p.from-k, 0)
				todo = append(todo, part{second, from, p.from + p.len - k - from})
			}
			if p.from < k {
				todo = append(todo, part{first, p.from, min(p.len, k-p.from)})
			}
			continue
		case thin:
			todo = append(todo, part{le(b, stringData), p.from, p.len})
			continue
		case slice:
			off, _ := smi(le(b, stringSecond))
			todo = append(todo, part{le(b, stringData), p.from + off, p.len})
			continue
		case extShape:
			at = le(b, stringSecond)
		case seqShape:
		default:
			return fmt.Errorf("string of type %#x at %#x: %w", t, p.obj, errHeap)
		}
		size := 1
		if t&oneByte == 0 {
			size = 2
		}
		if err := h.pieces(at+uint64(p.from*size), p.len*size, func(piece []byte) { f(piece, size == 2) }); err != nil {
			return err
		}
	}
	return nil
}

// pieceBytes is the size of one read of a text.
const pieceBytes = 64 << 10

// pieces passes n bytes to f in pieces. A text is read completely or not at all, because it may be
// longer than all budgets.
func (h *heap) pieces(at uint64, n int, f func([]byte)) error {
	if err := h.mem.Text(n); err != nil {
		return err
	}
	buf := make([]byte, min(n, pieceBytes))
	for n > 0 {
		b := buf[:min(n, len(buf))]
		if err := within(h.mem.Direct, b, at); err != nil {
			return err
		}
		f(b)
		at += uint64(len(b))
		n -= len(b)
	}
	return nil
}

// string reads a name.
func (h *heap) string(obj uint64) (string, error) {
	var out []byte
	var units []uint16
	err := h.text(obj, maxName, func(b []byte, wide bool) {
		if !wide {
			for _, c := range b {
				out = appendLatin(out, rune(c))
			}
			return
		}
		units = units[:0]
		for ; len(b) >= 2; b = b[2:] {
			units = append(units, binary.LittleEndian.Uint16(b))
		}
		out = append(out, string(utf16.Decode(units))...)
	})
	return string(out), err
}

func appendLatin(b []byte, r rune) []byte {
	if r < 0x80 {
		return append(b, byte(r))
	}
	return append(b, byte(0xc0|r>>6), byte(0x80|r&0x3f))
}
