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
	g := s.g
	seed := maphash.MakeSeed()
	same := map[uint64]*copies{}
	forgot := false
	distinct := maxDistinct
	if g.Memory() > 0 { // a content takes about 200 bytes
		distinct = int(min(maxDistinct, g.Memory()/16/200))
	}
	type constant struct {
		count int
		bytes int64
		best  uint64
		most  int64
	}
	constants := map[string]*constant{}
	type nulls struct {
		id            uint64
		class         *graph.Class
		length, nulls int
		bytes         int64
	}
	var empty []nulls
	emptyBytes, emptyCount := int64(0), 0
	ref := s.refBytes()
	zeroed := s.zeroedByStrip()
	err := g.Arrays(s.ctx, maxHashed, func(a *graph.Array) {
		if a.Object != 0 && g.HasTree() && g.Strength(a.Object) == graph.Garbage {
			return
		}
		if a.Type == hprof.TypeObject {
			if a.Length >= largeNulls && a.Nulls*2 > a.Length {
				n := nulls{a.ID, a.Class, a.Length, a.Nulls, int64(a.Nulls) * ref}
				emptyBytes += n.bytes
				emptyCount++
				i, _ := slices.BinarySearchFunc(empty, n, func(x, y nulls) int { return cmp.Compare(y.bytes, x.bytes) })
				if empty = slices.Insert(empty, i, n); len(empty) > maxFindings {
					empty = empty[:maxFindings]
				}
			}
			return
		}
		if a.Same && a.Length >= 16 && !zeroed {
			v := graph.Value{Type: a.Type, Bits: firstValue(a)}
			key := a.Class.Name + " of " + v.String()
			c := constants[key]
			if c == nil {
				if len(constants) >= maxConstants {
					key = a.Class.Name + " of other values"
					if c = constants[key]; c == nil {
						c = &constant{}
						constants[key] = c
					}
				} else {
					c = &constant{}
					constants[key] = c
				}
			}
			c.count++
			c.bytes += a.Size
			if a.Size > c.most {
				c.best, c.most = a.ID, a.Size
			}
			return // not counted again as duplicates
		}
		if a.Length == 0 || zeroed {
			return
		}
		var h maphash.Hash
		h.SetSeed(seed)
		h.WriteByte(byte(a.Type))
		maphash.WriteComparable(&h, a.Length)
		h.Write(a.Bytes)
		sum := h.Sum64()
		c := same[sum]
		if c == nil {
			if len(same) >= distinct {
				forgot = true
				for k, c := range same {
					if c.count == 1 {
						delete(same, k)
					}
				}
			}
			c = &copies{class: a.Class, size: a.Size, length: a.Length, example: a.ID}
			same[sum] = c
		}
		if c.count++; c.count == 2 { // only then its text may be wanted
			c.text = preview(a)
		}
	})
	if err != nil {
		return err
	}
	if zeroed {
		s.report.Losses = append(s.report.Losses, "all arrays of the dump have the same values, as in a stripped dump: duplicates and constants are unknown")
	}
	s.duplicates(same, forgot)
	var keys []string
	for k := range constants {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(constants[b].bytes, constants[a].bytes), cmp.Compare(a, b))
	})
	for _, k := range keys[:min(len(keys), 3)] {
		c := constants[k]
		if !s.worth(c.bytes) {
			break
		}
		s.add(Finding{Kind: KindConstant, Class: k, Count: c.count, Bytes: c.bytes, object: g.Find(c.best),
			Title: fmt.Sprintf("%d arrays %s alone take %s", c.count, k, Bytes(c.bytes)), Notes: []string{"the path leads to the largest of them"}})
	}
	if s.worth(emptyBytes) {
		f := Finding{Kind: KindNulls, Class: empty[0].class.Name, Count: emptyCount, Bytes: emptyBytes, object: g.Find(empty[0].id),
			Title: fmt.Sprintf("%d large arrays are mostly null: %s of empty elements", emptyCount, Bytes(emptyBytes))}
		for _, n := range empty[:min(len(empty), 5)] {
			f.Content = append(f.Content, Class{Name: fmt.Sprintf("%s %s: %d of %d are null", n.class.Name, hex(n.id), n.nulls, n.length), Count: 1, Bytes: n.bytes, Retained: -1})
		}
		s.add(f)
	}
	return nil
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
