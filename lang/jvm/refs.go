package jvm

import (
	"errors"
	"fmt"
)

// errMoved says that an object may have been moved.
var errMoved = errors.New("the object was moved while it was read")

// collector holds the facts about the garbage collector that decide which references can be
// followed.
type collector struct {
	heap          uint64 // address of the CollectedHeap; 0: unknown
	active, count uint64 // offsets: whether all threads are stopped for a collection (which may move objects, except with ZGC), and the number of collections
	forwards      bool   // the first word of a moved object points to its new place (Shenandoah)
	z             zKind
	bad, shift    uint64 // addresses of ZGC's words
	offset        uint64 // of its references: the bits of the object's place
	forwarding    *forwarding
}

// zKind is ZGC's encoding of colours in references.
type zKind uint8

const (
	zNone        zKind = iota
	zSingle            // in high bits; memory is mapped once per colour
	zGenerations       // in low bits; the address is shifted
)

// readCollector finds the collector's state. on holds the flags.
func (r *Runtime) readCollector(on map[string]bool) (collector, error) {
	c := collector{active: none, count: none, forwards: on["UseShenandoahGC"]}
	if at := r.s.static["Universe._collectedHeap"]; at != 0 {
		c.heap, _ = word(r.mem, at)
	}
	for _, n := range [...]string{"CollectedHeap._is_gc_active", "CollectedHeap._is_stw_gc_active"} {
		if off, ok := r.s.offset[n]; ok {
			c.active = off
		}
	}
	if off, ok := r.s.offset["CollectedHeap._total_collections"]; ok {
		c.count = off
	}
	if !on["UseZGC"] {
		return c, nil
	}
	c.z = zSingle
	if on["ZGenerational"] || r.Major >= 23 {
		c.z = zGenerations
	}
	// 21 has both: the older one is called X.
	p := "Z"
	if _, ok := r.s.static["XGlobalsForVMStructs._instance_p"]; ok && c.z == zSingle {
		p = "X"
	}
	base, err := word(r.mem, r.s.static[p+"GlobalsForVMStructs._instance_p"])
	if err != nil {
		return c, err
	}
	at := func(field string) uint64 {
		off, ok := r.s.offset[p+"GlobalsForVMStructs._"+p+field]
		if !ok {
			err = errors.Join(err, fmt.Errorf("ZGC's tables lack %s", field))
			return 0
		}
		v, e := word(r.mem, base+off)
		err = errors.Join(err, e)
		return v
	}
	if c.z == zSingle {
		// A reference with a look since the last move of objects is good enough.
		c.bad = at("AddressWeakBadMask")
		if mask := at("AddressOffsetMask"); err == nil {
			c.offset, err = word(r.mem, mask)
		}
		c.forwarding = r.readForwarding(&c, p)
		return c, err
	}
	c.bad, c.shift = at("PointerLoadBadMask"), at("PointerLoadShift")
	if mask := at("AddressOffsetMask"); err == nil {
		c.offset, err = word(r.mem, mask)
	}
	c.forwarding = r.readForwarding(&c, p)
	return c, err
}

// epoch is the collector's state while references are followed. Data read in one epoch belongs to
// one moment, unless objects move concurrently.
type epoch struct {
	active byte
	count  uint32
	bad    uint64 // bits that a reference must not have (ZGC)
	shift  uint64
}

// look follows references. The first failure is in err, and all later results are 0.
type look struct {
	r        *Runtime
	o        *oops
	ep       epoch
	stale    bool // followed a reference whose object the collector may have moved
	err      error
	links    []link // followed references, if the collector moves objects concurrently and marks moved ones
	followed []followed
	near     near
}

func (r *Runtime) look() (*look, error) {
	o, err := r.heapOf()
	if err != nil {
		return nil, err
	}
	v := &look{r: r, o: o}
	v.ep, err = o.gc.now(r)
	return v, err
}

// now reads the collector's state.
func (c *collector) now(r *Runtime) (e epoch, err error) {
	if c.heap != 0 && c.active != none && c.count != none {
		lo := min(c.active, c.count)
		var b [64]byte
		n := max(c.active, c.count) + 4 - lo
		if n > uint64(len(b)) {
			return e, fmt.Errorf("the collector's state is %d bytes long", n)
		}
		if err := read(r.mem, b[:n], c.heap+lo); err != nil {
			return e, err
		}
		e.active, e.count = b[c.active-lo], u32(b[:], c.count-lo)
	}
	if c.z != zNone {
		// While all threads are stopped for ZGC, it changes the colours of references and moves
		// nothing (gc/z/zGeneration.cpp of 21 and 25, zDriver.cpp and zHeap.cpp of 17). So data read
		// in that time is valid if these words are unchanged.
		e.active = 0
		for range maxLooks {
			if e.bad, err = word(r.mem, c.bad); err != nil || c.z == zSingle {
				return e, err
			}
			if e.shift, err = word(r.mem, c.shift); err != nil || whole(e.bad, e.shift) {
				return e, err
			}
		}
		err = errMoved
	}
	return e, err
}

// whole reports whether two words of generational ZGC belong together; ZGC writes them one after
// the other. Of the four bits that date the last look at a reference, exactly one must be good, and
// the address must begin right above it.
func whole(bad, shift uint64) bool {
	bit := shift - zRemapped - 1
	return bit < 4 && bad>>zRemapped&15 == 15&^(1<<bit)
}

// steady reports whether nothing was moved during the look, according to the collector.
func (v *look) steady() bool {
	// If a reference leads to the same place as before, and the object there is still unmoved, it
	// led there all the time. So the data did not come from an old copy of the object.
	if !v.lead(v.links) {
		return false
	}
	if !v.unmoved() {
		return false
	}
	now, err := v.o.gc.now(v.r)
	return err == nil && now == v.ep && now.active == 0
}

// loadShift returns the shift of an address in generational ZGC. It follows from the bit of the
// reference that dates the last look at it (src/hotspot/cpu/x86/gc/z/zAddress_x86.inline.hpp of 21
// and 25: one of bits 12 to 15, and the address begins above it).
func loadShift(ref uint64) (shift uint64, ok bool) {
	switch ref >> 12 & 15 {
	case 1:
		return 13, true
	case 2:
		return 14, true
	case 4:
		return 15, true
	case 8:
		return 16, true
	}
	return 0, false
}

// decode returns the object of an 8-byte reference.
func (v *look) decode(ref uint64) uint64 {
	switch c := &v.o.gc; {
	case ref == 0 || v.err != nil:
		return 0
	case c.z == zSingle:
		if ref&c.offset == 0 {
			return 0
		}
		v.stale = v.stale || ref&v.ep.bad != 0
		return ref
	case c.z == zGenerations:
		shift, ok := loadShift(ref)
		good := ref&v.ep.bad == 0
		if good && v.ep.shift < 32 {
			shift, ok = v.ep.shift, true
		}
		if !ok {
			v.err = fmt.Errorf("reference %#x has no colour", ref)
			return 0
		}
		if ref>>shift == 0 {
			return 0
		}
		v.stale = v.stale || !good
		return ref >> shift
	case c.forwards:
		v.meet(ref)
		if m := v.word(ref); m&3 == 3 && m > 3 {
			return m &^ 3
		}
		if v.err != nil {
			return 0
		}
	}
	return ref
}

// plain returns the object of a word that the thread itself owns. Such a word has no colour if
// colours are in low bits.
func (v *look) plain(ref uint64) uint64 {
	if v.o.gc.z == zGenerations {
		return ref
	}
	return v.decode(ref)
}

// ref follows the reference in an object at addr.
func (v *look) ref(addr uint64) uint64 {
	if v.err != nil {
		return 0
	}
	var to uint64
	if !v.o.narrow {
		to = v.follow(addr, v.word(addr))
	} else if n := v.half(addr); n != 0 {
		to = v.decode(v.o.base + uint64(n)<<v.o.shift)
	}
	v.linked(link{cell: addr, to: to})
	return to
}

// handle follows a reference outside of the heap, whose address is at addr.
func (v *look) handle(addr uint64) uint64 {
	h := v.word(addr)
	if h == 0 {
		return 0
	}
	to := v.follow(h, v.word(h))
	v.linked(link{cell: h, to: to, from: addr})
	return to
}

func (v *look) word(addr uint64) (w uint64) {
	if v.err != nil {
		return 0
	}
	if b := v.kept(addr, 8); b != nil {
		return u64(b, 0)
	}
	w, v.err = word(v.r.mem, addr)
	return w
}

func (v *look) half(addr uint64) (w uint32) {
	if v.err != nil {
		return 0
	}
	if b := v.kept(addr, 4); b != nil {
		return u32(b, 0)
	}
	w, v.err = half(v.r.mem, addr)
	return w
}

// class returns the class of the object at addr.
func (v *look) class(addr uint64) (c uint64) {
	o := v.o
	switch {
	case o.compact: // JEP 519: the upper 22 bits
		c = o.classBase + v.word(addr)>>42<<o.classShift
	case o.narrowClass:
		c = o.classBase + uint64(v.half(addr+o.classAt))<<o.classShift
	default:
		c = v.word(addr + o.classAt)
	}
	if v.err != nil {
		return 0
	}
	return c
}

// field returns the offset of a field of a class in its objects.
func (v *look) field(class uint64, name, typ string) (off uint64) {
	if v.err == nil {
		off, v.err = v.r.fieldOf(v.o, class, name, typ)
	}
	return off
}

// place returns an identity of the object at addr, valid until it is moved.
func (v *look) place(addr uint64) uint64 {
	if v.o.gc.z == zSingle {
		return addr & v.o.gc.offset
	}
	return addr
}
