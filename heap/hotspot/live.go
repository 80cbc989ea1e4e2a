package hotspot

import (
	"context"
	"fmt"
	"math/bits"
	"strings"

	"github.com/sliverprof/sliver/heap/hprof"
)

const (
	markWindow = 4 << 20 // of the heap that marking reads at once
	markSingly = 128     // a window with at most this many waiting objects is not read whole
)

// Live leaves only the objects that are reachable from roots, as GC.heap_dump without -all
// does after its collection. Soft references hold their objects, as HotSpot keeps those that were used
// recently; weak and phantom references do not; objects with a finalizer stay until it has run. It is called after
// Scan, and marks in memory of 1/32 of the heap.
func (h *Heap) Live(ctx context.Context, stacks []Stack) error {
	m := &marker{h: h, now: -1, one: make([]byte, firstBytes), waits: make([]int32, (h.high-h.low)/markWindow+1), byLoader: map[uint64][]*Class{},
		byMirror: map[uint64]*Class{}, pending: make([][]uint64, len(h.bits)), done: make([][]uint64, len(h.bits)),
		loaders: map[*Class]bool{}, opened: map[uint64]bool{}}
	m.classes()
	// Threads and HotSpot itself hold these.
	if err := h.roots(ctx, stacks, func(r Root) { m.add(r.Object) }); err != nil {
		return err
	}
	for _, s := range h.VM.storages() {
		if !strings.Contains(s.name, "Weak") && !strings.Contains(s.name, "weak") {
			h.storage(s.addr, func(r Root) { m.add(r.Object) })
		}
	}
	m.loader(0)
	if err := m.drain(ctx); err != nil {
		return err
	}
	for _, o := range m.final { // they are kept for their finalizer
		m.add(o)
	}
	if err := m.drain(ctx); err != nil {
		return err
	}
	h.bits, h.live = m.done, true
	return h.recount(ctx)
}

// recount counts and places the objects that are marked.
func (h *Heap) recount(ctx context.Context) error {
	for _, c := range h.Classes {
		c.Count, c.Bytes = 0, 0
	}
	h.Objects, h.Bytes, h.placed = 0, 0, placed{blocks: newLayout()}
	e := encoder{h: h, known: &h.cache, top: h.high}
	for addr, n := h.next(h.low), 0; addr < h.high; addr, n = h.next(addr+8), n+1 {
		if n&0xffff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		o, err := e.object(addr)
		if err != nil {
			return err
		}
		h.count(o.class, 1, o.size)
		h.place(h, &o)
	}
	h.blocks.end()
	return nil
}

// marker finds the reachable objects. It processes the heap by windows, so that the objects of a
// window share a read.
type marker struct {
	h     *Heap
	done  [][]uint64 // as Heap.bits: reached
	final []uint64   // referents of finalizers

	pending [][]uint64 // as Heap.bits: reached, not visited
	waits   []int32    // by window: how many of it
	queue   []int32    // windows that have some
	now     int        // the window that is being visited, -1: none
	stack   []uint64   // objects of it
	low     uint64     // address of win
	win     []byte     // the window, if it was read
	buf     []byte     // of win
	one     []byte     // an object that is read alone

	byLoader map[uint64][]*Class // classes that live as long as their loader
	byMirror map[uint64]*Class
	opened   map[uint64]bool // loaders whose classes were added
	loaders  map[*Class]bool // classes derived from java.lang.ClassLoader
}

func (m *marker) classes() {
	for _, c := range m.h.Classes {
		if c.Mirror == 0 {
			continue
		}
		m.byMirror[c.Mirror] = c
		if !c.Hidden {
			m.byLoader[c.Loader] = append(m.byLoader[c.Loader], c)
		}
		for k, n := c, 0; k != nil && n < maxSupers; k, n = k.Super, n+1 {
			switch k.Name {
			case "java/lang/ClassLoader":
				m.loaders[c] = true
			case "java/lang/ref/SoftReference":
				c.weak = holdsReferent
			case "java/lang/ref/FinalReference":
				c.weak = finalizesReferent
			case "java/lang/ref/Reference":
				if c.weak == 0 {
					c.weak = dropsReferent
				}
			}
		}
	}
}

// How a class of references holds its referent.
const (
	notReference = iota
	holdsReferent
	finalizesReferent
	dropsReferent
)

func (m *marker) bit(addr uint64) (chunk, word, mask uint64) {
	off := addr - m.h.low
	return off / chunkBytes, off % chunkBytes / 512, 1 << (off % chunkBytes / 8 % 64)
}

// add marks an object, to be visited.
func (m *marker) add(addr uint64) {
	if !m.h.Begins(addr) {
		return
	}
	c, w, mask := m.bit(addr)
	if m.done[c] == nil {
		m.done[c], m.pending[c] = make([]uint64, chunkBytes/512), make([]uint64, chunkBytes/512)
	}
	if m.done[c][w]&mask != 0 {
		return
	}
	m.done[c][w] |= mask
	i := int((addr - m.h.low) / markWindow)
	if i == m.now && len(m.stack) < markWindow/16 {
		m.stack = append(m.stack, addr)
		return
	}
	m.pending[c][w] |= mask
	if m.waits[i]++; m.waits[i] == 1 {
		m.queue = append(m.queue, int32(i))
	}
}

// loader adds what lives as long as a class loader: its classes.
func (m *marker) loader(addr uint64) {
	if m.opened[addr] {
		return
	}
	m.opened[addr] = true
	for _, c := range m.byLoader[addr] {
		m.add(c.Mirror)
	}
}

// drain visits all objects that wait.
func (m *marker) drain(ctx context.Context) error {
	for m.now = -1; len(m.queue) > 0; m.now = -1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		i := m.queue[0]
		m.queue = m.queue[1:]
		low := m.h.low + uint64(i)*markWindow
		high := min(low+markWindow, m.h.high)
		m.now = int(i)
		singly := int(m.waits[i])
		m.waits[i] = 0
		m.low, m.win = low, nil
		m.take(low, high)
		for n := 0; len(m.stack) > 0; n++ {
			if n&0xffff == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if m.win == nil && (singly > markSingly || n == markSingly) {
				m.read(high)
			}
			addr := m.stack[len(m.stack)-1]
			m.stack = m.stack[:len(m.stack)-1]
			if err := m.visit(addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads the window up to address high.
func (m *marker) read(high uint64) {
	if m.buf == nil {
		m.buf = make([]byte, markWindow)
	}
	n, _ := m.h.VM.mem.src.ReadAt(m.buf[:high-m.low], int64(m.low))
	m.win = m.buf[:n]
}

// object reads an object: from the window if it is whole there, else alone.
func (m *marker) object(addr uint64) (o object, err error) {
	h := m.h
	if m.win != nil && addr >= m.low && addr-m.low < uint64(len(m.win)) {
		b := m.win[addr-m.low:]
		if o, ok := m.objectOf(addr, b[:min(len(b), wholeBytes)]); ok {
			return o, nil
		}
	}
	n, _ := h.VM.mem.src.ReadAt(m.one[:min(firstBytes, h.high-addr)], int64(addr))
	o, ok := m.objectOf(addr, m.one[:n])
	if ok {
		return o, nil
	}
	if o.class == nil || o.size == 0 || o.size > h.high-addr {
		return o, fmt.Errorf("object at %#x: %w", addr, errChanged)
	}
	whole := min(o.size, wholeBytes)
	if uint64(len(m.one)) < whole {
		m.one = make([]byte, whole)
	}
	if n, err = h.VM.mem.src.ReadAt(m.one[:whole], int64(addr)); uint64(n) < whole {
		return o, fmt.Errorf("object at %#x: %w", addr, err)
	}
	o.data = m.one[:whole]
	return o, nil
}

// objectOf returns the object that b begins with. ok: b has all of it that a visit needs.
func (m *marker) objectOf(addr uint64, b []byte) (o object, ok bool) {
	if uint64(len(b)) < m.h.VM.least {
		return o, false
	}
	if o.class = m.h.classOf(b, &m.h.cache); o.class == nil {
		return o, false
	}
	o.addr = addr
	if o.size, o.length = m.h.sizeOf(o.class, b); o.size == 0 {
		return o, false
	}
	o.data = b[:min(o.size, uint64(len(b)))]
	return o, o.size <= uint64(len(b)) || len(b) == wholeBytes || o.class.Kind == KindPrimitives
}

// take moves the objects of a window that wait to the stack.
func (m *marker) take(low, high uint64) {
	for addr := low; addr < high; addr += 512 {
		c, w, _ := m.bit(addr)
		p := m.pending[c]
		if p == nil {
			return // a window is in one chunk
		}
		for word := p[w]; word != 0; word &= word - 1 {
			m.stack = append(m.stack, addr+8*uint64(bits.TrailingZeros64(word)))
		}
		p[w] = 0
	}
}

// visit adds what an object refers to.
func (m *marker) visit(addr uint64) error {
	o, err := m.object(addr)
	if err != nil {
		return err
	}
	c := o.class
	m.add(c.Mirror)
	switch c.Kind {
	case KindPrimitives:
		return nil
	case KindObjects:
		return m.elements(&o)
	case KindMirror:
		m.mirror(&o)
		return nil
	case KindChunk:
		m.h.chunk(&o, func(at, _ uint64) { m.add(at) })
	}
	m.fields(&o)
	if m.loaders[c] {
		m.loader(addr)
	}
	return nil
}

// fields adds what the fields of an instance refer to.
func (m *marker) fields(o *object) {
	v, c := m.h.VM, o.class
	size := v.size(hprof.TypeObject)
	for i := range c.all {
		f := &c.all[i]
		if f.Type != hprof.TypeObject || uint64(f.Offset)+size > uint64(len(o.data)) {
			continue
		}
		to := v.decode(o.data[f.Offset:])
		if c.weak > holdsReferent && f.Name == "referent" {
			if c.weak == finalizesReferent && to != 0 {
				m.final = append(m.final, to)
			}
			continue
		}
		m.add(to)
	}
}

// mirror adds what a java.lang.Class refers to: all of its words that are references, which
// includes statics and the fields that HotSpot adds; and what its class needs.
func (m *marker) mirror(o *object) {
	size := m.h.VM.size(hprof.TypeObject)
	for b := o.data; uint64(len(b)) >= size; b = b[size:] {
		m.add(m.h.VM.decode(b))
	}
	c := m.byMirror[o.addr]
	if c == nil {
		return
	}
	m.add(c.Loader)
	m.add(c.Resolved)
	if !c.Hidden {
		m.loader(c.Loader)
	}
	if c.Super != nil {
		m.add(c.Super.Mirror)
	}
}

// elements adds the elements of an array, of which o has the beginning.
func (m *marker) elements(o *object) error {
	size := m.h.VM.size(hprof.TypeObject)
	head := o.class.arrayHead()
	whole := head + uint64(o.length)*size
	for b := o.data[min(head, uint64(len(o.data))):min(whole, uint64(len(o.data)))]; uint64(len(b)) >= size; b = b[size:] {
		m.add(m.h.VM.decode(b))
	}
	var buf []byte
	for at := uint64(len(o.data)); at < whole; { // of a large one, from an aligned offset on
		if buf == nil {
			buf = make([]byte, min(wholeBytes, whole-at))
		}
		n := min(uint64(len(buf)), whole-at)
		if _, err := m.h.VM.mem.src.ReadAt(buf[:n], int64(o.addr+at)); err != nil {
			return fmt.Errorf("array at %#x: %w", o.addr, err)
		}
		for b := buf[:n]; uint64(len(b)) >= size; b = b[size:] {
			m.add(m.h.VM.decode(b))
		}
		at += n
	}
	return nil
}
