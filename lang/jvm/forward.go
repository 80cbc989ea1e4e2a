package jvm

import "fmt"

// forwarding is how to find the new place of objects that ZGC moved. HotSpot's own tables describe
// all of it except for the place of the two generations' tables, which the data before them
// identifies.
type forwarding struct {
	tables  [2]uint64 // addresses of ZForwarding*, by granule: of all or the young generation, of the old one; 0: none
	granule uint64    // log2 of the bytes that an entry covers
	mask    uint64    // mask of an address: its place in the heap
	// Offsets in a ZForwarding, in bytes: the page's begin, log2 of the object alignment, the number
	// of entries, and the first entry.
	start, align, length, entries uint64
}

const (
	// maxProbes bounds the entries of a page that are read. They are hashed, and half of them are
	// free.
	maxProbes = 1 << 10
	// maxZHeap bounds a ZHeap, in bytes: 15,616 in 25.
	maxZHeap = 64 << 10
	// maxForwarded bounds the references per look whose objects are followed to their new place.
	maxForwarded = 64
	// Two numbers of ZGC's references in 21 and 25 (src/hotspot/share/gc/z/zAddress.hpp): the bits
	// that are set in references from an old object to an old one, and the position of the four bits
	// that date the last look at the reference.
	zRemembered = 3 << 4
	zRemapped   = 12
)

// readForwarding finds the tables. p is the prefix of the collector's names. It returns nil if the
// tables are not understood; references that may be outdated are then not followed.
func (r *Runtime) readForwarding(c *collector, p string) *forwarding {
	g := &lookup{s: r.s}
	size := func(name string) uint64 { return g.size(p + name) }
	field := func(name string) uint64 { return g.field(p + name) }
	f := &forwarding{start: field("Forwarding._virtual") + field("VirtualMemory._start"), align: field("Forwarding._object_alignment_shift"),
		length: field("Forwarding._entries") + field("AttachedArrayForForwarding._length"), entries: (size("Forwarding") + 7) &^ 7, mask: c.offset}
	if size("ForwardingEntry") != 8 {
		return nil
	}
	heap := c.heap + field("CollectedHeap._heap")
	table := field("ForwardingTable._map") + field("GranuleMapForForwarding._map")
	pages, allocator := heap+field("Heap._page_table"), heap+field("Heap._page_allocator")
	shift, ok := r.s.value[p+"GranuleSizeShift"]
	if g.err(r.Major) != nil || c.heap == 0 || !ok || shift < 16 || shift > 32 {
		return nil
	}
	f.granule = uint64(shift)
	if c.z == zSingle {
		at, ok := r.s.offset[p+"Heap._forwarding_table"]
		if !ok {
			return nil
		}
		f.tables[0], _ = word(r.mem, heap+at+table)
		if f.tables[0] == 0 {
			return nil
		}
		return f
	}
	// A ZGeneration begins with its number (0: young), the heap's page allocator and page table. Its
	// own table follows (gc/z/zGeneration.hpp of 21 and 25).
	b := make([]byte, min(size("Heap"), maxZHeap)&^7)
	if len(b) == 0 || read(r.mem, b, heap) != nil {
		return nil
	}
	for at := uint64(0); at+24+table+8 <= uint64(len(b)); at += 8 {
		if id := u64(b, at) & 0xff; id < 2 && u64(b, at+8) == allocator && u64(b, at+16) == pages {
			if f.tables[id] != 0 {
				return nil // each generation must occur once
			}
			f.tables[id] = u64(b, at+24+table)
		}
	}
	if f.tables[0] == 0 || f.tables[1] == 0 {
		return nil
	}
	return f
}

// find looks up the current place of the object at addr in a table. met is false if its page is not
// being evacuated; the object has not moved then.
func (f *forwarding) find(r *Runtime, table, addr uint64) (to uint64, met bool, err error) {
	off := addr & f.mask
	p, err := word(r.mem, table+off>>f.granule*8)
	if err != nil || p == 0 {
		return addr, false, err
	}
	var b [256]byte
	n := max(f.start, f.align, f.length) + 8
	if n > uint64(len(b)) {
		return 0, false, fmt.Errorf("a page's table of %d bytes", n)
	}
	if err := read(r.mem, b[:n], p); err != nil {
		return 0, false, err
	}
	start, align, length := u64(b[:], f.start), u64(b[:], f.align), u64(b[:], f.length)
	if start > off || align < 3 || align > f.granule || length == 0 || length&(length-1) != 0 || length > 1<<24 {
		return 0, false, fmt.Errorf("a page's table at %#x is not understood", p)
	}
	index := (off - start) >> align
	for i, k := uint64(0), uint64(spread(uint32(index))); i < min(length, maxProbes); i, k = i+1, k+1 {
		// src/hotspot/share/gc/z/zForwardingEntry.hpp of 17, 21 and 25: bit 0, 45 bits of the new
		// place, 18 bits of the index.
		e, err := word(r.mem, p+f.entries+8*(k&(length-1)))
		if err != nil {
			return 0, false, err
		}
		if e&1 == 0 {
			return addr, true, nil // not moved yet
		}
		if e>>46 == index {
			return addr&^f.mask | e>>1&(1<<45-1), true, nil
		}
	}
	return 0, false, fmt.Errorf("a page's table at %#x goes round", p)
}

// spread is the hash of the table's entries (src/hotspot/share/gc/z/zHash.inline.hpp).
func spread(k uint32) uint32 {
	k = ^k + k<<15
	k ^= k >> 12
	k += k << 2
	k ^= k >> 4
	k *= 2057
	return k ^ k>>16
}

// moved returns the current place of the object at addr. ref is the reference to it, and the object
// may have moved since the last look at ref.
func (v *look) moved(ref, addr uint64) (uint64, error) {
	f := v.o.gc.forwarding
	if f == nil {
		return 0, errMoved
	}
	if v.o.gc.z == zSingle {
		to, _, err := f.find(v.r, f.tables[0], addr)
		return to, err
	}
	// Find out which generation was moved since. One of four bits is set, and the two bits of its
	// number identify the relocations: the lower one the young generation's, the upper one the old
	// generation's (ZBarrier::remap_generation).
	then, ok := loadShift(ref)
	if !ok || v.ep.shift <= zRemapped || v.ep.shift > zRemapped+4 {
		return 0, errMoved
	}
	differ := (then - zRemapped - 1) ^ (v.ep.shift - zRemapped - 1)
	switch {
	case differ == 1:
		to, _, err := f.find(v.r, f.tables[0], addr)
		return to, err
	case differ == 3 && ref&zRemembered != zRemembered:
		if to, met, err := f.find(v.r, f.tables[0], addr); met || err != nil {
			return to, err
		}
	}
	to, _, err := f.find(v.r, f.tables[1], addr)
	return to, err
}

// followed is a reference whose object may have been moved since the last look at it.
type followed struct{ at, ref, to uint64 }

// follow returns the object that the reference ref at an address points to, at its current place.
func (v *look) follow(at, ref uint64) uint64 {
	stale := v.stale
	v.stale = false
	addr := v.decode(ref)
	doubt := v.stale
	v.stale = stale
	if v.err != nil || !doubt {
		return addr
	}
	to, err := v.moved(ref, addr)
	if err != nil || len(v.followed) >= maxForwarded {
		v.stale = true
		return addr
	}
	v.followed = append(v.followed, followed{at, ref, to})
	return to
}

// unmoved reports whether all results of follow are still valid. The tables stay until the
// collector has looked at every reference, so a reference without a look was resolved by the right
// table.
func (v *look) unmoved() bool {
	for _, x := range v.followed {
		ref, err := word(v.r.mem, x.at)
		if err != nil {
			return false
		}
		w := look{r: v.r, o: v.o, ep: v.ep}
		addr := w.decode(ref)
		if ref != x.ref { // the collector, or the program, has looked at it
			if w.err != nil || w.stale || addr != x.to {
				return false
			}
			continue
		}
		if to, err := v.moved(x.ref, addr); err != nil || to != x.to {
			return false
		}
	}
	return true
}
