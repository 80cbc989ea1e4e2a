package hotspot

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

const (
	// wholeBytes bounds an object that a walk hands out whole; of a larger one it hands out
	// the beginning.
	wholeBytes = 1 << 20
	// chainLength is how many objects in a row make a place the beginning of an object.
	chainLength = 4
	cacheSize   = 1 << 12
	chunkBytes  = 64 << 20 // of the heap that share a piece of the bitmap
)

// Heap is the Java heap of a copy.
type Heap struct {
	VM      *VM
	Classes []*Class // by address

	// After Scan:
	Objects uint64 // without mirrors of classes, which a dump has as classes
	Bytes   uint64 // of them
	Skipped uint64 // bytes where no object could be found
	Gaps    uint64 // places of such bytes

	byAddr  map[uint64]*Class
	mirrors map[uint64]bool // of classes that are not loaded, which a dump does not have: references to them are null
	threads []thread
	tlabs   []buffer
	spans   []span
	low     uint64     // of the first span
	high    uint64     // of the last one
	bits    [][]uint64 // a bit for each 8 bytes from low on: an object begins there; by chunks of chunkBytes, nil without objects
	cache   cache
	placed
	traces *traces // see trace
	live   bool    // Live was called

	virtualClass            *Class
	mirrorSize, mirrorClass uint64 // offsets in a java.lang.Class of its size in words and of its Klass
	chunkSize, chunkSP      uint64 // offsets in a StackChunk
}

// cache maps addresses to the classes used last.
type cache [cacheSize]cached

type cached struct {
	key uint64
	c   *Class
}

// Open reads the classes, threads and parts of the heap of a copy.
func Open(v *VM) (*Heap, error) {
	h := &Heap{VM: v, mirrors: map[uint64]bool{}}
	var err error
	if h.byAddr, err = v.classes(); err != nil {
		return nil, err
	}
	for _, c := range h.byAddr {
		h.Classes = append(h.Classes, c)
		if c.Name == "java/lang/VirtualThread" && c.Loader == 0 {
			h.virtualClass = c
		}
		if c.Kind == KindChunk {
			h.chunkSize, h.chunkSP = offsetOf(c, "size"), offsetOf(c, "sp")
			if h.chunkSize == 0 || h.chunkSP == 0 {
				return nil, unsupported("jdk.internal.vm.StackChunk has no field size or sp")
			}
		}
	}
	slices.SortFunc(h.Classes, func(a, b *Class) int { return cmp.Compare(a.Addr, b.Addr) })
	for i, c := range h.Classes {
		c.number = int32(i)
		c.plain = c.Mirror != 0 && c != h.virtualClass && (c.fixed > 0 || c.layout < 0)
	}
	if h.threads, h.tlabs, err = v.threads(); err != nil {
		return nil, err
	}
	size, class := v.static("java_lang_Class._oop_size_offset"), v.static("java_lang_Class._klass_offset")
	if err := v.lacks(); err != nil {
		return nil, err
	}
	n, err1 := v.mem.half(size)
	k, err2 := v.mem.half(class)
	if err := cmp.Or(err1, err2); err != nil || n == 0 || k == 0 || n > 1<<12 || k > 1<<12 {
		return nil, fmt.Errorf("fields of java.lang.Class at %d and %d: %w", n, k, err)
	}
	h.mirrorSize, h.mirrorClass = uint64(n), uint64(k)
	if h.spans, err = v.spans(); err != nil {
		return nil, err
	}
	h.low, h.high = h.spans[0].start, h.spans[len(h.spans)-1].top
	// A copy lacks what the process has excluded from its children.
	for _, s := range h.spans {
		if !h.mapped(s) {
			return nil, unsupported("the heap at %#x is not in the copy (MADV_DONTFORK)", s.start)
		}
	}
	if h.high-h.low > maxHeap {
		return nil, unsupported("a heap of %d TB", (h.high-h.low)>>40)
	}
	h.bits = make([][]uint64, (h.high-h.low)/chunkBytes+1)
	return h, nil
}

// maxHeap bounds the addresses between which the heap is.
const maxHeap = 1 << 44

// mapped reports whether all of a span is mapped privately.
func (h *Heap) mapped(s span) bool {
	maps := h.VM.maps
	if len(maps) == 0 {
		return true // a caller that reads a file
	}
	at := s.start
	for i, _ := slices.BinarySearchFunc(maps, at, func(m mapping, a uint64) int {
		if m.End <= a {
			return -1
		}
		return 1
	}); i < len(maps) && maps[i].Start <= at; i++ {
		if at = maps[i].End; at >= s.top {
			return true
		}
	}
	return false
}

func offsetOf(c *Class, name string) uint64 {
	for _, f := range c.all {
		if f.Name == name {
			return uint64(f.Offset)
		}
	}
	return 0
}

// object is an object in memory. data is all of it, or its beginning if it has more than wholeBytes, where it was
// loaded; it is valid until the next object.
type object struct {
	addr, size uint64
	class      *Class
	length     uint32 // of an array
	data       []byte
}

// classOf returns the class of the object that begins with b, at least VM.least bytes; nil: there is none.
func (h *Heap) classOf(b []byte, known *cache) *Class {
	v := h.VM
	var key uint64
	switch {
	case v.compact:
		key = v.classBase + le64(b)>>42<<v.classShift
	case v.narrowClass:
		n := le32(b[8:])
		if n == 0 {
			return nil
		}
		key = v.classBase + uint64(n)<<v.classShift
	default:
		key = le64(b[8:])
	}
	slot := &known[(key>>3^key>>15)%cacheSize]
	if slot.key != key || slot.c == nil {
		c := h.byAddr[key]
		if c == nil {
			return nil
		}
		*slot = cached{key, c}
	}
	return slot.c
}

// sizeOf returns the size of an object by its class and its first bytes, and the length of
// an array. 0: the bytes are too few, or it is not an object.
func (h *Heap) sizeOf(c *Class, b []byte) (size uint64, length uint32) {
	v := h.VM
	switch {
	case c.fixed > 0:
		return c.fixed, 0
	case c.layout < 0:
		if uint64(len(b)) < v.lengthAt+4 {
			return 0, 0
		}
		length = le32(b[v.lengthAt:])
		if length > math.MaxInt32 {
			return 0, 0
		}
		lh := uint32(c.layout)
		size = uint64(lh>>16&255) + uint64(length)<<(lh&63)
	case c.Kind == KindMirror:
		if uint64(len(b)) < h.mirrorSize+4 {
			return 0, 0
		}
		size = 8 * uint64(le32(b[h.mirrorSize:]))
	case c.Kind == KindChunk:
		if uint64(len(b)) < h.chunkSize+4 {
			return 0, 0
		}
		n := uint64(le32(b[h.chunkSize:]))
		if n > math.MaxInt32 {
			return 0, 0
		}
		// src/hotspot/share/oops/instanceStackChunkKlass.inline.hpp: the frames, and a bit for
		// each place where a reference can be.
		bits := n
		if v.narrow {
			bits = 2 * n
		}
		size = uint64(c.layout&^7) + 8*(n+(bits+63)/64)
	default: // it cannot be read
		return 0, 0
	}
	if size < 8 {
		return 0, 0
	}
	return up(size, v.align), length
}

// firstBytes is how many bytes of an object are needed to know its size: a java.lang.Class
// says it after its fields.
const firstBytes = 512

// readable returns an error if the memory at addr cannot be read: the copy has ended.
func (h *Heap) readable(addr uint64) error {
	var b [8]byte
	if _, err := h.VM.mem.src.ReadAt(b[:], int64(addr)); err != nil {
		return fmt.Errorf("the heap at %#x: %w", addr, err)
	}
	return nil
}

// dumped reports whether a dump has the class.
func (c *Class) dumped() bool { return c.Loaded && c.Mirror != 0 }

// isMirror reports whether a java.lang.Class is that of a class, and not of a primitive type.
func (h *Heap) isMirror(o *object) bool {
	return uint64(len(o.data)) >= h.mirrorClass+8 && le64(o.data[h.mirrorClass:]) != 0
}

// classOfMirror returns the class that a java.lang.Class is about, nil for a primitive type
// and for one that is not known.
func (h *Heap) classOfMirror(o *object) *Class {
	if !h.isMirror(o) {
		return nil
	}
	return h.byAddr[le64(o.data[h.mirrorClass:])]
}

// Begins reports whether an object begins at addr.
func (h *Heap) Begins(addr uint64) bool {
	if addr < h.low || addr >= h.high || addr&7 != 0 {
		return false
	}
	c := h.bits[(addr-h.low)/chunkBytes]
	i := (addr - h.low) % chunkBytes / 8
	return c != nil && c[i/64]>>(i%64)&1 != 0
}

// decode returns the address that a reference in the heap means, by its bytes in memory; 0 for null.
func (v *VM) decode(b []byte) uint64 {
	if !v.narrow {
		return le64(b)
	}
	if n := le32(b); n != 0 {
		return v.base + uint64(n)<<v.shift
	}
	return 0
}

// ClassAt returns the class of the object at addr; nil: no object begins there.
func (h *Heap) ClassAt(addr uint64) *Class {
	if !h.Begins(addr) {
		return nil
	}
	var b [16]byte
	if h.VM.mem.read(b[:h.VM.least], addr) != nil {
		return nil
	}
	return h.classOf(b[:], &h.cache)
}

// next returns the first address from addr on at which an object begins; h.high or more: none.
func (h *Heap) next(addr uint64) uint64 {
	for addr < h.high {
		off := addr - h.low
		c := h.bits[off/chunkBytes]
		if c == nil {
			addr = h.low + (off/chunkBytes+1)*chunkBytes
			continue
		}
		i := off % chunkBytes / 8
		if w := c[i/64] >> (i % 64); w != 0 {
			return addr + 8*uint64(bits.TrailingZeros64(w))
		}
		addr += 8 * (64 - i%64)
	}
	return addr
}
