package hotspot

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/heap/hprof"
)

// A move copies a field from an object into its record.
type move struct {
	at uint32 // offset in the object
	as width
}

// width is how a value is in memory.
type width uint8

const (
	narrowRef width = iota // a reference of 4 bytes
	wideRef                // one of 8
	byte1
	byte2
	byte4
	byte8
)

func (v *VM) move(f Field) move {
	as := byte8
	switch {
	case f.Type == hprof.TypeObject && v.narrow:
		as = narrowRef
	case f.Type == hprof.TypeObject:
		as = wideRef
	default:
		switch f.Type.Size(idBytes) {
		case 1:
			as = byte1
		case 2:
			as = byte2
		case 4:
			as = byte4
		}
	}
	return move{f.Offset, as}
}

// fields sets p to the fields of an instance, whose bytes are all in data.
func (e *encoder) fields(p []byte, c *Class, data []byte) {
	be, base, shift := binary.BigEndian, e.h.VM.base, e.h.VM.shift
	for _, m := range c.copies {
		b := data[m.at:]
		switch m.as {
		case narrowRef:
			addr := uint64(0)
			if n := le32(b); n != 0 {
				addr = e.refTo(base + uint64(n)<<shift)
			}
			be.PutUint64(p, addr)
			p = p[8:]
		case wideRef:
			be.PutUint64(p, e.refTo(le64(b)))
			p = p[8:]
		case byte1:
			p[0] = b[0]
			p = p[1:]
		case byte2:
			be.PutUint16(p, le16(b))
			p = p[2:]
		case byte4:
			be.PutUint32(p, le32(b))
			p = p[4:]
		default:
			be.PutUint64(p, le64(b))
			p = p[8:]
		}
	}
}

// plain appends the records of objects that follow each other as long as they are of plain classes and in memory that
// was read, up to length end. It returns the address of the next object.
func (e *encoder) plain(to []byte, end int, addr uint64) ([]byte, uint64) {
	h, be := e.h, binary.BigEndian
	for len(to) < end && addr < e.top {
		b := e.win
		if off := addr - e.base; off < uint64(len(b)) && uint64(len(b))-off >= firstBytes {
			b = b[off:]
		} else if b = e.at(addr, firstBytes); uint64(len(b)) < h.VM.least {
			break
		}
		c := h.classOf(b, e.known)
		if c == nil || !c.plain || c.end > uint64(len(b)) {
			break
		}
		size := c.fixed
		if size == 0 {
			var n uint32
			if size, n = h.sizeOf(c, b); size == 0 || size > uint64(len(b)) || end-len(to) < objectsHead+int(n)*int(c.unit) {
				break
			}
			to = e.arrayHead(to, &object{addr: addr, class: c}, uint64(n))
			head := c.arrayHead()
			to = e.values(to, c.Element, b[head:head+uint64(n)*h.VM.size(c.Element)])
		} else {
			n := len(to) + instanceHead + int(c.size)
			if n > end {
				break
			}
			p := to[len(to):n]
			to = to[:n]
			p[0] = hprof.SubInstance
			be.PutUint64(p[1:], addr)
			be.PutUint32(p[9:], emptyTrace)
			be.PutUint64(p[13:], c.Mirror)
			be.PutUint32(p[21:], c.size)
			e.fields(p[instanceHead:], c, b)
		}
		if addr += size; !h.Begins(addr) {
			addr = h.next(addr)
		}
	}
	return to, addr
}
