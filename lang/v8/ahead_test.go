package v8

import (
	"encoding/binary"
	"testing"

	"github.com/sliverprof/sliver/unwind/meter"
)

// objects is memory full of pointers. own holds the words of the stack that differ, by address.
type objects struct {
	slab
	own map[uint64]uint64
}

// Word implements Words.
func (o *objects) Word(addr uint64) (uint64, bool) {
	if v, ok := o.own[addr]; ok {
		return v, true
	}
	return o.slab.Word(addr)
}

// TestReadAhead: a stack takes one batch if its frames were seen before, also if other stacks came between
// and if it has them in another order.
func TestReadAhead(t *testing.T) {
	r := New(layouts(t)[0], func(*Function) any { return nil })
	frame := func(fp uint64) Place { return Place{PC: 0x5000, FP: fp} }
	words := &objects{slab: slab{b: binary.LittleEndian.AppendUint64(nil, 0x1001)}, own: map[uint64]uint64{}}
	for i := range uint64(3) { // closures and bytecode of their own
		fp := 0x10000 + i*0x1000
		words.own[fp-slotFunction], words.own[fp-slotBytecode] = 0x20001+i*0x1000, 0x40001+i*0x1000
	}
	a, b, c := frame(0x10000), frame(0x11000), frame(0x12000)
	w, known, credit := r.Walker(), &Known{}, &meter.Credit{}
	for i, x := range []struct {
		stack   []Place
		batched bool // all of it
	}{
		{[]Place{a, b}, false},
		{[]Place{c}, false},
		{[]Place{b, a}, true},
		{[]Place{c, b, b}, true},
	} {
		words.reads = 0
		var m meter.Meter
		m.Begin(&words.slab, credit)
		w.Begin(&m, known, x.stack, words)
		from := m.Reads
		for k := range x.stack {
			w.Frames(&x.stack[k], words)
		}
		if single := m.Reads - from; from > 1 || (single == 0) != x.batched {
			t.Errorf("stack %d: %d batches and %d single reads", i, from, single)
		}
		w.End()
		m.End()
	}
}

// TestFrameKey: each return address has its own key. A leaf has the same key at all places of its code.
func TestFrameKey(t *testing.T) {
	r := New(layouts(t)[0], func(*Function) any { return nil })
	r.addCode(&code{start: 0x5000, end: 0x6000})
	words := &slab{b: []byte{1, 0x10, 0, 0, 0, 0, 0, 0}}
	w := r.Walker()
	key := func(pc uint64, leaf bool) frameKey {
		return w.key(&Place{PC: pc, FP: 0x8000, Made: true, Exact: leaf}, words)
	}
	if key(0x5010, true) != key(0x5020, true) || key(0x5010, true) == key(0x6000, true) {
		t.Error("keys of leaves are not those of their code")
	}
	if key(0x5010, false) == key(0x5020, false) {
		t.Error("two calls in the same code have the same key")
	}
}
