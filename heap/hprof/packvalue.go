package hprof

import "math/bits"

// slot predicts the values of one place: a field of a class, the elements of an
// array class, a field of a record.
type slot struct {
	codes, values column
	last, step    uint64
	offset        uint64    // of references: the last value less its object's identifier
	recent        [8]uint64 // references that were not predicted
	turn          uint8
}

// group says where a slot's codes go.
func (s *slot) group(codes group) {
	s.codes.group, s.values.group = codes, groupValues
}

func newSlot() *slot {
	s := &slot{}
	s.group(groupCodes)
	return s
}

// codes of a reference.
const (
	refNull   = iota
	refLast                   // as the last one
	refOffset                 // as far from its object as the last one
	refStep                   // as far from the last one as that from its own last one
	refRecent                 // + 0…7: one of recent
	refOwn    = refRecent + 8 // + 1…8: bytes of its distance from the object, in units of 8
	refNear   = refOwn + 9    // + 1…8: of its distance from the last one
	refRaw    = refNear + 9   // the identifier itself
)

// ref codes a reference of the object own.
func (m *model) ref(s *slot, v, own uint64) uint64 {
	if m.packing {
		return m.packRef(s, v, own)
	}
	c := &m.columns
	code := c.u1(&s.codes, 0)
	switch {
	case code == refNull:
		return 0
	case code == refLast:
		v = s.last
	case code == refOffset:
		v = own + s.offset
	case code == refStep:
		v = s.last + s.step
	case code < refOwn:
		v = s.recent[code-refRecent]
	case code < refNear:
		v = own + uint64(unzigzag(m.planes(0, int(code-refOwn))))<<3
	case code < refRaw:
		v = s.last + uint64(unzigzag(m.planes(0, int(code-refNear))))<<3
	default:
		v = m.planes(0, m.ids)
	}
	if m.ids == 4 {
		v = uint64(uint32(v))
	}
	s.note(v, own, code >= refOwn)
	return v
}

func (m *model) packRef(s *slot, v, own uint64) uint64 {
	c := &m.columns
	mask := uint64(1)<<32<<(8*(m.ids-4)) - 1
	switch {
	case v == 0:
		c.u1(&s.codes, refNull)
		return v
	case v == s.last:
		c.u1(&s.codes, refLast)
	case v == (own+s.offset)&mask:
		c.u1(&s.codes, refOffset)
	case v == (s.last+s.step)&mask:
		c.u1(&s.codes, refStep)
	default:
		for i, r := range s.recent {
			if r == v {
				c.u1(&s.codes, byte(refRecent+i))
				s.note(v, own, false)
				return v
			}
		}
		toOwn, toLast := int64(v-own), int64(v-s.last)
		if m.ids == 4 {
			toOwn, toLast = int64(int32(toOwn)), int64(int32(toLast))
		}
		a, b := zigzag(toOwn>>3), zigzag(toLast>>3)
		switch {
		case toOwn&7 == 0 && (toLast&7 != 0 || bits.Len64(a) <= bits.Len64(b)):
			n := (bits.Len64(a) + 7) / 8
			c.u1(&s.codes, byte(refOwn+n))
			m.planes(a, n)
		case toLast&7 == 0:
			n := (bits.Len64(b) + 7) / 8
			c.u1(&s.codes, byte(refNear+n))
			m.planes(b, n)
		default:
			c.u1(&s.codes, refRaw)
			m.planes(v, m.ids)
		}
		s.note(v, own, true)
		return v
	}
	s.note(v, own, false)
	return v
}

func (s *slot) note(v, own uint64, fresh bool) {
	s.step = v - s.last
	s.last = v
	s.offset = v - own
	if fresh {
		s.recent[s.turn&7] = v
		s.turn++
	}
}

// rank codes the n lowest bytes of a rank.
func (m *model) rank(v uint64, n int) (out uint64) {
	if m.mixer != nil {
		return m.planes(v, n)
	}
	for i := range n {
		out |= uint64(m.columns.u1(&m.ranks[i], byte(v>>(8*i)))) << (8 * i)
	}
	return out
}

// planes codes the n lowest bytes of v, 0 to 8, each in its own column.
func (m *model) planes(v uint64, n int) uint64 {
	if n > 8 {
		m.columns.fail()
		return 0
	}
	var out uint64
	if m.mixer != nil { // the highest byte first: it predicts the others
		for i := n - 1; i >= 0; i-- {
			out |= uint64(m.columns.u1(&m.plane[i], byte(v>>(8*i)))) << (8 * i)
		}
		return out
	}
	for i := range n {
		out |= uint64(m.columns.u1(&m.plane[i], byte(v>>(8*i)))) << (8 * i)
	}
	return out
}

// codes of a number.
const (
	numLast  = 0
	numStep  = 1
	numBytes = 2  // + 0…8: bytes of the value, zigzag
	numDelta = 11 // + 1…8: bytes of its distance from the last one
)

// num codes a value of a field of size bytes.
func (m *model) num(s *slot, v uint64, size int) uint64 {
	c := &m.columns
	mask := ^uint64(0) >> (64 - 8*size)
	signed := func(v uint64) uint64 { shift := 64 - 8*size; return zigzag(int64(v<<shift) >> shift) }
	var code byte
	var rest uint64
	if m.packing {
		full, delta := signed(v), signed(v-s.last)
		nf, nd := (bits.Len64(full)+7)/8, (bits.Len64(delta)+7)/8
		switch {
		case v == s.last:
			code = numLast
		case v == (s.last+s.step)&mask:
			code = numStep
		case nd < nf:
			code, rest = byte(numDelta+nd), delta
		default:
			code, rest = byte(numBytes+nf), full
		}
	}
	code = c.u1(&s.codes, code)
	switch {
	case code == numLast:
		v = s.last
	case code == numStep:
		v = s.last + s.step
	case code < numDelta:
		v = uint64(unzigzag(c.raw(&s.values, rest, int(code-numBytes))))
	default:
		v = s.last + uint64(unzigzag(c.raw(&s.values, rest, int(code-numDelta))))
	}
	v &= mask
	s.step, s.last = v-s.last, v
	return v
}

// value codes the value of a field.
func (m *model) value(s *slot, b []byte, t Type, own uint64) {
	switch t.Size(m.ids) {
	case 1:
		b[0] = m.columns.u1(&s.values, b[0])
	case 0:
		m.columns.fail()
	default:
		if t == TypeObject {
			PutID(b, m.ids, m.ref(s, m.in(b, m.ids), own))
			return
		}
		n := t.Size(m.ids)
		m.put(b, n, m.num(s, m.in(b, n), n))
	}
}

// in decodes n bytes of b while packing. While unpacking they are not there yet.
func (m *model) in(b []byte, n int) (v uint64) {
	if m.packing {
		for _, x := range b[:n] {
			v = v<<8 | uint64(x)
		}
	}
	return v
}

func (m *model) put(b []byte, n int, v uint64) {
	for i := n - 1; i >= 0; i-- {
		b[i] = byte(v)
		v >>= 8
	}
}

// near codes an identifier that is close to pred.
func (m *model) near(s *slot, v, pred uint64) uint64 {
	const unaligned = 9
	c := &m.columns
	var code byte
	var rest uint64
	if m.packing {
		d := int64(v - pred)
		if m.ids == 4 {
			d = int64(int32(d))
		}
		rest = zigzag(d)
		if d&7 == 0 {
			rest = zigzag(d >> 3)
		} else {
			code = unaligned
		}
		code += byte((bits.Len64(rest) + 7) / 8)
	}
	code = c.u1(&s.codes, code)
	if code < unaligned {
		v = pred + uint64(unzigzag(m.planes(rest, int(code))))<<3
	} else {
		v = pred + uint64(unzigzag(m.planes(rest, int(code-unaligned))))
	}
	if m.ids == 4 {
		v = uint64(uint32(v))
	}
	s.last = v
	return v
}
