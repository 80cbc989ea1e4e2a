package leak

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"unicode/utf16"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/hprof"
)

const (
	// maxHashed bounds what of an array is compared: longer ones are compared by their
	// first bytes and their length.
	maxHashed = 64 << 10
	// maxDistinct bounds how many contents are counted at a time: where there are more,
	// those seen once are forgotten.
	maxDistinct = 1 << 20
	// largeNulls is the least number of elements of an array that is reported for its nulls.
	largeNulls = 64 << 10
)

// copies counts arrays of the same content. It has no pointers, so that a garbage collection does not go
// through millions of them.
type copies struct {
	sum     uint64 // of the content
	offset  int64  // of the first one in the dump
	example uint64 // its ID
	size    int64
	length  int32
	count   int32
	class   int32 // index in contents.classes
}

// countContents begins to find arrays with the same content, of one value, and of nulls, beside the other steps: the
// pass reads all arrays, and the others use one CPU. It works at every level. The returned step awaits the end of the
// pass and adds the findings; stop ends the pass.
func (s *search) countContents() (report func() error, stop func()) {
	c := contents{s: s, seed: maphash.MakeSeed(), distinct: maxDistinct, numbers: map[*graph.Class]int32{}, constants: map[string]*constant{},
		ref: s.refBytes(), zeroed: s.zeroedByStrip()}
	if m := s.g.Memory(); m > 0 {
		c.distinct = int(min(maxDistinct, m/16/copiesBytes))
	}
	c.same = make([]copies, 0, min(c.distinct, s.g.Len())) // growing it would leave as much behind
	ctx, cancel := context.WithCancel(s.ctx)
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = graph.EachArray(ctx, s.g, maxHashed, c.collect, c.merge)
	}()
	return func() error {
			if <-done; err != nil {
				return err
			}
			if c.zeroed {
				s.report.Losses = append(s.report.Losses, "all arrays of the dump have the same values, as in a stripped dump: duplicates and constants are unknown")
			}
			c.duplicates()
			c.reportConstants()
			c.reportNulls()
			return nil
		}, func() {
			cancel()
			<-done
		}
}

// contents counts arrays by their content.
type contents struct {
	s      *search
	zeroed bool // the dump's arrays have lost their content

	seed     maphash.Seed
	same     []copies
	slots    []uint32 // open addressing by sum: 1 + an index in same; 0: free
	distinct int      // bound of same
	forgot   bool     // contents seen once were dropped
	classes  []*graph.Class
	numbers  map[*graph.Class]int32 // in classes

	constants map[string]*constant // by class and value

	ref        int64   // bytes of a reference
	nulls      []nulls // the largest ones, by bytes
	nullBytes  int64   // of all
	nullArrays int
}

// copiesBytes is about what a content takes.
const copiesBytes = 64

// constant counts arrays that have one value in all elements.
type constant struct {
	count int
	bytes int64
	best  uint64 // ID of the largest
	most  int64
}

// nulls is an array of objects that is mostly null.
type nulls struct {
	id            uint64
	class         *graph.Class
	length, nulls int
	bytes         int64
}

// counted is an array that merge adds to one of the counts.
type counted struct {
	class         *graph.Class
	id            uint64
	offset        int64
	size          int64
	bits          uint64 // of primitive arrays: the hash of the content, or the value of all elements
	length, nulls int
	value         bool // all elements have one value
	kind          hprof.Type
}

// collect notes an array, for one count at most. Several goroutines call it.
func (c *contents) collect(a *graph.Array, batch *[]counted) {
	g := c.s.g
	n := counted{class: a.Class, id: a.ID, offset: a.Offset, size: a.Size, length: a.Length, nulls: a.Nulls, kind: a.Type}
	switch {
	case a.Object != 0 && g.HasTree() && g.Strength(a.Object) == graph.Garbage:
		return
	case a.Type == hprof.TypeObject:
		if a.Length < largeNulls || a.Nulls*2 <= a.Length {
			return
		}
	case c.zeroed || a.Length == 0:
		return
	case a.Same && a.Length >= 16:
		n.value, n.bits = true, firstValue(a)
	default:
		n.bits = c.hash(a)
	}
	*batch = append(*batch, n)
}

// merge adds a batch to the counts, and empties it.
func (c *contents) merge(batch *[]counted) {
	for i := range *batch {
		switch n := &(*batch)[i]; {
		case n.kind == hprof.TypeObject:
			c.addNulls(n)
		case n.value:
			c.addConstant(n)
		default:
			c.addContent(n)
		}
	}
	*batch = (*batch)[:0]
}

func (c *contents) addNulls(a *counted) {
	n := nulls{a.id, a.class, a.length, a.nulls, int64(a.nulls) * c.ref}
	c.nullBytes += n.bytes
	c.nullArrays++
	i, _ := slices.BinarySearchFunc(c.nulls, n, func(x, y nulls) int { return cmp.Compare(y.bytes, x.bytes) })
	if c.nulls = slices.Insert(c.nulls, i, n); len(c.nulls) > maxFindings {
		c.nulls = c.nulls[:maxFindings]
	}
}

func (c *contents) addConstant(a *counted) {
	key := a.class.Name + " of " + graph.Value{Type: a.kind, Bits: a.bits}.String()
	k := c.constants[key]
	if k == nil && len(c.constants) >= maxConstants {
		key = a.class.Name + " of other values"
		k = c.constants[key]
	}
	if k == nil {
		k = &constant{}
		c.constants[key] = k
	}
	k.count++
	k.bytes += a.size
	if a.size > k.most {
		k.best, k.most = a.id, a.size
	}
}

// hash returns the hash of an array's type, length and content.
func (c *contents) hash(a *graph.Array) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	var head [9]byte
	head[0] = byte(a.Type)
	binary.LittleEndian.PutUint64(head[1:], uint64(a.Length))
	h.Write(head[:])
	h.Write(a.Bytes)
	return h.Sum64()
}

func (c *contents) addContent(a *counted) {
	if 2*(len(c.same)+1) > len(c.slots) {
		if len(c.same) >= c.distinct {
			c.forgetSingle()
		}
		c.rehash()
	}
	i := c.slot(a.bits)
	if at := c.slots[i]; at != 0 {
		c.same[at-1].count++
		return
	}
	number, ok := c.numbers[a.class]
	if !ok {
		number = int32(len(c.classes))
		c.numbers[a.class] = number
		c.classes = append(c.classes, a.class)
	}
	c.same = append(c.same, copies{sum: a.bits, offset: a.offset, example: a.id, size: a.size, length: int32(a.length), count: 1, class: number})
	c.slots[i] = uint32(len(c.same))
}

// slot returns the index of sum's slot, or of the free one for it.
func (c *contents) slot(sum uint64) uint64 {
	mask := uint64(len(c.slots) - 1)
	i := sum & mask
	for c.slots[i] != 0 && c.same[c.slots[i]-1].sum != sum {
		i = (i + 1) & mask
	}
	return i
}

// rehash makes new slots, for twice as many contents as there are.
func (c *contents) rehash() {
	size := 1024
	for size < 4*(len(c.same)+1) {
		size *= 2
	}
	c.slots = make([]uint32, size)
	for i := range c.same {
		c.slots[c.slot(c.same[i].sum)] = uint32(i + 1)
	}
}

// forgetSingle drops the contents seen once.
func (c *contents) forgetSingle() {
	c.forgot = true
	c.same = slices.DeleteFunc(c.same, func(k copies) bool { return k.count == 1 })
}

// reportConstants adds a finding for each of the values that take most.
func (c *contents) reportConstants() {
	var keys []string
	for k := range c.constants {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(c.constants[b].bytes, c.constants[a].bytes), cmp.Compare(a, b))
	})
	for _, name := range keys[:min(len(keys), 3)] {
		k := c.constants[name]
		if !c.s.worth(k.bytes) {
			break
		}
		c.s.add(Finding{Kind: KindConstant, Class: name, Count: k.count, Bytes: k.bytes, object: c.s.g.Find(k.best),
			Title: fmt.Sprintf("%d arrays %s alone take %s", k.count, name, Bytes(k.bytes)), Notes: []string{"the path leads to the largest of them"}})
	}
}

// reportNulls adds a finding for the large arrays that are mostly null.
func (c *contents) reportNulls() {
	if !c.s.worth(c.nullBytes) {
		return
	}
	first := c.nulls[0]
	f := Finding{Kind: KindNulls, Class: first.class.Name, Count: c.nullArrays, Bytes: c.nullBytes, object: c.s.g.Find(first.id),
		Title: fmt.Sprintf("%d large arrays are mostly null: %s of empty elements", c.nullArrays, Bytes(c.nullBytes))}
	for _, n := range c.nulls[:min(len(c.nulls), 5)] {
		f.Content = append(f.Content, Class{Name: fmt.Sprintf("%s %s: %d of %d are null", n.class.Name, hex(n.id), n.nulls, n.length), Count: 1, Bytes: n.bytes, Retained: -1})
	}
	c.s.add(f)
}

// maxConstants bounds how many values of constant arrays are distinguished.
const maxConstants = 1000

// duplicates adds what could be shared.
func (c *contents) duplicates() {
	g := c.s.g
	all := slices.DeleteFunc(c.same, func(k copies) bool { return k.count == 1 })
	waste, count := int64(0), 0
	cost := func(k *copies) int64 { return int64(k.count-1) * k.size }
	for i := range all {
		waste += cost(&all[i])
		count += int(all[i].count - 1)
	}
	if !c.s.worth(waste) {
		return
	}
	slices.SortFunc(all, func(a, b copies) int {
		return cmp.Or(cmp.Compare(cost(&b), cost(&a)), cmp.Compare(a.example, b.example))
	})
	f := Finding{Kind: KindStrings, Count: count, Bytes: waste, Class: c.classes[all[0].class].Name, object: g.Find(all[0].example),
		Title: fmt.Sprintf("%d arrays have the content of another one: %s for copies", count, Bytes(waste))}
	for i := range all[:min(len(all), 10)] {
		k, text := &all[i], ""
		if a, ok := g.ArrayAt(k.offset, previewBytes); ok {
			text = preview(&a)
		}
		class := c.classes[k.class].Name
		f.Content = append(f.Content, Class{Name: fmt.Sprintf("%s[%d] %q", class[:len(class)-2], k.length, text), Count: uint64(k.count), Bytes: cost(k), Retained: -1})
	}
	if o := f.object; o != 0 && g.HasTree() {
		if h := g.Dominator(o); h != 0 {
			if _, holder := g.Holder(h); !holder && g.Class(h).Name == "java.lang.String" {
				f.Title = fmt.Sprintf("%d strings and arrays have the content of another one: %s for copies", count, Bytes(waste))
			}
		}
	}
	f.Notes = []string{"the path leads to one with the first content"}
	if c.forgot {
		f.Notes = append(f.Notes, "there are more contents than are counted at a time: rare ones may be missing")
	}
	c.s.add(f)
}

// zeroedByStrip reports whether the dump's arrays have lost their content: of a sample no
// array has two different bytes.
func (s *search) zeroedByStrip() bool {
	n, plain := 0, 0
	s.g.Sample(2000, func(a *graph.Array) {
		if a.Type == hprof.TypeObject || a.Length < 4 {
			return
		}
		n++
		if a.Same {
			plain++
		}
	})
	return n > 50 && plain == n
}

func firstValue(a *graph.Array) uint64 {
	switch b := a.Bytes; a.Type.Size(8) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	default:
		return binary.BigEndian.Uint64(b)
	}
}

// previewBytes is how much of an array preview uses.
const previewBytes = 120

// preview returns the start of an array as text.
func preview(a *graph.Array) string {
	b := a.Bytes[:min(len(a.Bytes), previewBytes)]
	switch a.Type {
	case hprof.TypeChar:
		u := make([]uint16, len(b)/2)
		for i := range u {
			u[i] = binary.BigEndian.Uint16(b[2*i:])
		}
		return short(string(utf16.Decode(u)), 60)
	case hprof.TypeByte:
		runes := make([]rune, 0, len(b))
		zeros := 0
		for i, c := range b {
			if i%2 == 1 && c == 0 {
				zeros++
			}
		}
		if len(b) > 3 && zeros > len(b)/3 { // a String of UTF-16
			u := make([]uint16, len(b)/2)
			for i := range u {
				u[i] = binary.LittleEndian.Uint16(b[2*i:])
			}
			return short(string(utf16.Decode(u)), 60)
		}
		for _, c := range b {
			runes = append(runes, rune(c))
		}
		return short(string(runes), 60)
	}
	return short(fmt.Sprintf("%x", b), 40)
}
