package hotspot

import (
	"sort"

	"github.com/sliverprof/sliver/heap/hprof"
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
}

func newLayout() layout { return layout{first: -1} }

// add appends the record of an object, of n bytes.
func (l *layout) add(addr uint64, n int64, large bool) {
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
	switch {
	case l.first < 0:
		l.first = len(l.blocks)
		l.blocks = append(l.blocks, block{addr: addr, off: l.size})
		l.size += headBytes
	case l.size-l.blocks[len(l.blocks)-1].off >= blockBytes:
		l.blocks = append(l.blocks, block{addr: addr, off: l.size})
	}
	l.size += n
}

// end ends the open segment.
func (l *layout) end() {
	if l.first >= 0 {
		l.blocks[l.first].segment = uint32(l.size - l.blocks[l.first].off - headBytes)
		l.first = -1
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

// place gives an object that is marked its place in the dump.
func (h *Heap) place(o *object) {
	c := o.class
	switch c.Kind {
	case KindObjects, KindPrimitives:
		n, out := h.elements(c, o.length)
		if n < uint64(o.length) {
			h.blocks.truncated++
		}
		head := int64(primitivesHead)
		if c.Kind == KindObjects {
			head = objectsHead
		}
		h.blocks.add(o.addr, head+int64(out), h.large(o))
		return
	case KindMirror:
		if h.isMirror(o) {
			return // written as a class
		}
	case KindChunk:
		h.chunks = append(h.chunks, o.addr)
	}
	if c == h.virtualClass {
		h.virtual = append(h.virtual, o.addr)
	}
	h.blocks.add(o.addr, instanceHead+int64(c.size), false)
}

// elements returns how many elements of an array a dump has, and their bytes there.
func (h *Heap) elements(c *Class, length uint32) (n, out uint64) {
	n = uint64(length)
	each := uint64(c.Element.Size(idBytes))
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
