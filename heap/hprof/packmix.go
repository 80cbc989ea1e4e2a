package hprof

import "math"

// Blocks of small dumps, and the first ones of large dumps, are coded by a mixer: several contexts each give
// a probability for the next bit, weights add them, and an arithmetic coder takes the sum. The method is that
// of context mixing compressors (M. Mahoney, Adaptive Weighing of Context Models for Lossless Data
// Compression, 2005), in integers alone: packer and unpacker must compute the same numbers.

const (
	// mixedBytes is how many bytes of columns and text are coded so, of a whole dump: it takes about 1 s a MB.
	mixedBytes = 3 << 20
	// mixedArray is the size up to which a primitive array is mixed. Larger ones compress well without.
	mixedArray = 4 << 10

	mixLineBits = 18
	mixLines    = 1 << mixLineBits
	mixContext  = 10             // contexts of a byte
	mixInputs   = mixContext + 2 // and the match and a bias
	mixLimit    = 255            // a probability moves by at least 1/mixLimit of its error
	mixSets     = 4096           // weights by column
	mixRing     = 1 << 20        // bytes of text that a match can refer to
	mixIndex    = 1 << 17
	mixMinMatch = 5
)

// chance is the probability of a one in 22 bits, above the number of times that it was met in 10.
type chance = uint32

// A mixLine has the chances of four bits after a context: 0 is a check of the context, 1 the chance of the
// first bit, 2 and 3 those of the second one, and so on.
type mixLine [16]chance

// coder is an arithmetic coder of 32 bits with probabilities of 12.
type coder struct {
	decoding  bool
	lo, hi, x uint32
	out, in   []byte
}

func (c *coder) begin(in []byte) {
	c.lo, c.hi, c.x, c.out, c.in = 0, math.MaxUint32, 0, c.out[:0], in
	if c.decoding {
		for range 4 {
			c.x = c.x<<8 | uint32(c.next())
		}
	}
}

// next returns the next coded byte. Bytes missing at the end count as zeros: the sum of the dump differs then.
func (c *coder) next() (b byte) {
	if len(c.in) > 0 {
		b, c.in = c.in[0], c.in[1:]
	}
	return b
}

// bit codes a bit that is a one with probability p/4096.
func (c *coder) bit(bit int, p int32) int {
	mid := c.lo + (c.hi-c.lo)>>12*uint32(p)
	if c.decoding {
		bit = 0
		if c.x <= mid {
			bit = 1
		}
	}
	if bit == 1 {
		c.hi = mid
	} else {
		c.lo = mid + 1
	}
	for (c.lo^c.hi)>>24 == 0 {
		if c.decoding {
			c.x = c.x<<8 | uint32(c.next())
		} else {
			c.out = append(c.out, byte(c.hi>>24))
		}
		c.lo, c.hi = c.lo<<8, c.hi<<8|255
	}
	return bit
}

// end flushes the coder and returns the bytes coded since begin.
func (c *coder) end() []byte {
	c.out = append(c.out, byte(c.hi>>24), byte(c.hi>>16), byte(c.hi>>8), byte(c.hi))
	return c.out
}

// mixer codes bytes of columns and of text.
type mixer struct {
	coder
	tables
	lines  []mixLine
	byBits [int(groups) * 256][mixInputs]int32 // weights, in 1/65536, by group and the bits of the current byte so far
	bySet  [mixSets][mixInputs]int32           // added to them, by column, or length of the match
	count  int                                 // bytes coded

	context [mixContext]uint64
	line    [mixContext]*mixLine
	inputs  [mixInputs]int32

	// Columns.
	recent uint64 // bytes of any column, the last one lowest
	column uint32 // the last one used outside the planes
	ids    uint32

	// Text.
	past uint64 // the last bytes
	nameParts
	whole       uint64 // all bytes of the string so far
	ring        []byte
	index       []int32
	at          int // in ring, not wrapped
	match, long int // where the match goes on in ring, and how many bytes agreed; 0: none
	byMatch     [2 * 64]chance
}

func newMixer(decoding bool) *mixer {
	m := &mixer{coder: coder{decoding: decoding}, lines: make([]mixLine, mixLines)}
	m.tables.fill()
	for i := range m.byBits {
		for j := range m.byBits[i] {
			m.byBits[i][j] = 65536 * 3 / 10
		}
	}
	for i := range m.byMatch {
		m.byMatch[i] = 1 << 31
	}
	return m
}

const mixPrime = 0xd6e8feb86659fd93

func mixHash(a, b uint64) uint64 {
	a = (a ^ b*0x9e3779b97f4a7c15) * mixPrime
	a ^= a >> 29
	return a * mixPrime
}

// find returns the line of a context, cleared if the context is new.
func (m *mixer) find(h uint64) *mixLine {
	check := uint32(h)&0xffffff | 1<<24
	i := h >> (64 - mixLineBits)
	a, b := &m.lines[i], &m.lines[i^1]
	if a[0] == check {
		return a
	}
	if b[0] == check {
		return b
	}
	if a[1]&1023 > b[1]&1023 {
		a = b
	}
	for j := range a {
		a[j] = 1 << 31
	}
	a[0] = check
	return a
}

// code codes a byte whose contexts are set. expected is the byte that follows the match.
func (m *mixer) code(v byte, kind group, set uint32, long int, expected byte) byte {
	for i, h := range m.context {
		m.line[i] = m.find(mixHash(h, uint64(i)))
	}
	all := m.byBits[int(kind)*256:]
	own := &m.bySet[set%mixSets]
	bits, node := 1, 1
	guess := int(expected) | 256
	for k := 7; k >= 0; k-- {
		if k == 3 {
			for i, h := range m.context {
				m.line[i] = m.find(mixHash(h, uint64(bits)<<8|uint64(i)))
			}
			node = 1
		}
		w := &all[bits]
		dot := int64(0)
		for i, l := range m.line {
			s := l[node]
			x := m.stretch[s>>20]
			m.inputs[i] = x
			dot += int64(x) * int64(w[i]+own[i])
		}
		var byMatch *chance
		m.inputs[mixContext] = 0
		if long > 0 {
			if guess>>(k+1) == bits {
				byMatch = &m.byMatch[min(long, 63)*2+guess>>k&1]
				m.inputs[mixContext] = m.stretch[*byMatch>>20]
			} else {
				long = 0
			}
		}
		m.inputs[mixContext+1] = 256
		dot += int64(m.inputs[mixContext])*int64(w[mixContext]+own[mixContext]) + 256*int64(w[mixContext+1]+own[mixContext+1])
		p := m.squash[min(max(dot>>16, -2047), 2047)+2048]
		bit := m.bit(int(v>>k)&1, p)

		err := (int32(bit)<<12 - p) * 10
		for i := range w {
			d := (m.inputs[i]*err + 0x8000) >> 16
			w[i] += d
			own[i] += d
		}
		for _, l := range m.line {
			m.update(&l[node], bit)
		}
		if byMatch != nil {
			m.update(byMatch, bit)
		}
		bits, node = bits<<1|bit, node<<1|bit
	}
	return byte(bits)
}

func (m *mixer) update(s *chance, bit int) {
	n, p := *s&1023, int64(*s>>10)
	p += (int64(bit)*(1<<22-1) - p) * int64(m.divide[min(n, mixLimit)]) >> 16
	if n < mixLimit {
		n++
	}
	*s = chance(p)<<10 | n
}

// columnByte codes a byte of a column.
func (m *mixer) columnByte(k *column, v byte) byte {
	m.count++
	if k.id == 0 {
		m.ids++
		k.id = m.ids
	}
	id, g := uint64(k.id), uint64(k.group)
	last, two, three := k.past&0xff, k.past&0xffff, k.past&0xffffff
	plane := k.group >= groupPlane0 && k.group < groupWide
	if plane {
		id |= uint64(m.column) << 32
	}
	r := m.recent
	m.context = [mixContext]uint64{
		id << 1,
		mixHash(id, last|1<<40),
		mixHash(id, two|2<<40),
		mixHash(id, three|3<<40),
		mixHash(g, r&0xff|4<<40),
		mixHash(id, r&0xff|5<<40),
		mixHash(id, r&0xffff|6<<40),
		mixHash(id, r&0xffffff|7<<40),
		mixHash(g, two|8<<40),
		mixHash(mixHash(id, last), r&0xff|9<<40),
	}
	v = m.code(v, k.group, k.id, 0, 0)
	k.past = k.past<<8 | uint64(v)
	m.recent = m.recent<<8 | uint64(v)
	if !plane {
		m.column = k.id
	}
	return v
}

// begins notes that a string begins.
func (m *mixer) begins() {
	m.past, m.nameParts, m.whole, m.long = 0, nameParts{}, 0, 0
}

// textByte codes a byte of a string or of an array of bytes or chars.
func (m *mixer) textByte(kind group, v byte) byte {
	if m.ring == nil {
		m.ring, m.index = make([]byte, mixRing), make([]int32, mixIndex)
		m.at = 1
	}
	m.count++
	p := m.past
	m.context = [mixContext]uint64{
		uint64(kind),
		p&0xff | 1<<56,
		p&0xffff | 2<<56,
		p&0xffffff | 3<<56,
		p&0xffffffff | 4<<56,
		p&0xffffffffff | 5<<56,
		p&0xffffffffffff | 6<<56,
		uint64(m.word)<<8 | p&0xff | 7<<56,
		uint64(m.word)<<24 ^ uint64(m.before) | 8<<56,
		m.whole,
	}
	expected := byte(0)
	if m.long > 0 {
		expected = m.ring[m.match%mixRing]
	}
	v = m.code(v, kind, uint32(min(m.long, 63))<<6|1<<11, m.long, expected)
	if m.long > 0 && v == expected {
		m.long = min(m.long+1, 63)
		m.match++
	} else {
		m.long = 0
	}
	m.ring[m.at%mixRing] = v
	m.at++
	m.past = m.past<<8 | uint64(v)
	m.whole = mixHash(m.whole, uint64(v)+1)
	m.add(v)
	at := &m.index[mixHash(m.past&0xffffffffff, 0)>>(64-17)]
	if m.long == 0 && *at > 0 && m.at-int(*at) < mixRing {
		m.match = int(*at)
		for m.long < 32 && m.long < m.match && m.ring[(m.match-1-m.long)%mixRing] == m.ring[(m.at-1-m.long)%mixRing] {
			m.long++
		}
		if m.long < mixMinMatch {
			m.long = 0
		}
	}
	*at = int32(m.at)
	return v
}

// nameParts follows the parts of names such as getClassName: a capital letter begins one.
type nameParts struct {
	word   uint32 // of the letters of the current part
	before uint32 // of the part before
}

func (n *nameParts) add(c byte) {
	switch {
	case c >= 'a' && c <= 'z':
		n.word = (n.word + uint32(c) + 1) * 0x2545f491
	case c >= 'A' && c <= 'Z':
		n.before, n.word = n.word, uint32(c)*0x2545f491
	default:
		if n.word != 0 {
			n.before = n.word
		}
		n.word = 0
	}
}

// tables are the functions that mixers use.
type tables struct {
	squash  [4096]int32 // from -2047 to a probability of 12 bits
	stretch [4096]int32 // its inverse
	divide  [mixLimit + 1]uint32
}

// logistic is 4096/(1+exp(-x/256)) for x from -2048 in steps of 128, rounded. Exp itself may differ by
// machine.
var logistic = [...]int32{1, 2, 4, 6, 10, 17, 27, 45, 74, 120, 194, 311, 488, 747, 1102, 1546, 2048, 2550, 2994, 3349, 3608, 3785, 3902, 3976, 4022, 4051, 4069, 4079, 4086, 4090, 4092, 4094, 4095}

func (t *tables) fill() {
	for i := range t.squash {
		k, part := i/128, int32(i%128)
		t.squash[i] = (logistic[k]*(128-part) + logistic[k+1]*part) / 128
	}
	last := int32(0)
	for i := range t.squash { // the inverse
		for ; last <= t.squash[i]; last++ {
			t.stretch[last] = int32(i) - 2048
		}
	}
	for ; last < 4096; last++ {
		t.stretch[last] = 2047
	}
	for i := range t.divide {
		t.divide[i] = uint32(655360 / (10*i + 16))
	}
}
