package jvm

import (
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
)

// Each read of another process takes a few µs. In that time the data may change, and the tracer may
// lose the CPU. So one read fetches all the fields of an object that are needed, and one read
// repeats everything that must be checked again.
const (
	// maxLinks bounds the references per look that are checked again.
	maxLinks = 64
	// nearObjects and nearBytes bound the cached objects and the bytes of each. Callers read several
	// fields of a thread or a lock.
	nearObjects = 6
	nearBytes   = 128
	// headBytes is the length of an object's head, which holds its class.
	headBytes = 16
)

// near caches target memory as of one moment, so that its words need no separate reads.
type near struct {
	objects [nearObjects]object
	met     int
	spans   []stack.Span // read ahead
	b       []byte       // content of the spans, packed, as far as it could be read
}

// object is the beginning of an object.
type object struct {
	addr uint64
	n    int
	b    [nearBytes]byte
}

// link is a reference that was followed to an object.
type link struct {
	cell, to uint64 // its address, and the object
	from     uint64 // address of the cell's address; 0: the cell is a field of an object
}

// meet caches the beginning of the object at addr.
func (v *look) meet(addr uint64) {
	if addr == 0 || addr > 1<<63-1 || v.kept(addr, 8) != nil {
		return
	}
	m := &v.near.objects[v.near.met%nearObjects]
	v.near.met++
	n, _ := v.r.mem.ReadAt(m.b[:], int64(addr)) // shorter at the heap's end: then word by word
	m.addr, m.n = addr, max(n, 0)
}

// ahead reads all spans at once, if the memory supports it.
func (v *look) ahead(spans []stack.Span) {
	many, ok := v.r.mem.(meter.SpanReader)
	if !ok || len(spans) == 0 {
		return
	}
	size := 0
	for _, s := range spans {
		if s.Addr == 0 || s.Addr > 1<<63-1 {
			return
		}
		size += s.Len
	}
	v.near.spans, v.near.b = spans, make([]byte, size)
	v.near.b = v.near.b[:many.ReadSpans(spans, v.near.b)]
}

// Drop the cache, so that later reads use memory.
func (v *look) anew() {
	for i := range v.near.objects {
		v.near.objects[i].n = 0
	}
	v.near.spans, v.near.b = nil, nil
}

// again reads the current memory that shows whether references still lead to the same objects.
func (v *look) again(links ...link) {
	v.anew()
	spans := make([]stack.Span, 0, 3*len(links))
	cell := 8
	if v.o.narrow {
		cell = 4
	}
	for _, l := range links {
		if l.from != 0 {
			spans = append(spans, stack.Span{Addr: l.from, Len: 8}, stack.Span{Addr: l.cell, Len: 8})
		} else {
			spans = append(spans, stack.Span{Addr: l.cell, Len: cell})
		}
		if l.to != 0 {
			spans = append(spans, stack.Span{Addr: l.to, Len: headBytes})
		}
	}
	v.ahead(spans)
}

// lead reports whether references lead to the same objects as when they were followed.
func (v *look) lead(links []link) bool {
	if len(links) == 0 {
		return true
	}
	w := look{r: v.r, o: v.o, ep: v.ep}
	w.again(links...)
	for _, l := range links {
		var to uint64
		if l.from != 0 {
			to = w.handle(l.from)
		} else {
			to = w.ref(l.cell)
		}
		if w.err != nil || to != l.to {
			return false
		}
	}
	return true
}

// linked records a followed reference and caches the object that it leads to.
func (v *look) linked(l link) {
	if v.err != nil {
		return
	}
	v.meet(l.to)
	if !v.o.gc.forwards || slices.Contains(v.links, l) {
		return
	}
	if len(v.links) >= maxLinks {
		v.err = fmt.Errorf("more than %d references", maxLinks)
		return
	}
	v.links = append(v.links, l)
}

// within returns where n bytes at addr are in size bytes at begin, if they are. The target chooses addr.
func within(addr, n, begin, size uint64) (from uint64, ok bool) {
	from = addr - begin
	return from, n <= size && from <= size-n
}

// kept returns the cached n bytes at addr, or nil.
func (v *look) kept(addr, n uint64) []byte {
	for i := range v.near.objects {
		m := &v.near.objects[i]
		if from, ok := within(addr, n, m.addr, uint64(m.n)); ok {
			return m.b[from:][:n]
		}
	}
	at := uint64(0)
	for _, s := range v.near.spans {
		if from, ok := within(addr, n, s.Addr, uint64(s.Len)); ok {
			if at += from; at+n <= uint64(len(v.near.b)) {
				return v.near.b[at:][:n]
			}
			return nil
		}
		at += uint64(s.Len)
	}
	return nil
}
