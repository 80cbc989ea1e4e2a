package jvm

import (
	"errors"
	"fmt"
)

// errMoved says that an object may be elsewhere by now.
var errMoved = errors.New("it was moved meanwhile")

// collector is what has to be known of the garbage collector, to tell references that
// can be followed from those that cannot.
type collector struct {
	heap          uint64 // address of the CollectedHeap; 0: not known
	active, count uint64 // in it: whether all threads stand still for it (and objects may be moved: not ZGC's), and how often it ran
	forwards      bool   // an object that was moved says in its first word where to (Shenandoah)
	z             zKind
	bad, shift    uint64 // addresses of ZGC's words
	offset        uint64 // of its references: the bits that are the object's place
	forwarding    *forwarding
}

// zKind is how ZGC colours references.
type zKind uint8

const (
	zNone        zKind = iota
	zSingle            // in high bits, and memory is mapped for each colour
	zGenerations       // in low bits, and the address is shifted
)

// readCollector reads where the collector says what it does. on are the flags.
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
	// In 21 both are there: the older one is called X.
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
		// A reference that was looked at since objects were last moved is good enough.
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

// epoch is what the collector was at when references were followed: all that was read
// in one is of one moment, as far as objects do not move by themselves.
type epoch struct {
	active byte
	count  uint32
	bad    uint64 // bits that a reference must not have to be followed (ZGC)
	shift  uint64
}

// look follows references. What cannot be read is in err, and everything after it is 0.
type look struct {
	r        *Runtime
	o        *oops
	ep       epoch
	stale    bool // a reference was followed that the collector may have moved the object of
	err      error
	links    []link // references that were followed, under a collector that moves objects while threads run and says so in them
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

// now reads what the collector is at.
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
		// While all threads stand still for it, ZGC changes what references are to look like, and
		// moves nothing (gc/z/zGeneration.cpp of 21 and 25, zDriver.cpp and zHeap.cpp of 17):
		// what was read in between is as good as at another time, if these words are the same.
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

// whole reports whether two words of generational ZGC's belong together, which it writes
// one after the other: of the four bits that tell when a reference was last looked at one
// is not bad, and the address begins right above that.
func whole(bad, shift uint64) bool {
	bit := shift - zRemapped - 1
	return bit < 4 && bad>>zRemapped&15 == 15&^(1<<bit)
}

// steady reports whether nothing was moved while the look was under way, as far as the
// collector tells.
func (v *look) steady() bool {
	// A reference that leads to the same place as before, where the object is still that says
	// that it is there, led there all the time: what was read of it was no copy left behind.
	if !v.lead(v.links) {
		return false
	}
	if !v.unmoved() {
		return false
	}
	now, err := v.o.gc.now(v.r)
	return err == nil && now == v.ep && now.active == 0
}

// loadShift is how far generational ZGC shifts an address, by the bit of the reference
// that tells when it was last looked at (src/hotspot/cpu/x86/gc/z/zAddress_x86.inline.hpp
// of 21 and 25: one of bits 12 to 15, and the address begins above it).
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

// decode is the object that a reference of 8 bytes means.
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

// plain is the object that a word of a thread's own means: it has no colour where those
// are in low bits.
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

// handle follows the reference that is outside the heap, at the address that is at addr.
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

// class is that of the object at addr.
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

// field is where a field of a class is in its objects.
func (v *look) field(class uint64, name, typ string) (off uint64) {
	if v.err == nil {
		off, v.err = v.r.fieldOf(v.o, class, name, typ)
	}
	return off
}

// place is what tells the object at addr from others until it is moved.
func (v *look) place(addr uint64) uint64 {
	if v.o.gc.z == zSingle {
		return addr & v.o.gc.offset
	}
	return addr
}
