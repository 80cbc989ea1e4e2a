package hotspot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/heap/hprof"
)

// errChanged says that an object is not what it was when the heap was walked.
var errChanged = errors.New("the heap is not what it was: the memory of the copy changed")

// encoder encodes objects from memory. It belongs to one goroutine.
type encoder struct {
	h     *Heap
	known *cache
	lost  uint64 // references to no object, which were encoded as null
	buf   []byte
	win   []byte // memory from base on
	base  uint64
	top   uint64 // up to which memory is read ahead
	raw   []byte // memory of some elements of a large array
	text  []byte // encoded part of an object
}

const readAhead = 256 << 10 // of the heap that an encoder reads at once

// at returns memory from addr on: n bytes or more, or fewer before top or where it cannot be read.
func (e *encoder) at(addr, n uint64) []byte {
	n = min(n, e.top-addr)
	if addr < e.base || addr+n > e.base+uint64(len(e.win)) {
		want := min(max(n, readAhead), e.top-addr)
		if uint64(len(e.buf)) < want {
			e.buf = make([]byte, want)
		}
		got, _ := e.h.VM.mem.src.ReadAt(e.buf[:want], int64(addr))
		e.base, e.win = addr, e.buf[:got]
	}
	return e.win[min(addr-e.base, uint64(len(e.win))):]
}

// object reads the object at addr.
func (e *encoder) object(addr uint64) (o object, err error) {
	if o, err = e.begin(addr); err == nil {
		err = e.load(&o)
	}
	return o, err
}

// begin reads the beginning of the object at addr: firstBytes or what it has of them.
func (e *encoder) begin(addr uint64) (o object, err error) {
	b := e.at(addr, firstBytes)
	if uint64(len(b)) < e.h.VM.least {
		return o, fmt.Errorf("object at %#x: %w", addr, errChanged)
	}
	c := e.h.classOf(b, e.known)
	if c == nil {
		return o, fmt.Errorf("object at %#x: %w", addr, errChanged)
	}
	o = object{addr: addr, class: c, data: b}
	if o.size, o.length = e.h.sizeOf(c, b); o.size == 0 || o.size > e.h.high-addr {
		return o, fmt.Errorf("object at %#x: %w", addr, errChanged)
	}
	return o, nil
}

// load sets the object's data.
func (e *encoder) load(o *object) error {
	n := min(o.size, wholeBytes)
	if uint64(len(o.data)) >= n {
		o.data = o.data[:n]
		return nil
	}
	if o.data = e.at(o.addr, n); uint64(len(o.data)) < n {
		return fmt.Errorf("object at %#x: %w", o.addr, e.h.readable(o.addr+uint64(len(o.data))))
	}
	o.data = o.data[:n]
	return nil
}

// block encodes a block that is not large into out, whose length it has.
func (e *encoder) block(i int, out []byte) error {
	blocks := e.h.blocks.blocks
	b := &blocks[i]
	e.top = e.h.high
	if i+1 < len(blocks) {
		e.top = blocks[i+1].addr
	}
	e.win = nil // of another block
	to := out[:0]
	if b.segment != 0 {
		to = segmentHead(to, b.segment)
	}
	for addr := b.addr; len(to) < len(out); {
		if addr >= e.top {
			return fmt.Errorf("objects before %#x: %w", addr, errChanged)
		}
		to, addr = e.plain(to, len(out), addr)
		if len(to) >= len(out) || addr >= e.top {
			continue
		}
		o, err := e.object(addr)
		if err != nil {
			return err
		}
		addr = e.h.next(addr + o.size)
		if o.class.Kind == KindMirror && e.h.isMirror(&o) {
			continue // written as a class
		}
		to = e.record(to, &o)
	}
	if len(to) > len(out) {
		return fmt.Errorf("objects before %#x: %w", e.top, errChanged)
	}
	return nil
}

func segmentHead(to []byte, n uint32) []byte {
	to = append(to, hprof.TagHeapSegment, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint32(to, n)
}

// record appends the record of an object that is whole in o.data.
func (e *encoder) record(to []byte, o *object) []byte {
	c := o.class
	if c.Kind == KindObjects || c.Kind == KindPrimitives {
		n, _ := e.h.elements(c, o.length)
		to = e.arrayHead(to, o, n)
		head := c.arrayHead()
		return e.values(to, c.Element, o.data[head:head+n*e.h.VM.size(c.Element)])
	}
	var p []byte
	to, p = extend(to, instanceHead+int(c.size))
	be := binary.BigEndian
	p[0] = hprof.SubInstance
	be.PutUint64(p[1:], o.addr)
	be.PutUint32(p[9:], emptyTrace)
	be.PutUint64(p[13:], c.Mirror)
	be.PutUint32(p[21:], c.size)
	p = p[instanceHead:]
	if c.end <= uint64(len(o.data)) {
		e.fields(p, c, o.data)
		return to
	}
	for i := range c.all {
		f := &c.all[i]
		b := unread[:]
		if at := uint64(f.Offset); at+e.h.VM.size(f.Type) <= uint64(len(o.data)) {
			b = o.data[at:]
		}
		p = p[e.put(p, f.Type, b):]
	}
	return to
}

// unread are the bytes of a field that was not read.
var unread [8]byte

// extend appends n bytes to b. The caller sets them in p.
func extend(b []byte, n int) (all, p []byte) {
	b = slices.Grow(b, n)[:len(b)+n]
	return b, b[len(b)-n:]
}

// arrayHead is where the elements of an array of the class begin in it.
func (c *Class) arrayHead() uint64 { return uint64(uint32(c.layout) >> 16 & 255) }

// arrayHead appends the record of an array up to its n elements.
func (e *encoder) arrayHead(to []byte, o *object, n uint64) []byte {
	be := binary.BigEndian
	tag := uint8(hprof.SubPrimitiveArray)
	if o.class.Kind == KindObjects {
		tag = hprof.SubObjectArray
	}
	to = append(to, tag)
	to = be.AppendUint64(to, o.addr)
	to = be.AppendUint32(to, emptyTrace)
	to = be.AppendUint32(to, uint32(n))
	if o.class.Kind == KindObjects {
		return be.AppendUint64(to, o.class.Mirror)
	}
	return append(to, uint8(o.class.Element))
}

// part encodes the bytes from offset from on of a block that is one large array.
func (e *encoder) part(i int, from int64, out []byte) error {
	b := &e.h.blocks.blocks[i]
	e.top, e.win = e.h.high, nil
	var first [firstBytes]byte
	k, _ := e.h.VM.mem.src.ReadAt(first[:], int64(b.addr))
	c := (*Class)(nil)
	if k >= 24 {
		c = e.h.classOf(first[:k], e.known)
	}
	if c == nil || c.layout >= 0 {
		return fmt.Errorf("array at %#x: %w", b.addr, errChanged)
	}
	_, length := e.h.sizeOf(c, first[:k])
	n, size := e.h.elements(c, length)
	head := segmentHead(make([]byte, 0, headBytes+objectsHead), b.segment)
	head = e.arrayHead(head, &object{addr: b.addr, class: c}, n)
	if int64(b.segment) != int64(len(head)-headBytes)+int64(size) {
		return fmt.Errorf("array at %#x: %w", b.addr, errChanged)
	}
	if from < int64(len(head)) {
		k := copy(out, head[from:])
		out, from = out[k:], from+int64(k)
	}
	return e.array(&object{addr: b.addr, class: c}, n, out, uint64(from)-uint64(len(head)), func(b []byte, addr uint64) error {
		_, err := e.h.VM.mem.src.ReadAt(b, int64(addr))
		return err
	})
}

// array encodes the n elements of an array from byte at on, by their bytes in memory that read gets.
func (e *encoder) array(o *object, n uint64, out []byte, at uint64, read func(b []byte, addr uint64) error) error {
	c := o.class
	in, each := e.h.VM.size(c.Element), uint64(c.Element.Size(idBytes))
	for len(out) > 0 {
		begin := at / each
		count := min((at+uint64(len(out))+each-1)/each, n) - begin
		count = min(count, elementBytes/in)
		if count == 0 {
			return fmt.Errorf("array at %#x: %w", o.addr, errChanged)
		}
		if uint64(len(e.raw)) < count*in {
			e.raw = make([]byte, count*in)
		}
		raw := e.raw[:count*in]
		if err := read(raw, o.addr+c.arrayHead()+begin*in); err != nil {
			return fmt.Errorf("array at %#x: %w", o.addr, err)
		}
		e.text = e.values(e.text[:0], c.Element, raw)
		k := copy(out, e.text[at-begin*each:])
		out, at = out[k:], at+uint64(k)
	}
	return nil
}

// piece returns n bytes of a large array's memory.
func (e *encoder) piece(addr, n uint64) ([]byte, error) {
	if uint64(len(e.raw)) < n {
		e.raw = make([]byte, n)
	}
	if _, err := e.h.VM.mem.src.ReadAt(e.raw[:n], int64(addr)); err != nil {
		return nil, fmt.Errorf("array at %#x: %w", addr, err)
	}
	return e.raw[:n], nil
}

// ref returns the object that a reference in the heap means, by its bytes in memory, as refTo does.
func (e *encoder) ref(b []byte) uint64 { return e.refTo(e.h.VM.decode(b)) }

// refTo returns an address at which an object begins; 0 for null, and for one that leads to no object, which is counted.
func (e *encoder) refTo(addr uint64) uint64 {
	if e.h.Begins(addr) {
		return addr
	}
	return e.noObject(addr)
}

func (e *encoder) noObject(addr uint64) uint64 {
	if addr != 0 && !e.h.live && !e.h.mirrors[addr] {
		e.lost++
	}
	return 0
}

// put writes a value to p from its bytes in memory, and returns its bytes in a dump.
func (e *encoder) put(p []byte, t hprof.Type, b []byte) int {
	be := binary.BigEndian
	switch t {
	case hprof.TypeObject:
		be.PutUint64(p, e.ref(b))
	case hprof.TypeBoolean, hprof.TypeByte:
		p[0] = b[0]
		return 1
	case hprof.TypeChar, hprof.TypeShort:
		be.PutUint16(p, le16(b))
		return 2
	case hprof.TypeInt, hprof.TypeFloat:
		be.PutUint32(p, le32(b))
		return 4
	default:
		be.PutUint64(p, le64(b))
	}
	return 8
}

// values appends elements from their bytes in memory.
func (e *encoder) values(to []byte, t hprof.Type, b []byte) []byte {
	be := binary.BigEndian
	size := int(e.h.VM.size(t))
	n := len(b) / size
	if t == hprof.TypeBoolean || t == hprof.TypeByte {
		return append(to, b...)
	}
	to, p := extend(to, n*t.Size(idBytes))
	switch t {
	case hprof.TypeChar, hprof.TypeShort:
		for ; len(b) >= 2 && len(p) >= 2; b, p = b[2:], p[2:] {
			be.PutUint16(p, le16(b))
		}
	case hprof.TypeInt, hprof.TypeFloat:
		for ; len(b) >= 4 && len(p) >= 4; b, p = b[4:], p[4:] {
			be.PutUint32(p, le32(b))
		}
	case hprof.TypeObject:
		v := e.h.VM
		if !v.narrow {
			for ; len(p) >= 8 && len(b) >= 8; b, p = b[8:], p[8:] {
				be.PutUint64(p, e.refTo(le64(b)))
			}
			break
		}
		for ; len(p) >= 8 && len(b) >= 4; b, p = b[4:], p[8:] {
			addr := uint64(0)
			if n := le32(b); n != 0 {
				addr = e.refTo(v.base + uint64(n)<<v.shift)
			}
			be.PutUint64(p, addr)
		}
	default:
		for ; len(b) >= 8 && len(p) >= 8; b, p = b[8:], p[8:] {
			be.PutUint64(p, le64(b))
		}
	}
	return to
}
