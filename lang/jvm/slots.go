package jvm

import "github.com/sliverprof/sliver/stack"

// Where a compiled method has what its locals and operands refer to, by ScopeValue and Location
// (src/hotspot/share/code/debugInfo.cpp and location.hpp of 17, 21 and 25).
const (
	valueLocation = 0
	valueInt      = 1
	valueOop      = 2
	valueLong     = 3
	valueDouble   = 4 // what follows are objects that the compiler has replaced

	locationType     = 0xf
	locationRegister = 0x10
	locationOffset   = 5
	typeOop          = 2
	typeNarrowOop    = 8

	// maxSlots bounds the values of one scope, and maxStackSlots the references of one stack.
	maxSlots      = 1 << 12
	maxStackSlots = 1 << 20
)

// slots calls yield for each reference on the stack of the calls at a place of the code, innermost first:
// the number of the call, and the distance from the frame's stack pointer.
func (t *scopes) slots(d pcDesc, plain bool, yield func(call int, off uint64)) {
	at, limit := d.scope, uint32(len(t.data))
	for k := 0; at != 0 && at < limit && k < maxInlined; k++ {
		limit = at
		in := stream{b: t.data[at:], plain: plain}
		sender, _, _ := in.next(), in.next(), in.next()
		locals, operands := in.next(), in.next()
		if in.bad {
			return
		}
		for _, list := range [...]uint32{locals, operands} {
			if list != 0 && list < uint32(len(t.data)) {
				t.values(list, plain, func(off uint64) { yield(k, off) })
			}
		}
		at = sender
	}
}

// values calls yield for each reference on the stack of the list of values at an offset in data.
func (t *scopes) values(at uint32, plain bool, yield func(off uint64)) {
	in := stream{b: t.data[at:], plain: plain}
	for n := min(in.next(), maxSlots); n > 0 && !in.bad; n-- {
		switch in.next() {
		case valueLocation:
			v := in.next()
			if typ := v & locationType; !in.bad && v&locationRegister == 0 && (typ == typeOop || typ == typeNarrowOop) {
				yield(4 * uint64(v>>locationOffset))
			}
		case valueInt, valueOop:
			in.next()
		case valueLong, valueDouble:
			in.next()
			in.next()
		default:
			return
		}
	}
}

// slotsIn notes which words of a compiled frame the calls at a place refer to objects with. first is the
// index of the innermost one's frame.
func (c *Copy) slotsIn(p *place, pc, cfa uint64, first int) {
	n := p.b.nm
	offs, ok := c.offsets[p]
	if !ok {
		offs = make([][]uint64, len(p.calls))
		if t, err := n.load(c.r); err == nil {
			if at, same, ok := t.at(int32(pc - p.b.code)); ok && same {
				t.slots(at, c.r.l.major < 20, func(call int, off uint64) {
					if call < len(offs) {
						offs[call] = append(offs[call], off)
					}
				})
			}
		}
		if len(c.offsets) >= maxPlaces {
			clear(c.offsets)
		}
		c.offsets[p] = offs
	}
	size := max(p.b.frame, 8)
	for k, list := range offs {
		c.slots[first+k] = []uint64{}
		for _, off := range list {
			if off < size && c.given < maxStackSlots {
				c.given++
				c.slots[first+k] = append(c.slots[first+k], cfa-size+off)
			}
		}
	}
}

// take returns the activation of the k-th of the frames that were found, with its words.
func (c *Copy) take(frames []stack.Frame, k int) (a Activation, ok bool) {
	if a, ok = c.activation(&frames[k]); ok {
		a.Slots = c.slots[k]
	}
	return a, ok
}
