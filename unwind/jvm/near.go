package jvm

import (
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
)

// Each read of another process costs some µs, in which what is read may change and ours may
// lose the CPU. So what will be asked of an object is had by one read, and what is to be
// looked at again by one for all of it.
const (
	// maxLinks bounds the references of one look that are looked at again.
	maxLinks = 64
	// nearObjects and nearBytes are how many objects, and how much of each, are kept: what
	// is asked of a thread or of a lock are several of its fields.
	nearObjects = 6
	nearBytes   = 128
	// headBytes are those of an object in which its class is.
	headBytes = 16
)

// near is memory of the target as it was at one moment, so that its words need no reads of
// their own.
type near struct {
	objects [nearObjects]object
	met     int
	spans   []stack.Span // read ahead
	b       []byte       // of the spans, one after the other, as far as they could be read
}

// object is the beginning of one.
type object struct {
	addr uint64
	n    int
	b    [nearBytes]byte
}

// link is a reference that was followed to an object.
type link struct {
	cell, to uint64 // where it is, and the object
	from     uint64 // where the cell's address is; 0: the cell is a field of an object
}

// meet has the beginning of the object at addr.
func (v *look) meet(addr uint64) {
	if addr == 0 || addr > 1<<63-1 || v.kept(addr, 8) != nil {
		return
	}
	m := &v.near.objects[v.near.met%nearObjects]
	v.near.met++
	n, _ := v.r.mem.ReadAt(m.b[:], int64(addr)) // less at the heap's end: then word by word
	m.addr, m.n = addr, max(n, 0)
}

// ahead has all of the spans by one read, where the memory can do that.
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

// anew has what follows read from memory again.
func (v *look) anew() {
	for i := range v.near.objects {
		v.near.objects[i].n = 0
	}
	v.near.spans, v.near.b = nil, nil
}

// again has what tells whether references still lead to the same objects, as it is now.
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

// linked notes that a reference was followed, and has the object that it leads to.
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

// kept is what is had of n bytes at addr; nil: nothing.
func (v *look) kept(addr, n uint64) []byte {
	for i := range v.near.objects {
		if m := &v.near.objects[i]; addr >= m.addr && addr-m.addr+n <= uint64(m.n) {
			return m.b[addr-m.addr:][:n]
		}
	}
	at := uint64(0)
	for _, s := range v.near.spans {
		if addr >= s.Addr && addr-s.Addr+n <= uint64(s.Len) {
			if at += addr - s.Addr; at+n <= uint64(len(v.near.b)) {
				return v.near.b[at:][:n]
			}
			return nil
		}
		at += uint64(s.Len)
	}
	return nil
}
