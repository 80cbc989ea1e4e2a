package tally

import "math/bits"

// numbers assigns each 64-bit key a number, from 0 in order of first use. A key takes 14
// to 20 bytes, and the table never copies all keys at once: a recording has a million of
// them.
type numbers struct {
	pages [][]uint64 // keys by number, pageLen per page
	n     int
	slots []int32 // number plus 1, 0: empty; the length is a power of two
	shift uint    // shift from a hash to a slot
}

const (
	pageBits = 12
	pageLen  = 1 << pageBits
)

// hash mixes all bits of k into the upper ones.
func hash(k uint64) uint64 {
	hi, lo := bits.Mul64(k^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return (hi ^ lo) * 0x9e3779b97f4a7c15
}

func (x *numbers) len() int { return x.n }

// key returns the key with number i.
func (x *numbers) key(i int32) uint64 { return x.pages[i>>pageBits][i&(pageLen-1)] }

// find returns the number of k, or -1 and the slot to add it in.
func (x *numbers) find(k uint64) (number int32, slot int) {
	if len(x.slots) == 0 {
		x.slots, x.shift = make([]int32, 64), 64-6
	}
	for s := int(hash(k) >> x.shift); ; s = (s + 1) & (len(x.slots) - 1) {
		i := x.slots[s] - 1
		if i < 0 {
			return -1, s
		}
		if x.key(i) == k {
			return i, s
		}
	}
}

// add assigns the next number to k; find returned slot.
func (x *numbers) add(k uint64, slot int) int32 {
	i := int32(x.n)
	if x.n&(pageLen-1) == 0 {
		x.pages = append(x.pages, make([]uint64, 0, min(pageLen, max(64, x.n))))
	}
	p := &x.pages[len(x.pages)-1]
	*p = append(*p, k)
	x.n++
	x.slots[slot] = i + 1
	if x.n > len(x.slots)/4*3 {
		x.grow()
	}
	return i
}

func (x *numbers) grow() {
	x.slots = make([]int32, 2*len(x.slots))
	x.shift--
	for i := range int32(x.n) {
		s := int(hash(x.key(i)) >> x.shift)
		for x.slots[s] != 0 {
			s = (s + 1) & (len(x.slots) - 1)
		}
		x.slots[s] = i + 1
	}
}
