package graph

import (
	"math/bits"
	"slices"
	"sort"
)

// An index numbers the objects of a dump from 1 in the order of their IDs.
//
// IDs are addresses in most dumps: they lie close together and share their low bits. Then
// the index is a bitmap of the addresses with a count in front of each 64 of them, in
// pages that only exist where there are objects: 2 to 4 bytes an object. IDs that are far
// apart are kept in a sorted array instead.
type index struct {
	n     uint32
	base  uint64
	shift uint
	pages []uint32 // by page of addresses: which page of words it is, from 1; 0: no object
	words []uint64 // pairs: 64 slots, objects in front of them
	used  uint32   // pages of words
	order []uint32 // pages that exist, in the order of addresses

	ids []uint64 // sorted, where pages is nil
	// For ids: where those of each range of values begin.
	top      []uint32
	topShift uint
}

// A page has pageSlots addresses, and pageWords words.
const (
	pageShift = 12
	pageSlots = 1 << pageShift
	pageWords = pageSlots / 64 * 2
)

// maxObjects is how many objects an index can number: the highest bit of a number marks
// the end of a list of references.
const maxObjects = 1<<31 - 16

// span is what a first pass has to know of the IDs.
type span struct {
	min, max uint64
	differ   uint64 // bits in which any two IDs differ
	first    uint64
	n        uint64
}

func (s *span) add(id uint64) {
	if s.n == 0 {
		s.min, s.max, s.first = id, id, id
	}
	s.n++
	s.min = min(s.min, id)
	s.max = max(s.max, id)
	s.differ |= id ^ s.first
}

func (s *span) shift() uint { return uint(min(bits.TrailingZeros64(s.differ), 63)) }

// pages returns how many pages the span has, 0 if that is not worth a bitmap.
func (s *span) pages() int64 {
	pages := (s.max-s.min)>>s.shift()>>pageShift + 1
	if s.n == 0 || pages > max(4096, 2*s.n) {
		return 0
	}
	return int64(pages)
}

// maxWords returns how many words a bitmap may need: a page for each object, or all.
func (s *span) maxWords() int64 { return min(s.pages(), int64(s.n)) * pageWords }

// bytes returns about what an index takes. Objects of a heap are close to each other, so
// that a page is rarely for less than ten.
func (s *span) bytes() int64 {
	if s.pages() == 0 {
		return int64(s.n) * 9
	}
	return s.pages()*4 + min(s.maxWords()*8, int64(s.n)*sparseBytes)
}

// sparseBytes an object are what a bitmap may take; above, a sorted array is better.
const sparseBytes = 12

// newBitmap returns an index without objects over the span. words has maxWords of it,
// zeroed.
func newBitmap(s span, words []uint64) *index {
	return &index{base: s.min, shift: s.shift(), pages: make([]uint32, s.pages()), words: words}
}

// set adds an ID to a bitmap. Not for concurrent use.
func (x *index) set(id uint64) {
	slot := (id - x.base) >> x.shift
	*x.word(slot) |= 1 << (slot % 64)
}

// word returns the word of a slot.
func (x *index) word(slot uint64) *uint64 {
	p := &x.pages[slot>>pageShift]
	if *p == 0 {
		x.used++
		*p = x.used
	}
	return &x.words[(uint64(*p)-1)*pageWords+slot%pageSlots/64*2]
}

// seal counts the bitmap's objects; from then on it can be asked.
func (x *index) seal() {
	x.words = x.words[:uint64(x.used)*pageWords]
	x.order = make([]uint32, 0, x.used)
	var n uint64
	for i, p := range x.pages {
		if p == 0 {
			continue
		}
		x.order = append(x.order, uint32(i))
		words := x.words[(uint64(p)-1)*pageWords:][:pageWords]
		for i := 0; i < pageWords; i += 2 {
			words[i+1] = n
			n += uint64(bits.OnesCount64(words[i]))
		}
	}
	x.n = uint32(n)
}

// sparse reports whether a sealed bitmap takes more than a sorted array would.
func (x *index) sparse() bool {
	return x.pages != nil && int64(len(x.words))*8 > int64(x.n)*sparseBytes+1<<20
}

// all yields the IDs in order.
func (x *index) all(yield func(id uint64) bool) {
	if x.pages == nil {
		for _, id := range x.ids {
			if !yield(id) {
				return
			}
		}
		return
	}
	for _, page := range x.order {
		words := x.page(page)
		for i := 0; i < pageWords; i += 2 {
			for word := words[i]; word != 0; word &= word - 1 {
				slot := uint64(page)<<pageShift + uint64(i)*32 + uint64(bits.TrailingZeros64(word))
				if !yield(x.base + slot<<x.shift) {
					return
				}
			}
		}
	}
}

func (x *index) page(i uint32) []uint64 {
	return x.words[(uint64(x.pages[i])-1)*pageWords:][:pageWords]
}

// newSorted returns the index of IDs in any order. It keeps the slice.
func newSorted(ids []uint64) *index {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	n := len(ids)
	x := &index{n: uint32(n), ids: ids}
	if n == 0 {
		return x
	}
	x.base = ids[0]
	width := bits.Len64(ids[n-1] - x.base)
	want := max(bits.Len(uint(n))-3, 0)
	x.topShift = uint(max(width-want, 0))
	x.top = make([]uint32, (ids[n-1]-x.base)>>x.topShift+2)
	at := 0
	for i := range x.top { // where the IDs of range i begin
		for at < n && (ids[at]-x.base)>>x.topShift < uint64(i) {
			at++
		}
		x.top[i] = uint32(at)
	}
	return x
}

// find returns the number of the object id, 0 if the dump has none.
func (x *index) find(id uint64) uint32 {
	if x.pages != nil {
		d := id - x.base
		slot := d >> x.shift
		p := slot >> pageShift
		if p >= uint64(len(x.pages)) || slot<<x.shift != d || x.pages[p] == 0 {
			return 0
		}
		w := (uint64(x.pages[p])-1)*pageWords + slot%pageSlots/64*2
		word := x.words[w]
		bit := slot % 64
		if word>>bit&1 == 0 {
			return 0
		}
		return uint32(x.words[w+1]) + uint32(bits.OnesCount64(word&(1<<bit-1))) + 1
	}
	if x.n == 0 || id < x.base || id > x.ids[x.n-1] {
		return 0
	}
	t := (id - x.base) >> x.topShift
	from, to := x.top[t], x.top[t+1]
	i, ok := slices.BinarySearch(x.ids[from:to], id)
	if !ok {
		return 0
	}
	return from + uint32(i) + 1
}

// id returns the ID of an object. Preconditions: 1 <= o <= n.
func (x *index) id(o uint32) uint64 {
	if x.pages == nil {
		return x.ids[o-1]
	}
	want := uint64(o - 1)
	// The last page, and in it the last pair, with at most want objects in front.
	at := sort.Search(len(x.order), func(i int) bool { return x.page(x.order[i])[1] > want }) - 1
	words := x.page(x.order[at])
	p := sort.Search(pageWords/2, func(i int) bool { return words[2*i+1] > want }) - 1
	word := words[2*p]
	for range want - words[2*p+1] {
		word &= word - 1
	}
	return x.base + (uint64(x.order[at])<<pageShift+uint64(p)*64+uint64(bits.TrailingZeros64(word)))<<x.shift
}
