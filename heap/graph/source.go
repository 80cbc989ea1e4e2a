package graph

import (
	"io"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/tally"
)

// Memory is a dump that is encoded where it is read, from objects that are at hand in another form: package hotspot
// has one. A graph reads these objects without that. It has one heap dump. Several goroutines may read
// parts at a time.
type Memory interface {
	io.ReaderAt
	// Parts returns the offsets of the parts of the dump that have instances and arrays alone, and where the last one
	// ends. In front of the first one are names, classes and roots.
	Parts() []int64
	// Counts are of the objects of the parts. They are not changed.
	Counts() *tally.Counter
	// Starts yields where objects and classes begin, upwards: for each bit i of bits one with the ID addr + 8i.
	Starts(yield func(addr, bits uint64) bool)
	// Part reads the objects of a part, by its number from 0.
	Part(part int) hprof.ObjectReader
	// ReadRecord reads bytes of the sub-record of an instance or array, from an offset in it on, as ReadAt does. One
	// goroutine at a time calls it.
	ReadRecord(b []byte, id uint64, from int64) (int, error)
}

// objects returns the objects of a chunk. It uses f for those of a file.
func (g *Graph) objects(f *fileReader, c chunk) hprof.ObjectReader {
	if c.part > 0 {
		return g.memory.Part(c.part - 1)
	}
	f.classes, f.item = g.classes, nil
	f.r.Reset(io.NewSectionReader(g.file, c.offset, c.bytes), g.header, c.offset, c.bytes, c.heap)
	return f
}

// readRecord reads bytes of an object's sub-record, from the offset at of the dump on.
func (g *Graph) readRecord(o Object, b []byte, at int64) (int, error) {
	if begin := g.offset(o); g.memory != nil && begin >= g.first {
		return g.memory.ReadRecord(b, g.ID(o), at-begin)
	}
	return g.cache.ReadAt(b, at)
}

// fileReader is the hprof.ObjectReader of a file.
type fileReader struct {
	r       hprof.Reader
	classes *classTable
	item    *hprof.Item
	refs    []uint64
	carry   []byte // of an element that is in two chunks
	lastID  uint64
	last    *Class
}

func (f *fileReader) Next() (*hprof.Item, error) {
	for {
		it, err := f.r.Next()
		if err != nil {
			return nil, err
		}
		if isObject(it.Tag) {
			f.item, f.carry = it, f.carry[:0]
			return it, nil
		}
	}
}

func (f *fileReader) Chunk() ([]byte, error) { return f.r.Chunk() }

func (f *fileReader) Refs() ([]uint64, error) {
	switch f.item.Tag {
	case hprof.SubInstance:
		return f.fields()
	case hprof.SubObjectArray:
		return f.elements()
	}
	return nil, io.EOF
}

// fields returns the references of an instance.
func (f *fileReader) fields() ([]uint64, error) {
	if f.last == nil || f.lastID != f.item.Ref {
		f.lastID, f.last = f.item.Ref, f.classes.find(f.item.Ref)
	}
	f.refs = f.refs[:0]
	if f.last == nil || len(f.last.refs) == 0 {
		return f.refs, nil
	}
	body, err := f.r.Bytes()
	if err != nil {
		return nil, err
	}
	ids := f.classes.idSize
	for _, at := range f.last.refs {
		off := int(at &^ referent)
		if off+ids > len(body) {
			break // shorter than its class says
		}
		f.refs = append(f.refs, hprof.ID(body[off:], ids))
	}
	return f.refs, nil
}

// elements returns some elements of an array.
func (f *fileReader) elements() ([]uint64, error) {
	ids := f.classes.idSize
	f.refs = f.refs[:0]
	for len(f.refs) == 0 {
		b, err := f.r.Chunk()
		if err != nil {
			return nil, err
		}
		if len(f.carry) > 0 {
			n := min(ids-len(f.carry), len(b))
			f.carry = append(f.carry, b[:n]...)
			if b = b[n:]; len(f.carry) < ids {
				continue
			}
			f.refs = append(f.refs, hprof.ID(f.carry, ids))
			f.carry = f.carry[:0]
		}
		for ; len(b) >= ids; b = b[ids:] {
			f.refs = append(f.refs, hprof.ID(b, ids))
		}
		f.carry = append(f.carry, b...)
	}
	return f.refs, nil
}
