package hotspot

import (
	"fmt"
	"io"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/tally"
)

const (
	partBytes    = 2 << 20   // of the dump from which on a part ends
	elementBytes = 128 << 10 // of a large array that are read at once
)

// makeParts divides the blocks into parts.
func (d *Dump) makeParts() {
	l := &d.h.blocks
	end := int64(-partBytes)
	for i := range l.blocks {
		if off := l.blocks[i].off; off-end >= partBytes {
			d.parts, end = append(d.parts, i), off
		}
	}
	d.parts = append(d.parts, len(l.blocks))
}

// Parts returns the offsets of the parts of the dump that have instances and arrays alone, and where the last one ends.
// In front of the first one are names, classes and roots.
func (d *Dump) Parts() []int64 {
	all := make([]int64, len(d.parts))
	for k, i := range d.parts {
		all[k] = int64(len(d.head)) + d.h.blocks.size
		if i < len(d.h.blocks.blocks) {
			all[k] = int64(len(d.head)) + d.h.blocks.blocks[i].off
		}
	}
	return all
}

// Counts are of the instances and arrays of the dump. They are not changed until Live is called.
func (d *Dump) Counts() *tally.Counter { return &d.h.counts }

// Starts yields where objects and classes of the dump begin, upwards: for each bit i of bits one at addr + 8i.
func (d *Dump) Starts(yield func(addr, bits uint64) bool) {
	h := d.h
	for i, c := range h.bits {
		for k, word := range c {
			if word != 0 && !yield(h.low+uint64(i)*chunkBytes+512*uint64(k), word) {
				return
			}
		}
	}
}

// Part reads the objects of a part, by its number from 0, without encoding them. Several goroutines may
// read a part each.
func (d *Dump) Part(part int) hprof.ObjectReader {
	r := &objectReader{d: d, e: d.encoders.Get().(*encoder), block: d.parts[part] - 1, end: d.parts[part+1]}
	r.e.win, r.e.top = nil, d.h.high
	if blocks := d.h.blocks.blocks; r.end < len(blocks) {
		r.e.top = blocks[r.end].addr
	}
	return r
}

// objectReader reads the objects of some blocks of a dump.
type objectReader struct {
	d     *Dump
	e     *encoder
	block int    // its number
	end   int    // number of the block behind the last one
	stop  int64  // offset where the block ends
	off   int64  // of the next record
	at    uint64 // address of the next object
	top   uint64 // of the next block
	item  hprof.Item
	o     object // data: not all of it
	place uint64 // number of the element that Refs or Chunk reads next
	ids   []uint64
}

// Next returns the next object.
func (r *objectReader) Next() (*hprof.Item, error) {
	h := r.d.h
	for {
		for r.off == r.stop {
			if !r.enter() {
				return nil, io.EOF
			}
		}
		if r.at >= r.top {
			return nil, fmt.Errorf("objects before %#x: %w", r.top, errChanged)
		}
		var err error
		if r.o, err = r.e.begin(r.at); err != nil {
			return nil, err
		}
		r.at = h.next(r.at + r.o.size)
		if r.o.class.Kind == KindMirror && h.isMirror(&r.o) {
			continue // the dump has it as a class
		}
		n := r.describe()
		if r.off += n; r.off > r.stop {
			return nil, fmt.Errorf("objects before %#x: %w", r.top, errChanged)
		}
		return &r.item, nil
	}
}

// enter begins the next block; false: there is none.
func (r *objectReader) enter() bool {
	if r.e == nil {
		return false
	}
	r.leave()
	l := &r.d.h.blocks
	if r.block++; r.block >= r.end {
		r.d.encoders.Put(r.e)
		r.e = nil
		return false
	}
	head, b := int64(len(r.d.head)), &l.blocks[r.block]
	r.at, r.off, r.stop, r.top = b.addr, head+b.off, head+l.stop(r.block), r.d.h.high
	if b.segment != 0 {
		r.off += headBytes
	}
	if r.block+1 < len(l.blocks) {
		r.top = l.blocks[r.block+1].addr
	}
	return true
}

// leave notes how many references to no object were read in the block.
func (r *objectReader) leave() {
	if r.stop > 0 {
		r.d.lose(r.block, r.e.lost)
	}
	r.e.lost = 0
}

// describe sets item to the record of the object, and returns the bytes of the record.
func (r *objectReader) describe() int64 {
	c := r.o.class
	r.item = hprof.Item{Kind: hprof.KindSub, Offset: r.off, ID: r.o.addr, Trace: emptyTrace}
	r.place = 0
	if c.Kind != KindObjects && c.Kind != KindPrimitives {
		r.item.Tag, r.item.Ref, r.item.Count = hprof.SubInstance, c.Mirror, c.size
		return instanceHead + int64(c.size)
	}
	n, out := r.d.h.elements(c, r.o.length)
	r.item.Count, r.item.Type = uint32(n), c.Element
	if c.Kind == KindObjects {
		r.item.Tag, r.item.Ref = hprof.SubObjectArray, c.Mirror
		return objectsHead + int64(out)
	}
	r.item.Tag = hprof.SubPrimitiveArray
	return primitivesHead + int64(out)
}

// Refs returns the references of an instance, or of some elements of an array.
func (r *objectReader) Refs() ([]uint64, error) {
	r.ids = r.ids[:0]
	size := r.d.h.VM.size(hprof.TypeObject)
	switch r.item.Tag {
	case hprof.SubInstance:
		c := r.o.class
		if len(c.refs) == 0 {
			return r.ids, nil
		}
		if err := r.e.load(&r.o); err != nil {
			return nil, err
		}
		for _, at := range c.refs {
			id := uint64(0)
			if uint64(at)+size <= uint64(len(r.o.data)) {
				id = r.e.ref(r.o.data[at:])
			}
			r.ids = append(r.ids, id)
		}
		return r.ids, nil
	case hprof.SubObjectArray:
		b, err := r.elements(size)
		if err != nil {
			return nil, err
		}
		for ; uint64(len(b)) >= size; b = b[size:] {
			r.ids = append(r.ids, r.e.ref(b))
		}
		return r.ids, nil
	}
	return nil, io.EOF
}

// elements returns the memory of the next elements of an array, of size bytes each.
func (r *objectReader) elements(size uint64) ([]byte, error) {
	n := uint64(r.item.Count)
	if r.place == n {
		return nil, io.EOF
	}
	head, begin := r.o.class.arrayHead(), r.place
	if r.o.size <= wholeBytes {
		if err := r.e.load(&r.o); err != nil {
			return nil, err
		}
		r.place = n
		return r.o.data[head : head+n*size], nil
	}
	r.place = min(begin+elementBytes/size, n)
	return r.e.piece(r.o.addr+head+begin*size, (r.place-begin)*size)
}

// Chunk returns the fields of an instance, or some elements of an array.
func (r *objectReader) Chunk() ([]byte, error) {
	c := r.o.class
	if r.item.Tag != hprof.SubInstance {
		b, err := r.elements(r.d.h.VM.size(c.Element))
		if err != nil || c.Element.Size(idBytes) == 1 {
			return b, err
		}
		r.e.text = r.e.values(r.e.text[:0], c.Element, b)
		return r.e.text, nil
	}
	if r.place > 0 || c.size == 0 {
		return nil, io.EOF
	}
	r.place = 1
	if err := r.e.load(&r.o); err != nil {
		return nil, err
	}
	r.e.text = r.e.record(r.e.text[:0], &r.o)
	return r.e.text[instanceHead:], nil
}

// ReadRecord reads bytes of the record of an instance or array, from an offset in it on. One goroutine at a time
// calls it.
func (d *Dump) ReadRecord(p []byte, id uint64, from int64) (int, error) {
	h, e := d.h, d.single
	if id == d.recordID {
		return copy(p, d.record[min(from, int64(len(d.record))):]), nil
	}
	if !h.Begins(id) {
		return 0, fmt.Errorf("object at %#x: %w", id, errChanged)
	}
	if e == nil {
		e = &encoder{h: h, known: &cache{}}
		d.single, d.pages = e, newMemory(h.VM.mem.src)
		d.pages.most = fewPages
	}
	const most = 32 // bytes in which each class but two has its size
	b := d.start[:min(most, h.high-id)]
	if err := d.pages.read(b, id); err != nil {
		return 0, err
	}
	c := (*Class)(nil)
	if uint64(len(b)) >= h.VM.least {
		c = h.classOf(b, e.known)
	}
	if c != nil && (c.Kind == KindMirror || c.Kind == KindChunk) {
		b = d.start[:min(firstBytes, h.high-id)]
		if err := d.pages.read(b, id); err != nil {
			return 0, err
		}
	}
	o := object{addr: id, class: c}
	if c != nil {
		o.size, o.length = h.sizeOf(c, b)
	}
	if o.size == 0 || o.size > h.high-id {
		return 0, fmt.Errorf("object at %#x: %w", id, errChanged)
	}
	if c.layout < 0 {
		n, out := h.elements(c, o.length)
		e.text = e.arrayHead(e.text[:0], &o, n)
		whole := int64(len(e.text)) + int64(out)
		p = p[:max(min(int64(len(p)), whole-from), 0)]
		done := 0
		if from < int64(len(e.text)) {
			done = copy(p, e.text[from:])
		}
		if err := e.array(&o, n, p[done:], uint64(max(from-int64(len(e.text)), 0)), d.pages.read); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	n := min(o.size, wholeBytes)
	if uint64(len(e.buf)) < n {
		e.buf = make([]byte, max(n, firstBytes))
	}
	o.data = e.buf[:n]
	if err := d.pages.read(o.data, id); err != nil {
		return 0, err
	}
	d.record, d.recordID = e.record(d.record[:0], &o), id
	return copy(p, d.record[min(from, int64(len(d.record))):]), nil
}
