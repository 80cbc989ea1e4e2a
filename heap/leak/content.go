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
	"github.com/sliverprof/sliver/internal/plural"
)

const (
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
	example uint64 // its ID, or its number: see contents.numbered
	size    int64
	length  int32
	count   int32
	class   int32 // index in contents.classes
}

// countContents begins to find arrays with the same content, of one value, and of nulls, beside the other steps: the
// pass reads all arrays, and the others use one CPU. It works at every level. The returned step awaits the end of the
// pass and adds the findings; stop ends the pass.
func (s *search) countContents() (report func() error, stop func()) {
	c := contents{s: s, seed: maphash.MakeSeed(), distinct: maxDistinct, numbers: map[*graph.Class]int32{}, constants: map[constantKey]*constant{}, numbered: s.g.HasDigests(),
		ref: s.refBytes(), zeroed: s.zeroedByStrip()}
	if m := s.g.Memory(); m > 0 {
		c.distinct = int(min(maxDistinct, m/16/copiesBytes))
	}
	arrays := uint64(0)
	for _, k := range s.g.Classes() {
		if k.Element() != 0 {
			arrays += k.Count
		}
	}
	c.same = make([]copies, 0, min(uint64(c.distinct), arrays)) // growing it would leave as much behind
	ctx, cancel := context.WithCancel(s.ctx)
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c.numbered {
			err = c.fromDigests(ctx)
			return
		}
		err = graph.EachArray(ctx, s.g, graph.DigestBytes, c.collect, c.merge)
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
	numbered bool     // objects are known by their numbers, not by their IDs
	slots    []uint64 // open addressing by sum: its upper half and 1 + an index in same; 0: free
	loaded   uint64   // so that addContents reads slots
	distinct int      // bound of same
	forgot   bool     // contents seen once were dropped
	classes  []*graph.Class
	numbers  map[*graph.Class]int32 // in classes

	constants map[constantKey]*constant

	ref        int64   // bytes of a reference
	nulls      []nulls // the largest ones, by bytes
	nullBytes  int64   // of all
	nullArrays int
}

// copiesBytes is about what a content takes.
const copiesBytes = 64

// constantKey identifies arrays of a single value.
type constantKey struct {
	class  *graph.Class
	bits   uint64 // the value
	hashed bool   // bits is a hash of it
	other  bool   // all values that are not counted by themselves
}

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
	case a.Same && a.Length >= graph.ConstantLength:
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
			c.addConstant(constantKey{class: n.class, bits: n.bits}, n)
		default:
			c.addContent(n)
		}
	}
	*batch = (*batch)[:0]
}

// fromDigests counts all arrays, by what the graph noted of them. It runs beside the other steps.
func (c *contents) fromDigests(ctx context.Context) error {
	g := c.s.g
	batch := make([]counted, 0, digestBatch)
	for o := graph.Object(1); int(o) <= g.Len(); o++ {
		if o&0xfffff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		kind := g.Kind(o)
		if kind != graph.KindObjectArray && kind != graph.KindPrimitiveArray || g.Strength(o) == graph.Garbage {
			continue
		}
		n := counted{class: g.Class(o), id: uint64(o), length: g.Length(o)}
		if n.length == 0 || kind == graph.KindObjectArray && n.length < largeNulls || kind == graph.KindPrimitiveArray && c.zeroed {
			continue
		}
		d := g.Digest(o)
		n.bits, n.size, n.kind = d.Hash, g.Size(o), n.class.Element()
		switch {
		case kind == graph.KindObjectArray:
			if n.nulls = d.Nulls; n.nulls*2 > n.length {
				c.addNulls(&n)
			}
		case !d.Constant:
			if batch = append(batch, n); len(batch) == cap(batch) {
				c.addContents(batch)
				batch = batch[:0]
			}
		case n.kind.Size(8) > 4:
			c.addConstant(constantKey{class: n.class, bits: d.Hash, hashed: true}, &n)
		default:
			c.addConstant(constantKey{class: n.class, bits: d.Value}, &n)
		}
	}
	c.addContents(batch)
	return nil
}

// digestBatch is how many contents are counted at a time.
const digestBatch = 64

// addContents adds contents. It reads their slots first: these loads do not wait for each other, and most miss
// the caches.
func (c *contents) addContents(all []counted) {
	if len(c.slots) == 0 {
		c.rehash()
	}
	for i := range all {
		c.loaded += c.slots[all[i].bits/2&uint64(len(c.slots)-1)]
	}
	for i := range all {
		c.addContent(&all[i])
	}
}

// objectOf returns the object that a count knows.
func (c *contents) objectOf(id uint64) graph.Object {
	if c.numbered {
		return graph.Object(id)
	}
	return c.s.g.Find(id)
}

// idOf returns its ID.
func (c *contents) idOf(id uint64) uint64 {
	if c.numbered {
		return c.s.g.ID(graph.Object(id))
	}
	return id
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

func (c *contents) addConstant(key constantKey, a *counted) {
	k := c.constants[key]
	if k == nil && len(c.constants) >= maxConstants {
		key = constantKey{class: a.class, other: true}
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

// constantName returns what a finding calls arrays of a single value.
func (c *contents) constantName(key constantKey, k *constant) string {
	if key.other {
		return key.class.Name + " of other values"
	}
	v := graph.Value{Type: key.class.Element(), Bits: key.bits}
	if key.hashed {
		v.Bits = 0
		if b := c.s.g.Content(c.objectOf(k.best), 8); len(b) == 8 {
			v.Bits = binary.BigEndian.Uint64(b)
		}
	}
	return key.class.Name + " of " + v.String()
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
	if 4*(len(c.same)+1) > 3*len(c.slots) {
		if len(c.same) >= c.distinct {
			c.forgetSingle()
		}
		c.rehash()
	}
	i := c.slot(a.bits)
	if at := uint32(c.slots[i]); at != 0 {
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
	c.slots[i] = a.bits>>32<<32 | uint64(len(c.same))
}

// slot returns the index of sum's slot, or of the free one for it.
func (c *contents) slot(sum uint64) uint64 {
	mask := uint64(len(c.slots) - 1)
	for i := sum / 2 & mask; ; i = (i + 1) & mask {
		at := c.slots[i]
		if at == 0 || at>>32 == sum>>32 && c.same[uint32(at)-1].sum == sum {
			return i
		}
	}
}

// rehash makes new slots, for more contents than there are.
func (c *contents) rehash() {
	size := 1024
	for size < 2*max(len(c.same), cap(c.same)*2/3) {
		size *= 2
	}
	c.slots = make([]uint64, size)
	for i := range c.same {
		c.slots[c.slot(c.same[i].sum)] = c.same[i].sum>>32<<32 | uint64(i+1)
	}
}

// forgetSingle drops the contents seen once.
func (c *contents) forgetSingle() {
	c.forgot = true
	c.same = slices.DeleteFunc(c.same, func(k copies) bool { return k.count == 1 })
}

// reportConstants adds a finding for each of the values that take most.
func (c *contents) reportConstants() {
	type named struct {
		*constant
		name string
	}
	all := make([]named, 0, len(c.constants))
	for key, k := range c.constants {
		all = append(all, named{k, c.constantName(key, k)})
	}
	slices.SortFunc(all, func(a, b named) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name)) })
	for _, k := range all[:min(len(all), 3)] {
		if !c.s.worth(k.bytes) {
			break
		}
		c.s.add(Finding{Kind: KindConstant, Class: k.name, Count: k.count, Bytes: k.bytes, object: c.objectOf(k.best),
			Title: fmt.Sprintf("%d %s %s alone %s %s", k.count, plural.Word(k.count, "array", "arrays"), k.name, plural.Word(k.count, "takes", "take"), Bytes(k.bytes)), Notes: []string{"the path leads to the largest of them"}})
	}
}

// reportNulls adds a finding for the large arrays that are mostly null.
func (c *contents) reportNulls() {
	if !c.s.worth(c.nullBytes) {
		return
	}
	first := c.nulls[0]
	f := Finding{Kind: KindNulls, Class: first.class.Name, Count: c.nullArrays, Bytes: c.nullBytes, object: c.objectOf(first.id),
		Title: fmt.Sprintf("%d large %s mostly null: %s of empty elements", c.nullArrays, plural.Word(c.nullArrays, "array is", "arrays are"), Bytes(c.nullBytes))}
	for _, n := range c.nulls[:min(len(c.nulls), 5)] {
		f.Content = append(f.Content, Class{Name: fmt.Sprintf("%s %s: %d of %d are null", n.class.Name, hex(c.idOf(n.id)), n.nulls, n.length), Count: 1, Bytes: n.bytes, Retained: -1})
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
	f := Finding{Kind: KindStrings, Count: count, Bytes: waste, Class: c.classes[all[0].class].Name, object: c.objectOf(all[0].example),
		Title: fmt.Sprintf("%d %s the content of another one: %s for copies", count, plural.Word(count, "array has", "arrays have"), Bytes(waste))}
	for i := range all[:min(len(all), 10)] {
		k, text := &all[i], ""
		class := c.classes[k.class].Name
		if c.numbered {
			text = preview(&graph.Array{Type: c.classes[k.class].Element(), Bytes: g.Content(graph.Object(k.example), previewBytes)})
		} else if a, ok := g.ArrayAt(k.offset, previewBytes); ok {
			text = preview(&a)
		}
		f.Content = append(f.Content, Class{Name: fmt.Sprintf("%s[%d] %q", class[:len(class)-2], k.length, text), Count: uint64(k.count), Bytes: cost(k), Retained: -1})
	}
	if o := f.object; o != 0 && g.HasTree() {
		if h := g.Dominator(o); h != 0 {
			if _, holder := g.Holder(h); !holder && g.Class(h).Name == "java.lang.String" {
				f.Title = fmt.Sprintf("%s the content of another one: %s for copies", plural.Either(count, "string or array has", "strings and arrays have"), Bytes(waste))
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
