package jvm

import (
	"encoding/binary"
	"testing"
)

// words is memory with words at some addresses and zeros elsewhere.
type words map[uint64]uint64

func (w words) ReadAt(p []byte, addr int64) (int, error) {
	for i := range p {
		at := uint64(addr) + uint64(i)
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], w[at&^7])
		p[i] = b[at&7]
	}
	return len(p), nil
}

// TestForwarding: the page's table gives the place to which ZGC moved an object.
func TestForwarding(t *testing.T) {
	const (
		tables, page = 0x1000, 0x2000
		base         = 1 << 42 // of the heap's addresses
		from         = 3 << 21 // of the page, in the heap
	)
	f := &forwarding{tables: [2]uint64{tables, tables + 0x800}, granule: 21, mask: base - 1, align: 16, length: 24, entries: 136}
	mem := words{tables + 3*8: page, page: from, page + 16: 3, page + 24: 8}
	put := func(index, to uint64, probes uint64) {
		mem[page+136+8*((uint64(spread(uint32(index)))+probes)&7)] = 1 | to<<1 | index<<46
	}
	put(5, 0x123450, 0)
	put(77, 0x99990, 0)
	r := &Runtime{&known{}, mem}
	find := func(addr uint64) (uint64, bool) {
		to, met, err := f.find(r, tables, addr)
		if err != nil {
			t.Fatal(err)
		}
		return to, met
	}
	for _, x := range []struct {
		addr, want uint64
		met        bool
	}{{base + from + 5*8, base + 0x123450, true}, {base + from + 77*8, base + 0x99990, true}, {base + from + 2*8, base + from + 2*8, true},
		{base + 4<<21, base + 4<<21, false}} {
		if to, met := find(x.addr); to != x.want || met != x.met {
			t.Errorf("%#x: %#x, %v", x.addr, to, met)
		}
	}
	// Bits 12 to 15 of a reference date the last look at it. In their number, the lower bit belongs
	// to the young generation and the upper one to the old generation.
	v := &look{r: r, o: &oops{gc: collector{z: zGenerations, forwarding: f}}, ep: epoch{shift: 13}}
	for _, x := range []struct{ colour, remembered, want uint64 }{
		{2, 0, base + 0x123450},       // young objects were moved since
		{4, 0, base + from + 5*8},     // old ones: another table
		{8, 0, base + 0x123450},       // both: the page is a young one
		{8, 3 << 4, base + from + 40}, // both, and the reference is marked as old to old
	} {
		if to, err := v.moved(x.colour<<12|x.remembered, base+from+5*8); err != nil || to != x.want {
			t.Errorf("colour %d: %#x, %v", x.colour, to, err)
		}
	}
	mem[page+24] = 7 // not a power of two
	if _, _, err := f.find(r, tables, base+from+5*8); err == nil {
		t.Error("a table of 7 entries is taken")
	}
}

// TestWhole: two of ZGC's words from different moments are rejected.
func TestWhole(t *testing.T) {
	for good := range uint64(4) {
		bad := uint64(0xf000) &^ (1 << (12 + good))
		for shift := range uint64(20) {
			if got := whole(bad, shift); got != (shift == 13+good) {
				t.Errorf("bad bits %#x with an address from bit %d on: %v", bad, shift, got)
			}
		}
	}
	if whole(0xf000, 13) || whole(0, 13) {
		t.Error("bits of which none, or all, are good")
	}
}
