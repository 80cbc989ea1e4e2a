// Package inflate decompresses a zlib stream (RFC 1950, 1951) of known size in one call. It takes half of the time that a
// reader of streams takes, because it writes to the result directly and reads eight bytes at a time. Sections of debug
// files are such streams.
//
// It refuses a damaged stream as a whole. A reader of streams finds the part of it that
// can be read. Functions may be called from any goroutine.
package inflate

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// ErrStream is a stream that is damaged, has another size, or is unusual.
var ErrStream = errors.New("inflate: not a zlib stream of that size")

// Sizes of tables: the first level, and both (computed by zlib's examples/enough.c for codes of up to 15 bits).
const (
	litBits, litSize   = 11, 2342 // 288 symbols
	distBits, distSize = 8, 402   // 32 symbols
	lenBits, lenSize   = 7, 128   // 19 symbols
	maxBits            = 15
)

// Entries of tables. A symbol of literals or lengths has its value in the upper 16 bits, then the bits of its code (8 to
// 11), and the bits of the code with the extra bits that follow (0 to 4).
const (
	literal  = 1 << 31
	special  = 1 << 15           // neither literal nor length
	subtable = special | 1<<14   // upper 16 bits: where; bits 8 to 11: the bits of its index
	end      = special | 1<<13   // of the block
	invalid  = uint32(special)   // no code
	slack    = 258 + 2 + wordLen // bytes that one step may write beyond the end: a match after two literals, in words
	wordLen  = 8
)

// Padding is how many bytes a read of a word may pass the end of the input. A stream with this room in its capacity is not
// copied.
const Padding = 2 * wordLen

// decoder is the state of one stream.
type decoder struct {
	in   []byte // with Padding
	pos  int    // of the next byte for bits
	bits uint64
	n    uint // valid bits in bits; those above are the next ones too
	out  []byte
	at   int // of the next byte in out

	lit  [litSize]uint32
	dist [distSize]uint32
	code [lenSize]uint32
	lens [288 + 32]uint8
}

// Zlib returns the size bytes of a zlib stream. The checksum is not compared. The bytes between the length
// and the capacity of packed are changed.
func Zlib(packed []byte, size int) ([]byte, error) {
	const header, checksum, deflate, dictionary = 2, 4, 8, 1 << 5
	if len(packed) < header+checksum || packed[0]&0xf != deflate || packed[1]&dictionary != 0 || (int(packed[0])<<8|int(packed[1]))%31 != 0 || size < 0 {
		return nil, ErrStream
	}
	d := &decoder{in: append(packed, make([]byte, Padding)...), pos: header, out: make([]byte, size+slack)}
	for last := false; !last; {
		if !d.fill() {
			return nil, ErrStream
		}
		last = d.take(1) == 1
		ok := false
		switch d.take(2) {
		case 0:
			ok = d.stored()
		case 1:
			ok = d.fixed() && d.block()
		case 2:
			ok = d.dynamic() && d.block()
		}
		if !ok || d.at > size {
			return nil, ErrStream
		}
	}
	if d.at != size || d.used() > len(d.in)-Padding-checksum {
		return nil, ErrStream
	}
	return d.out[:size:size], nil
}

// used returns how many bytes of the input have given bits.
func (d *decoder) used() int { return d.pos - int(d.n/8) }

// fill makes at least 56 bits valid; false: the input has ended.
func (d *decoder) fill() bool {
	if d.pos > len(d.in)-wordLen {
		return false
	}
	d.bits |= binary.LittleEndian.Uint64(d.in[d.pos:]) << (d.n & 63)
	d.pos += int((d.n ^ 63) >> 3)
	d.n |= 56
	return true
}

// take returns the next n bits, which are valid.
func (d *decoder) take(n uint) uint {
	v := uint(d.bits) & (1<<n - 1)
	d.bits >>= n & 63
	d.n -= n
	return v
}

// stored copies a block that is not compressed.
func (d *decoder) stored() bool {
	d.pos, d.bits, d.n = d.used(), 0, 0
	if d.pos+4 > len(d.in) {
		return false
	}
	n, not := int(binary.LittleEndian.Uint16(d.in[d.pos:])), int(binary.LittleEndian.Uint16(d.in[d.pos+2:]))
	d.pos += 4
	if n != not^0xffff || n > len(d.in)-Padding-d.pos || n > len(d.out)-slack-d.at {
		return false
	}
	d.at += copy(d.out[d.at:], d.in[d.pos:d.pos+n])
	d.pos += n
	return true
}

// fixed builds the tables of RFC 1951 section 3.2.6.
func (d *decoder) fixed() bool {
	l := d.lens[:288+32]
	for i := range l {
		switch {
		case i < 144:
			l[i] = 8
		case i < 256:
			l[i] = 9
		case i < 280:
			l[i] = 7
		case i < 288:
			l[i] = 8
		default:
			l[i] = 5
		}
	}
	return build(d.lit[:], l[:288], litSymbols[:], litBits) && build(d.dist[:], l[288:], distSymbols[:], distBits)
}

// dynamic reads the lengths of codes (section 3.2.7) and builds the tables.
func (d *decoder) dynamic() bool {
	order := [...]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
	lits, dists, lens := int(d.take(5))+257, int(d.take(5))+1, int(d.take(4))+4
	if lits > 286 || dists > 30 {
		return false
	}
	var first [19]uint8
	for i := range lens {
		if !d.fill() {
			return false
		}
		first[order[i]] = uint8(d.take(3))
	}
	if !build(d.code[:], first[:], codeSymbols[:], lenBits) {
		return false
	}
	all := d.lens[:lits+dists]
	for i := 0; i < len(all); {
		if !d.fill() {
			return false
		}
		e := d.code[d.bits&(1<<lenBits-1)]
		if e&special != 0 {
			return false
		}
		d.take(uint(e & 0xff))
		v, again := uint8(e>>16), 1
		switch v {
		case 16: // the length before, 3 to 6 times
			if i == 0 {
				return false
			}
			v, again = all[i-1], 3+int(d.take(2))
		case 17:
			v, again = 0, 3+int(d.take(3))
		case 18:
			v, again = 0, 11+int(d.take(7))
		}
		if again > len(all)-i {
			return false
		}
		for range again {
			all[i] = v
			i++
		}
	}
	return all[256] != 0 && build(d.lit[:], all[:lits], litSymbols[:], litBits) && build(d.dist[:], all[lits:], distSymbols[:], distBits)
}

// block decompresses a block with the present tables.
func (d *decoder) block() bool {
	in, out, size := d.in, d.out, len(d.out)-slack
	pos, b, n, at := d.pos, d.bits, d.n, d.at
	for at <= size {
		if pos > len(in)-wordLen {
			return false
		}
		b |= binary.LittleEndian.Uint64(in[pos:]) << (n & 63)
		pos += int((n ^ 63) >> 3)
		n |= 56
		e := d.lit[b&(1<<litBits-1)]
		// Two literals of the first level and a match have at most 22 + 20 bits, its distance 28 more.
		if e&literal != 0 {
			b >>= e & 63
			n -= uint(e & 63)
			out[at] = byte(e >> 16)
			at++
			e = d.lit[b&(1<<litBits-1)]
			if e&literal != 0 {
				b >>= e & 63
				n -= uint(e & 63)
				out[at] = byte(e >> 16)
				at++
				e = d.lit[b&(1<<litBits-1)]
			}
		}
		if e&special != 0 {
			if e&subtable == subtable {
				b >>= litBits
				n -= litBits
				e = d.lit[int(e>>16)+int(b&(1<<(e>>8&15)-1))]
			}
			if e&special != 0 {
				if e&end != end {
					return false
				}
				b >>= e & 63
				n -= uint(e & 63)
				d.pos, d.bits, d.n, d.at = pos, b, n, at
				return true
			}
		}
		from := b
		b >>= e & 63
		n -= uint(e & 63)
		if e&literal != 0 {
			out[at] = byte(e >> 16)
			at++
			continue
		}
		length := int(e>>16) + int(from&(1<<(e&63)-1)>>(e>>8&15))
		if pos > len(in)-wordLen {
			return false
		}
		b |= binary.LittleEndian.Uint64(in[pos:]) << (n & 63)
		pos += int((n ^ 63) >> 3)
		n |= 56
		e = d.dist[b&(1<<distBits-1)]
		if e&special != 0 {
			if e&subtable != subtable {
				return false
			}
			b >>= distBits
			n -= distBits
			if e = d.dist[int(e>>16)+int(b&(1<<(e>>8&15)-1))]; e&special != 0 {
				return false
			}
		}
		from = b
		b >>= e & 63
		n -= uint(e & 63)
		dist := int(e>>16) + int(from&(1<<(e&63)-1)>>(e>>8&15))
		if dist > at {
			return false
		}
		match(out[at-dist:], dist, length)
		at += length
	}
	return false
}

// match writes length bytes at dist in b, a copy of those before, and up to wordLen-1 bytes more.
func match(b []byte, dist, length int) {
	if dist >= wordLen {
		for i := 0; i < length; i += wordLen {
			binary.LittleEndian.PutUint64(b[dist+i:], binary.LittleEndian.Uint64(b[i:]))
		}
		return
	}
	to := b[dist : dist+length]
	for i := range to {
		to[i] = b[i]
	}
}

// build makes the table of a code from the lengths of its symbols (section 3.2.2). It accepts complete codes, an empty
// one, and one of a single symbol of one bit, as zlib does.
func build(table []uint32, lens []uint8, symbols []uint32, first uint) bool {
	var count, next [maxBits + 2]int
	for _, l := range lens {
		count[l]++
	}
	used := len(lens) - count[0]
	count[0] = 0
	left := 1
	for l := 1; l <= maxBits; l++ {
		if left = left<<1 - count[l]; left < 0 {
			return false
		}
		next[l+1] = next[l] + count[l]
	}
	if left > 0 {
		if used > 1 || used != count[1] {
			return false
		}
		for i := range 1 << first {
			table[i] = invalid
		}
	}
	var sorted [288]uint16
	for i, l := range lens {
		if l != 0 {
			sorted[next[l]] = uint16(i)
			next[l]++
		}
	}
	code, l, size := 0, uint(1), 1<<first
	sub, subAt, subBits := -1, 0, uint(0)
	for _, s := range sorted[:used] {
		for count[l] == 0 {
			l++
			code <<= 1
		}
		rev := int(bits.Reverse16(uint16(code)) >> (16 - l))
		if l <= first {
			for i := rev; i < 1<<first; i += 1 << l {
				table[i] = symbols[s] + uint32(l<<8|l)
			}
		} else {
			if sub != rev&(1<<first-1) {
				sub, subAt, subBits = rev&(1<<first-1), size, l-first
				for n := count[l]; n < 1<<subBits; n = n<<1 + count[first+subBits] {
					subBits++
				}
				if size += 1 << subBits; size > len(table) {
					return false
				}
				table[sub] = subtable | uint32(subAt)<<16 | uint32(subBits)<<8 | uint32(first)
			}
			for i := rev >> first; i < 1<<subBits; i += 1 << (l - first) {
				table[subAt+i] = symbols[s] + uint32((l-first)<<8|(l-first))
			}
		}
		count[l]--
		code++
	}
	return true
}

// The entries of symbols without the bits of their codes; extra bits are added to bits 0 to 4 (section 3.2.5).
var (
	litSymbols  = litEntries()
	distSymbols = distEntries()
	codeSymbols = codeEntries()
)

func litEntries() (s [288]uint32) {
	for i := range 256 {
		s[i] = literal | uint32(i)<<16
	}
	s[256] = end
	base := uint32(3)
	for i := 257; i < 285; i++ {
		extra := uint32(0)
		if i >= 265 {
			extra = uint32(i-261) / 4
		}
		s[i] = base<<16 | extra
		base += 1 << extra
	}
	s[285] = 258 << 16
	s[286], s[287] = invalid, invalid
	return s
}

func distEntries() (s [32]uint32) {
	base := uint32(1)
	for i := range 30 {
		extra := uint32(0)
		if i >= 4 {
			extra = uint32(i-2) / 2
		}
		s[i] = base<<16 | extra
		base += 1 << extra
	}
	s[30], s[31] = invalid, invalid
	return s
}

func codeEntries() (s [19]uint32) {
	for i := range s {
		s[i] = uint32(i) << 16
	}
	return s
}
