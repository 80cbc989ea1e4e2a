package hotspot

import (
	"sort"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/tally"
)

const (
	segmentBytes = 1 << 20  // from which on a segment ends
	blockBytes   = 64 << 10 // from which on a block ends
	idBytes      = 8
	headBytes    = 9 // of a record
	// maxArray bounds the bytes of an array: a segment's length has 32 bits.
	maxArray = 1<<32 - 1<<10
)

// Bytes before the content of an object's record: tag, ID, trace and what its kind adds.
const (
	instanceHead   = 1 + idBytes + 4 + idBytes + 4
	objectsHead    = 1 + idBytes + 4 + 4 + idBytes
	primitivesHead = 1 + idBytes + 4 + 4 + 1
)

// block is a part of the dump that can be written by itself: the records of some objects that follow each
// other in the heap.
type block struct {
	addr    uint64 // of the first object
	off     int64  // in the part of the dump that has objects
	segment uint32 // bytes of the segment whose head the block begins with; 0: it continues one
	large   bool   // one array in a segment of its own, whose elements are read in pieces
}

// layout says where a dump has the objects: the sizes of records are known before they are written.
type layout struct {
	blocks    []block
	size      int64  // of all of them
	objects   uint64 // that have a record
	truncated uint64 // arrays whose elements are cut
	first     int    // block with which the open segment begins, -1: none is open
	until     int64  // size up to which the next record goes into the last block
}

func newLayout() layout { return layout{first: -1} }

// add appends the record of an object, of n bytes.
func (l *layout) add(addr uint64, n int64, large bool) {
	if large || l.size >= l.until {
		l.begin(addr, n, large)
		return
	}
	l.objects++
	l.size += n
}

// begin appends a record with which a block begins.
func (l *layout) begin(addr uint64, n int64, large bool) {
	l.objects++
	if large {
		l.end()
		l.blocks = append(l.blocks, block{addr: addr, off: l.size, segment: uint32(n), large: true})
		l.size += headBytes + n
		return
	}
	if l.first >= 0 && l.size-l.blocks[l.first].off >= segmentBytes {
		l.end()
	}
	l.blocks = append(l.blocks, block{addr: addr, off: l.size})
	l.until = l.size + blockBytes
	if l.first < 0 {
		l.first = len(l.blocks) - 1
		l.size += headBytes
	}
	l.until = min(l.until, l.blocks[l.first].off+segmentBytes)
	l.size += n
}

// end ends the open segment.
func (l *layout) end() {
	if l.first >= 0 {
		l.blocks[l.first].segment = uint32(l.size - l.blocks[l.first].off - headBytes)
		l.first, l.until = -1, 0
	}
}

// find returns the number of the block that has offset off.
func (l *layout) find(off int64) int {
	return sort.Search(len(l.blocks), func(i int) bool { return l.blocks[i].off > off }) - 1
}

// stop returns the offset where a block ends.
func (l *layout) stop(i int) int64 {
	if i+1 < len(l.blocks) {
		return l.blocks[i+1].off
	}
	return l.size
}

// join adds a layout that is ended behind this one, which is ended too.
func (l *layout) join(x *layout) {
	for _, b := range x.blocks {
		b.off += l.size
		l.blocks = append(l.blocks, b)
	}
	l.size += x.size
	l.objects += x.objects
	l.truncated += x.truncated
}

// placed are objects that have a place in the dump.
type placed struct {
	blocks  layout
	counts  tally.Counter
	chunks  []uint64 // objects with frames of virtual threads
	virtual []uint64 // virtual threads
}

// reset forgets all objects, and keeps the memory.
func (p *placed) reset() {
	p.blocks = layout{blocks: p.blocks.blocks[:0], first: -1}
	p.counts.Reset()
	p.chunks, p.virtual = p.chunks[:0], p.virtual[:0]
}

// join adds the objects that follow.
func (p *placed) join(x *placed) {
	p.blocks.join(&x.blocks)
	p.counts.Join(&x.counts)
	p.chunks = append(p.chunks, x.chunks...)
	p.virtual = append(p.virtual, x.virtual...)
}

// place gives an object that is marked its place in the dump.
func (p *placed) place(h *Heap, o *object) {
	c := o.class
	switch c.Kind {
	case KindObjects, KindPrimitives:
		n, out := h.elements(c, o.length)
		if n < uint64(o.length) {
			p.blocks.truncated++
		}
		p.counts.AddTo(p.number(c), o.addr, uint32(n))
		p.blocks.add(o.addr, c.recordHead()+int64(out), h.large(o))
		return
	case KindMirror:
		if h.isMirror(o) {
			return // written as a class
		}
	case KindChunk:
		p.chunks = append(p.chunks, o.addr)
	}
	if c == h.virtualClass {
		p.virtual = append(p.virtual, o.addr)
	}
	p.counts.AddTo(p.number(c), o.addr, c.size)
	p.blocks.add(o.addr, instanceHead+int64(c.size), false)
}

// number returns the number of a class's tally.
func (p *placed) number(c *Class) int {
	switch c.Kind {
	case KindObjects:
		return p.counts.Number(tally.ObjectArray, c.Mirror)
	case KindPrimitives:
		return p.counts.Number(tally.PrimitiveArray, uint64(c.Element))
	}
	return p.counts.Number(tally.Instance, c.Mirror)
}

// recordHead is the bytes before the content of an object's record.
func (c *Class) recordHead() int64 {
	switch c.Kind {
	case KindObjects:
		return objectsHead
	case KindPrimitives:
		return primitivesHead
	}
	return instanceHead
}

// elements returns how many elements of an array a dump has, and their bytes there.
func (h *Heap) elements(c *Class, length uint32) (n, out uint64) {
	n = uint64(length)
	each := uint64(c.unit)
	if n*each > maxArray {
		n = maxArray / each
	}
	return n, n * each
}

// large reports whether an array is read in pieces.
func (h *Heap) large(o *object) bool { return o.size > wholeBytes }

// size is the bytes of a value in the heap.
func (v *VM) size(t hprof.Type) uint64 {
	if t != hprof.TypeObject {
		return uint64(t.Size(idBytes))
	}
	if v.narrow {
		return 4
	}
	return 8
}
