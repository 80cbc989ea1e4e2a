package hprof

import "math"

// Names of classes, fields and methods are most of a small dump, and have few repeats that are long
// enough for zstd. A mixer predicts their bits one by one from what followed the same bytes before, the
// same part of a name, and so on, and codes how wrong it was. The method is that of context mixing
// compressors (M. Mahoney, Adaptive Weighing of Context Models for Lossless Data Compression, 2005), in
// integers alone: packer and unpacker must have the same numbers.

const (
	// mixedText is how many bytes of text are coded so, of a whole dump: it takes 1 to 2 s a MB.
	mixedText = 1 << 20
	// mixContexts are the contexts that predict together, mixSlots the probabilities of each.
	mixContexts = 9
	mixSlots    = 1 << 18
)

type textMixer struct {
	slots   [mixContexts][]chance
	weights [256][mixContexts + 1]int32 // by the bits of the current byte so far, in 1/65536
	tables

	past uint64 // the last bytes, the newest lowest
	nameParts
	bits   int // of the current byte, below a one
	at     [mixContexts]*chance
	base   [mixContexts]uint32
	inputs [mixContexts + 1]int32
	p      int32 // of the last prediction, 12 bits
}

func newTextMixer() *textMixer {
	m := &textMixer{bits: 1}
	for i := range m.slots {
		m.slots[i] = make([]chance, mixSlots)
		for j := range m.slots[i] {
			m.slots[i][j] = 1 << 31
		}
	}
	for i := range m.weights {
		for j := range m.weights[i] {
			m.weights[i][j] = 65536 * 3 / 10
		}
	}
	m.tables.fill()
	m.contexts()
	return m
}

// contexts chooses the places of the next byte's probabilities.
func (m *textMixer) contexts() {
	h := func(i int, v uint64) uint32 {
		v = (v + uint64(i+1)*0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93
		return uint32(v >> 32)
	}
	p := m.past
	for i, v := range [mixContexts]uint64{0, p & 0xff, p & 0xffff, p & 0xffffff, p & 0xffffffff, p & 0xffffffffff, p & 0xffffffffffff,
		uint64(m.word)<<8 | 1, uint64(m.word)<<32 | uint64(m.before)} {
		m.base[i] = h(i, v)
	}
}

// predict returns the probability that the next bit is a one, in 1/4096.
func (m *textMixer) predict() int32 {
	w := &m.weights[m.bits]
	dot := int64(0)
	for i := range m.slots {
		x := (m.base[i] + uint32(m.bits)*0x2f0b4c47)
		x ^= x >> 15
		s := &m.slots[i][x%mixSlots]
		m.at[i] = s
		m.inputs[i] = m.stretch[*s>>20]
		dot += int64(m.inputs[i]) * int64(w[i])
	}
	m.inputs[mixContexts] = 256
	dot += 256 * int64(w[mixContexts])
	m.p = m.squash[min(max(dot>>16, -2047), 2047)+2048]
	return m.p
}

// learn takes the bit that came.
func (m *textMixer) learn(bit int) {
	err := (int32(bit)<<12 - m.p) * 10
	w := &m.weights[m.bits]
	for i := range w {
		w[i] += (m.inputs[i]*err + 0x8000) >> 16
	}
	for _, s := range m.at {
		n, p := *s&1023, *s>>10
		target := chance(0)
		if bit == 1 {
			target = 1<<22 - 1
		}
		step := (int64(target) - int64(p)) * int64(m.divide[min(n, mixLimit)]) >> 16
		if n < mixLimit {
			n++
		}
		*s = chance(int64(p)+step)<<10 | n
	}
	if m.bits = m.bits<<1 | bit; m.bits < 256 {
		return
	}
	c := byte(m.bits)
	m.bits = 1
	m.past = m.past<<8 | uint64(c)
	m.add(c)
	m.contexts()
}

// unmix returns the n bytes that mix coded. Bytes missing at the end count as zeros: the sum of the dump
// differs then.
func (m *textMixer) unmix(coded []byte, n int) []byte {
	next := func() (c byte) {
		if len(coded) > 0 {
			c, coded = coded[0], coded[1:]
		}
		return c
	}
	lo, hi, x := uint32(0), uint32(math.MaxUint32), uint32(0)
	for range 4 {
		x = x<<8 | uint32(next())
	}
	out := make([]byte, 0, n)
	for range n {
		c := byte(0)
		for range 8 {
			mid := lo + (hi-lo)>>12*uint32(m.predict())
			bit := 0
			if x <= mid {
				bit, hi = 1, mid
			} else {
				lo = mid + 1
			}
			m.learn(bit)
			c = c<<1 | byte(bit)
			for (lo^hi)>>24 == 0 {
				lo, hi, x = lo<<8, hi<<8|255, x<<8|uint32(next())
			}
		}
		out = append(out, c)
	}
	return out
}
