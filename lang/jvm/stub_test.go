package jvm

import (
	"encoding/binary"
	"testing"
)

// TestAssembly finds the caller of a copy stub at every point of interruption. Other words on the
// stack look like return addresses: the bytes before an address of the stack itself may look like a
// call, depending on where libraries are mapped.
func TestAssembly(t *testing.T) {
	const (
		java   = 0x12340 // where Java continues
		native = 0x200000
		base   = 0x7f00e8000000 // of the stack
		sp     = base + 0x80
		up     = base + 0xc0
		below  = base + 0x48 // words before it; one of them is an address of the stack
	)
	mine := make([]byte, 0x100)
	word := func(addr, v uint64) { binary.LittleEndian.PutUint64(mine[addr-base:], v) }
	word(below-8, 0x7f00e8000078) // its byte 0xe8 is 5 bytes before below
	text := []byte{0x90, 0x90, 0x90, 0xe8, 1, 2, 3, 4}
	mem := readerAt(func(p []byte, addr int64) (int, error) {
		switch at := uint64(addr); {
		case at >= base && at < base+uint64(len(mine)):
			return copy(p, mine[at-base:]), nil
		case at == native-8:
			return copy(p, text), nil
		}
		return 0, errNoBlob
	})
	if !afterCall(mine[below-8-base : below-base]) {
		t.Fatal("the stack has no such bytes")
	}
	r := &Runtime{&known{}, mem}
	r.heaps.Store(&[]heap{{low: 0x10000, end: 0x90000}})
	for _, ra := range []uint64{java, native} {
		cases := []struct {
			name  string
			fp    uint64
			words []uint64 // from the stack pointer on
			depth uint64
		}{
			{"entered", up, []uint64{ra, below}, 8},
			{"pushed", up, []uint64{up, ra}, 16},
			{"set", sp, []uint64{up, ra}, 16},
			{"set, Java's is an address of the stack", sp, []uint64{below, ra}, 16},
			{"kept registers", sp + 16, []uint64{below, up, up, ra}, 32},
		}
		for _, c := range cases {
			for i, w := range c.words {
				word(sp+8*uint64(i), w)
			}
			s := &State{Words: stackOf{mem}, Known: 1<<rbp | 1<<rsp, Native: func(a uint64) bool { return a == native },
				places: map[uint64]*place{uint64(java) << 1: {b: &blob{code: 0x12000, end: 0x13000}, known: knownCall, call: true}}}
			s.R[rsp], s.R[rbp] = sp, c.fp
			got, _, depth, ok := r.assembly(s)
			if !ok || got != ra || depth != c.depth {
				t.Errorf("%s: comes from %#x, %d bytes up (%v), want %#x, %d", c.name, got, depth, ok, ra, c.depth)
			}
		}
	}
}

type readerAt func([]byte, int64) (int, error)

func (f readerAt) ReadAt(p []byte, addr int64) (int, error) { return f(p, addr) }

// stackOf is a stack in memory.
type stackOf struct{ mem readerAt }

func (w stackOf) Word(addr uint64) (uint64, bool) {
	var b [8]byte
	n, err := w.mem(b[:], int64(addr))
	return binary.LittleEndian.Uint64(b[:]), n == 8 && err == nil
}
