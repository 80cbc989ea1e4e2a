package leak

import (
	"cmp"
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

// A copies counts arrays of the same content.
type copies struct {
	class   *graph.Class
	count   int
	size    int64
	length  int
	text    string
	example uint64
}

// content finds arrays with the same content, of one value, and of nulls. It reads the
// dump once and works at every level.
func (s *search) content() error {
	c := contents{s: s, seed: maphash.MakeSeed(), same: map[uint64]*copies{}, distinct: maxDistinct, constants: map[string]*constant{},
		ref: s.refBytes(), zeroed: s.zeroedByStrip()}
	if m := s.g.Memory(); m > 0 { // a content takes about 200 bytes
		c.distinct = int(min(maxDistinct, m/16/200))
	}
	if err := s.g.Arrays(s.ctx, maxHashed, c.array); err != nil {
		return err
	}
	if c.zeroed {
		s.report.Losses = append(s.report.Losses, "all arrays of the dump have the same values, as in a stripped dump: duplicates and constants are unknown")
	}
	s.duplicates(c.same, c.forgot)
	c.reportConstants()
	c.reportNulls()
	return nil
}

// contents counts arrays by their content.
type contents struct {
	s      *search
	zeroed bool // the dump's arrays have lost their content

	seed     maphash.Seed
	same     map[uint64]*copies // by hash
	distinct int                // bound of same
	forgot   bool               // contents seen once were dropped

	constants map[string]*constant // by class and value

	ref        int64   // bytes of a reference
	nulls      []nulls // the largest ones, by bytes
	nullBytes  int64   // of all
	nullArrays int
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

// array counts an array, in one place at most.
func (c *contents) array(a *graph.Array) {
	g := c.s.g
	switch {
	case a.Object != 0 && g.HasTree() && g.Strength(a.Object) == graph.Garbage:
	case a.Type == hprof.TypeObject:
		if a.Length >= largeNulls && a.Nulls*2 > a.Length {
			c.addNulls(a)
		}
	case c.zeroed:
	case a.Same && a.Length >= 16:
		c.addConstant(a)
	case a.Length > 0:
		c.addContent(a)
	}
}

func (c *contents) addNulls(a *graph.Array) {
	n := nulls{a.ID, a.Class, a.Length, a.Nulls, int64(a.Nulls) * c.ref}
	c.nullBytes += n.bytes
	c.nullArrays++
	i, _ := slices.BinarySearchFunc(c.nulls, n, func(x, y nulls) int { return cmp.Compare(y.bytes, x.bytes) })
	if c.nulls = slices.Insert(c.nulls, i, n); len(c.nulls) > maxFindings {
		c.nulls = c.nulls[:maxFindings]
	}
}

func (c *contents) addConstant(a *graph.Array) {
	v := graph.Value{Type: a.Type, Bits: firstValue(a)}
	key := a.Class.Name + " of " + v.String()
	k := c.constants[key]
	if k == nil && len(c.constants) >= maxConstants {
		key = a.Class.Name + " of other values"
		k = c.constants[key]
	}
	if k == nil {
		k = &constant{}
		c.constants[key] = k
	}
	k.count++
	k.bytes += a.Size
	if a.Size > k.most {
		k.best, k.most = a.ID, a.Size
	}
}

func (c *contents) addContent(a *graph.Array) {
	var h maphash.Hash
	h.SetSeed(c.seed)
	h.WriteByte(byte(a.Type))
	maphash.WriteComparable(&h, a.Length)
	h.Write(a.Bytes)
	sum := h.Sum64()
	k := c.same[sum]
	if k == nil {
		if len(c.same) >= c.distinct {
			c.forgetSingle()
		}
		k = &copies{class: a.Class, size: a.Size, length: a.Length, example: a.ID}
		c.same[sum] = k
	}
	if k.count++; k.count == 2 { // only then its text may be wanted
		k.text = preview(a)
	}
}

// forgetSingle drops the contents seen once.
func (c *contents) forgetSingle() {
	c.forgot = true
	for sum, k := range c.same {
		if k.count == 1 {
			delete(c.same, sum)
		}
	}
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
func (s *search) duplicates(same map[uint64]*copies, forgot bool) {
	g := s.g
	var all []*copies
	waste, count := int64(0), 0
	for _, c := range same {
		if c.count > 1 {
			all = append(all, c)
			waste += int64(c.count-1) * c.size
			count += c.count - 1
		}
	}
	if !s.worth(waste) {
		return
	}
	cost := func(c *copies) int64 { return int64(c.count-1) * c.size }
	slices.SortFunc(all, func(a, b *copies) int {
		return cmp.Or(cmp.Compare(cost(b), cost(a)), cmp.Compare(a.example, b.example))
	})
	f := Finding{Kind: KindStrings, Count: count, Bytes: waste, Class: all[0].class.Name, object: g.Find(all[0].example),
		Title: fmt.Sprintf("%d arrays have the content of another one: %s for copies", count, Bytes(waste))}
	for _, c := range all[:min(len(all), 10)] {
		f.Content = append(f.Content, Class{Name: fmt.Sprintf("%s[%d] %q", c.class.Name[:len(c.class.Name)-2], c.length, c.text), Count: uint64(c.count), Bytes: cost(c), Retained: -1})
	}
	if o := f.object; o != 0 && g.HasTree() {
		if h := g.Dominator(o); h != 0 {
			if _, holder := g.Holder(h); !holder && g.Class(h).Name == "java.lang.String" {
				f.Title = fmt.Sprintf("%d strings and arrays have the content of another one: %s for copies", count, Bytes(waste))
			}
		}
	}
	f.Notes = []string{"the path leads to one with the first content"}
	if forgot {
		f.Notes = append(f.Notes, "there are more contents than are counted at a time: rare ones may be missing")
	}
	s.add(f)
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

// preview returns the start of an array as text.
func preview(a *graph.Array) string {
	b := a.Bytes[:min(len(a.Bytes), 120)]
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
