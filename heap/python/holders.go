package python

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// Holders are found conservatively: any aligned word that is the address of an object
// counts as a reference to it. The word belongs to the object in which it is, or to the one that
// refers to the memory in which it is, as a list refers to its elements.
const (
	maxHeld    = 1 << 20 // objects whose holders are sought
	maxBuffers = 1 << 24 // addresses of memory that objects refer to
	maxSteps   = 6       // of a path
	maxWays    = 32      // holders of an object that are followed: some are dead memory
	maxLists   = 64      // lists whose elements begin before a word
	maxTries   = 8       // addresses before a word of which one may be that of its block
	maxBack    = 64 << 20
	frontBytes = 32 // before an object with a managed dictionary: its attributes, and the collector's links
	linkBytes  = 16 // of these the collector's links
	tailBytes  = 264
	maxKey     = 64 // bytes of a key that is shown
)

// Path is a way on which objects are held.
type Path struct {
	// Steps are the holders, the nearest first: names of types, with the key of a dictionary if it is a
	// text: dict["cache"].
	Steps   []string
	Objects uint64
}

// Holdings are what holds the objects of types with a name.
type Holdings struct {
	Name    string
	Objects uint64 // of the types
	Looked  uint64 // objects whose holders were sought; at most 1,048,576
	Unheld  uint64 // of these, no object holds: only stacks, registers or C do, or they are dead
	Paths   []Path // those of most objects first
}

// Holders finds what holds the objects of the types called name. See Take for mem and maps.
func Holders(ctx context.Context, mem io.ReaderAt, maps []stack.Mapping, name string) (*Holdings, error) {
	r, err := newReader(ctx, mem, maps)
	if err != nil {
		return nil, err
	}
	h := &holders{reader: r, starts: newSlots(r.maps), wanted: newSlots(r.maps), by: map[uint64][]step{}, best: map[uint64]way{}}
	out := &Holdings{Name: name}
	var first []uint64
	r.visit = func(addr uint64, t *Type) {
		h.starts.set(addr)
		if t.Name == name {
			if out.Objects++; len(first) < maxHeld {
				first = append(first, addr)
			}
		}
	}
	if _, err := r.take(ctx); err != nil {
		return nil, err
	}
	r.visit = nil
	if out.Objects == 0 {
		return nil, fmt.Errorf("no object of a class called %q", name)
	}
	out.Looked = uint64(len(first))
	if err := h.findBuffers(ctx); err != nil {
		return nil, err
	}
	for front, n := first, 0; len(front) > 0 && n < maxSteps; n++ {
		if front, err = h.step(ctx, front); err != nil {
			return nil, err
		}
	}
	h.findWays()
	h.paths(first, out)
	return out, nil
}

// step is the holder of an object.
type step struct {
	holder uint64
	text   string
	guess  int // see owner
}

// way is the best way from an object outward.
type way struct {
	whole bool // it reaches a module; otherwise an object that none is known to hold
	guess int  // of all steps
	steps int
	next  step
}

// better reports whether w is preferred to x: ways to a module come first, then fewer guesses, then fewer steps.
func (w *way) better(x *way) bool {
	switch {
	case w.whole != x.whole:
		return w.whole
	case w.guess != x.guess:
		return w.guess < x.guess
	}
	return w.steps < x.steps
}

// holders is a search.
type holders struct {
	*reader
	starts, wanted *slots
	buffers        []buffer          // by address
	lists          []list            // by address
	by             map[uint64][]step // up to maxWays holders of an object
	best           map[uint64]way
}

// buffer is memory that an object refers to and that is not an object.
type buffer struct{ addr, owner uint64 }

// list is the memory of a list's elements, whose length is known: ob_size and ob_item of PyListObject are the
// same in 3.8 to 3.14 (Include/cpython/listobject.h).
type list struct{ addr, end, owner uint64 }

const elementsOff = 24 // ob_item

// leaves are types whose objects hold no others; their content may look as if.
var leaves = map[string]bool{"str": true, "bytes": true, "bytearray": true, "int": true, "bool": true, "float": true, "complex": true, "NoneType": true}

// slots is a bitmap: one bit for 16 bytes of mappings.
type slots struct {
	maps []stack.Mapping
	bits [][]uint64
	last int // mapping that was found last
}

func newSlots(maps []stack.Mapping) *slots {
	return &slots{maps: maps, bits: make([][]uint64, len(maps))}
}

// find returns the number of the mapping that has addr, -1: none.
func (s *slots) find(addr uint64) int {
	if m := &s.maps[s.last]; addr >= m.Start && addr < m.End {
		return s.last
	}
	i := sort.Search(len(s.maps), func(i int) bool { return s.maps[i].End > addr })
	if i == len(s.maps) || addr < s.maps[i].Start {
		return -1
	}
	s.last = i
	return i
}

func (s *slots) set(addr uint64) {
	i := s.find(addr)
	if i < 0 {
		return
	}
	m := &s.maps[i]
	if s.bits[i] == nil {
		s.bits[i] = make([]uint64, (m.End-m.Start)/slot/64+1)
	}
	k := (addr - m.Start) / slot
	s.bits[i][k/64] |= 1 << (k % 64)
}

func (s *slots) has(addr uint64) bool {
	if addr%slot != 0 || addr < s.maps[0].Start || addr >= s.maps[len(s.maps)-1].End {
		return false
	}
	i := s.find(addr)
	if i < 0 || s.bits[i] == nil {
		return false
	}
	k := (addr - s.maps[i].Start) / slot
	return s.bits[i][k/64]>>(k%64)&1 != 0
}

// before returns the last start at or before addr, and not below low; 0: none.
func (s *slots) before(addr, low uint64) uint64 {
	i := s.find(addr)
	if i < 0 || s.bits[i] == nil {
		return 0
	}
	begin := s.maps[i].Start
	low = max(low, begin, addr-min(addr, maxBack))
	k := (addr - begin) / slot
	w := s.bits[i][k/64] << (63 - k%64)
	for {
		if w != 0 {
			if at := begin + (k-uint64(bits.LeadingZeros64(w)))*slot; at >= low {
				return at
			}
			return 0
		}
		if k < 64 || begin+(k/64*64)*slot <= low {
			return 0
		}
		k = k/64*64 - 1
		w = s.bits[i][k/64]
	}
}

// clear removes all bits.
func (s *slots) clear() {
	for _, b := range s.bits {
		clear(b)
	}
}

// objectAt returns the type of the object at addr and its size; nil: it cannot be read.
func (h *holders) objectAt(addr uint64) (t *Type, size uint64) {
	var b [sizeOff + 8]byte
	n, _ := h.mem.ReadAt(b[:], int64(addr))
	if n < slot {
		return nil, 0
	}
	if t = h.typeOf(b[:n]); t == nil {
		return nil, 0
	}
	return t, h.sizeOf(t, addr, b[:n])
}

// findBuffers finds the memory that objects refer to.
func (h *holders) findBuffers(ctx context.Context) error {
	var front [frontBytes]byte
	add := func(w, owner, size uint64) {
		if w%8 != 0 || w >= owner && w < owner+size || len(h.buffers) == maxBuffers || h.starts.has(w) || h.starts.find(w) < 0 {
			return
		}
		h.buffers = append(h.buffers, buffer{w, owner})
	}
	err := h.each(ctx, h.maps, func(addr uint64, b []byte) {
		if !h.starts.has(addr) {
			return
		}
		t := h.typeOf(b)
		if t == nil || leaves[t.Name] {
			return
		}
		size := h.sizeOf(t, addr, b)
		if t.Name == "list" && len(b) >= elementsOff+8 {
			if at, n := le(b[elementsOff:]), le(b[sizeOff:]); n > 0 && n < maxItems && h.starts.find(at) >= 0 && len(h.lists) < maxBuffers {
				h.lists = append(h.lists, list{at, at + 8*n, addr})
			}
			return
		}
		for i := uint64(slot); i+8 <= min(size, uint64(len(b))); i += 8 {
			add(le(b[i:]), addr, size)
		}
		if t.outside {
			if n, _ := h.mem.ReadAt(front[:], int64(addr-frontBytes)); n == len(front) {
				for i := 0; i < frontBytes-linkBytes; i += 8 {
					add((le(front[i:])+7)&^7, addr, size) // 3.12 has the address of values less 1
				}
			}
		}
	})
	slices.SortFunc(h.buffers, func(a, b buffer) int { return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(a.owner, b.owner)) })
	slices.SortFunc(h.lists, func(a, b list) int { return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(a.owner, b.owner)) })
	return err
}

// How sure it is that a word belongs to an object.
const (
	sure    = iota // it is in the object or in a list's elements
	inBlock        // it is in a block of memory whose beginning the object refers to
	behind         // it is behind such an address, in a block of unknown length
)

// owner returns the object that has the word at addr; 0: none.
func (h *holders) owner(addr uint64) (o uint64, t *Type, guess int) {
	if l := h.listOf(addr); l != nil {
		t, _ = h.objectAt(l.owner)
		return l.owner, t, sure
	}
	i := sort.Search(len(h.buffers), func(i int) bool { return h.buffers[i].addr > addr }) - 1
	low := uint64(0)
	if i >= 0 && h.starts.find(h.buffers[i].addr) == h.starts.find(addr) {
		low = h.buffers[i].addr
	}
	if o := h.starts.before(addr, low); o != 0 {
		t, size := h.objectAt(o)
		if t != nil && addr < o+size {
			return o, t, sure
		}
		if t != nil && t.inline && addr < o+size+tailBytes {
			return o, t, inBlock
		}
		// In front of an object that follows.
		for at := (addr + slot - 1) / slot * slot; at <= addr+frontBytes; at += slot {
			if h.starts.has(at) {
				if t, _ := h.objectAt(at); t != nil && t.outside && addr < at-linkBytes {
					return at, t, sure
				}
				break
			}
		}
		return 0, nil, sure
	}
	if low == 0 {
		return 0, nil, sure
	}
	nearest, last := i, uint64(0)
	for tries := 0; i >= 0 && tries < maxTries; i-- {
		at := h.buffers[i].addr
		if at == last {
			continue // another owner of the same
		}
		last = at
		tries++
		if addr < at+h.extent(at) {
			o = h.buffers[i].owner
			t, _ = h.objectAt(o)
			return o, t, inBlock
		}
	}
	o = h.buffers[nearest].owner // or it is dead memory
	t, _ = h.objectAt(o)
	return o, t, behind
}

// listOf returns the list that has its elements at addr, of several the longest; nil: none. Dead lists may
// refer into the elements of others.
func (h *holders) listOf(addr uint64) (best *list) {
	i := sort.Search(len(h.lists), func(i int) bool { return h.lists[i].addr > addr }) - 1
	for n := 0; i >= 0 && n < maxLists; i, n = i-1, n+1 {
		if l := &h.lists[i]; addr < l.end && (best == nil || l.end-l.addr > best.end-best.addr) {
			best = l
		}
	}
	return best
}

// extent returns how long the block of memory at addr is at most: a block of glibc's malloc has
// its size before it, one of CPython's pools has it in the head of the pool (struct pool_header of
// Objects/obmalloc.c, the same in 3.8 to 3.14; pools have 4 KiB, since 3.10 16 KiB).
func (h *holders) extent(addr uint64) uint64 {
	const poolHead, indexOff, nextOff, maxSmall, largest = 48, 36, 40, 512, 1 << 34
	var b [poolHead]byte
	for _, pool := range [...]uint64{4 << 10, 16 << 10} {
		begin := addr &^ (pool - 1)
		if n, _ := h.mem.ReadAt(b[:], int64(begin)); n < len(b) || addr < begin+poolHead {
			continue
		}
		index, next := binary.LittleEndian.Uint32(b[indexOff:]), binary.LittleEndian.Uint32(b[nextOff:])
		size := 16 * (uint64(index) + 1)
		if size <= maxSmall && uint64(next) <= pool && uint64(next) >= poolHead && (addr-begin-poolHead)%size == 0 {
			return size
		}
	}
	if n, _ := h.mem.ReadAt(b[:8], int64(addr-8)); n == 8 && addr%16 == 0 {
		if size := le(b[:]) &^ 7; size > maxSmall && size < largest && size%16 == 0 {
			return size - 8
		}
	}
	return maxSmall
}

// step finds holders of objects, and returns those whose own holders are not known.
func (h *holders) step(ctx context.Context, front []uint64) (next []uint64, err error) {
	h.wanted.clear()
	for _, addr := range front {
		h.wanted.set(addr)
	}
	seen := map[uint64]bool{}
	err = h.each(ctx, h.maps, func(addr uint64, b []byte) {
		for i := uint64(0); i < slot; i += 8 {
			to := le(b[i:])
			if !h.wanted.has(to) || i == typeOff && h.starts.has(addr) {
				continue
			}
			o, t, guess := h.owner(addr + i)
			if t == nil || o == to || leaves[t.Name] || strings.HasPrefix(t.Name, "weakref") || strings.HasPrefix(t.Name, "weakproxy") || slices.ContainsFunc(h.by[to], func(s step) bool { return s.holder == o }) {
				continue
			}
			text := t.Name
			if guess != sure && t.Name == "dict" {
				text += h.key(addr + i - 8)
			}
			if !h.hold(to, step{o, text, guess}) {
				continue
			}
			if t.Name == "module" {
				h.best[o] = way{whole: true}
			} else if _, found := h.by[o]; !found && !seen[o] && !h.wanted.has(o) && len(next) < maxHeld {
				seen[o] = true
				next = append(next, o)
			}
		}
	})
	return next, err
}

// hold notes a holder of an object, unless there are enough better ones.
func (h *holders) hold(o uint64, s step) bool {
	all := h.by[o]
	if len(all) < maxWays {
		h.by[o] = append(all, s)
		return true
	}
	worst := 0
	for i := range all {
		if all[i].guess > all[worst].guess {
			worst = i
		}
	}
	if all[worst].guess <= s.guess {
		return false
	}
	all[worst] = s
	return true
}

// findWays finds the best ways of at most maxSteps steps, from their ends inward.
func (h *holders) findWays() {
	for range maxSteps {
		changed := false
		for o, all := range h.by {
			best, known := h.best[o]
			for _, s := range all {
				w, ok := h.best[s.holder]
				if _, held := h.by[s.holder]; !ok && held {
					continue // not known yet
				}
				w.guess, w.steps, w.next = w.guess+s.guess, w.steps+1, s
				if w.steps <= maxSteps && (!known || w.better(&best)) {
					best, known, changed = w, true, true
				}
			}
			if known {
				h.best[o] = best
			}
		}
		if !changed {
			return
		}
	}
}

// steps returns the best way from an object as texts.
func (h *holders) steps(o uint64) (all []string) {
	for range maxSteps {
		w, ok := h.best[o]
		if !ok || w.steps == 0 {
			break
		}
		all = append(all, w.next.text)
		o = w.next.holder
	}
	if all == nil && len(h.by[o]) > 0 { // in a circle
		all = []string{h.by[o][0].text}
	}
	return all
}

// key returns the text of the key at addr as ["text"]; "": it is not one.
func (h *holders) key(addr uint64) string {
	var w [8]byte
	if n, _ := h.mem.ReadAt(w[:], int64(addr)); n < 8 || !h.starts.has(le(w[:])) {
		return ""
	}
	at := le(w[:])
	t, _ := h.objectAt(at)
	if t == nil || t.Name != "str" {
		return ""
	}
	// The characters of an ASCII text follow the object's head, of 40 bytes since 3.12 and 48 before.
	const length = 16
	var b [48 + maxKey + 1]byte
	got, _ := h.mem.ReadAt(b[:], int64(at))
	if got < 48 {
		return ""
	}
	n := le(b[length:])
	for _, head := range [...]uint64{40, 48} {
		if n == 0 || n > maxKey || head+n >= uint64(got) || b[head+n] != 0 {
			continue
		}
		text := string(b[head : head+n])
		if strings.IndexFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) < 0 {
			return "[" + strconv.Quote(text) + "]"
		}
	}
	return ""
}

// paths adds up the ways to the objects.
func (h *holders) paths(objects []uint64, out *Holdings) {
	counts := map[string]*Path{}
	for _, o := range objects {
		steps := h.steps(o)
		if len(steps) == 0 {
			out.Unheld++
			continue
		}
		key := strings.Join(steps, "\x00")
		if counts[key] == nil {
			counts[key] = &Path{Steps: steps}
		}
		counts[key].Objects++
	}
	for _, p := range counts {
		out.Paths = append(out.Paths, *p)
	}
	slices.SortFunc(out.Paths, func(a, b Path) int {
		return cmp.Or(cmp.Compare(b.Objects, a.Objects), slices.Compare(a.Steps, b.Steps))
	})
}
