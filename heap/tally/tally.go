// Package tally counts the objects of a heap dump by class, and measures how far they are from each other. Parts
// of a dump can be counted by themselves and joined.
//
// It reads nothing: packages graph and hotspot give it the objects in the order of the dump. A Counter belongs to one
// goroutine at a time.
package tally

import (
	"math"

	"github.com/sliverprof/sliver/heap/hprof"
)

// Kind is what an object is.
type Kind uint8

const (
	Instance Kind = iota
	ObjectArray
	PrimitiveArray
	Class
)

func (k Kind) String() string {
	return [...]string{"instance", "object array", "primitive array", "class"}[k&3]
}

// A Tally counts the objects of one class.
type Tally struct {
	ID       uint64 // the class's; of primitive arrays their type
	Count    uint64
	Elements uint64 // of arrays: all elements; of instances: all bytes of fields
	Kind     Kind
	Gap      uint32 // of instances: the least distance to the next object, 0: none
	Agree    uint32 // how many had that
	each     uint8  // of primitive arrays: bytes of an element
	// Lengths counts arrays by their elements modulo 16, which is what padding depends on.
	Lengths *[16]uint64
}

// add adds the counts of another tally of the same class.
func (y *Tally) add(x *Tally) {
	y.Count += x.Count
	y.Elements += x.Elements
	if x.Lengths != nil {
		for i, n := range x.Lengths {
			y.Lengths[i] += n
		}
	}
	switch {
	case x.Gap == 0:
	case y.Gap == 0 || x.Gap < y.Gap:
		y.Gap, y.Agree = x.Gap, x.Agree
	case x.Gap == y.Gap:
		y.Agree += x.Agree
	}
}

// Sample is an array with the distance to the next object.
type Sample struct{ Length, Distance uint32 }

// maxSamples bounds the arrays of one size of elements that are sampled.
const maxSamples = 32 << 10

// A Counter counts objects as they follow each other. Dumps have most of them in the order of their addresses.
type Counter struct {
	All []Tally
	// Arrays has samples by the bytes of an element, object arrays at 0.
	Arrays [9][]Sample

	places [3]Table // in All, by kind
	first  object   // that was counted
	last   object   // the one before, whose distance is not known yet
	apart  bool     // first does not follow the object before it
	ended  bool     // the next object does not follow last
}

// object is one that was counted. number is 1 + its tally's place in All; 0: none was.
type object struct {
	id     uint64
	number int
	length uint32
}

// Add counts an object: see Tally.ID for key. length is the Item.Count of its record.
func (c *Counter) Add(kind Kind, key, id uint64, length uint32) {
	n := c.last.number
	if n == 0 || c.All[n-1].ID != key || c.All[n-1].Kind != kind {
		n = c.Number(kind, key)
	}
	c.AddTo(n, id, length)
}

// Number returns a number for AddTo, 1 or more. It is valid until Reset.
func (c *Counter) Number(kind Kind, key uint64) int { return c.place(kind, key) + 1 }

// AddTo counts an object as Add does, by the number of its class.
func (c *Counter) AddTo(n int, id uint64, length uint32) {
	y := &c.All[n-1]
	y.Count++
	y.Elements += uint64(length)
	if y.Lengths != nil {
		y.Lengths[length%16]++
	}
	if c.first.number == 0 {
		c.first, c.apart = object{id, n, length}, c.ended
	} else if !c.ended {
		c.measure(id)
	}
	c.last.id, c.last.number, c.last.length, c.ended = id, n, length, false
}

// Break says that the next object does not follow the last one.
func (c *Counter) Break() { c.ended = true }

// place returns the place of a class's tally.
func (c *Counter) place(kind Kind, id uint64) int {
	if i := c.places[kind].Get(id); i != 0 {
		return int(i - 1)
	}
	c.places[kind].Put(id, uint32(len(c.All)))
	y := Tally{ID: id, Kind: kind}
	if kind != Instance {
		y.Lengths = new([16]uint64)
	}
	if kind == PrimitiveArray {
		y.each = uint8(hprof.Type(id).Size(8))
	}
	c.All = append(c.All, y)
	return len(c.All) - 1
}

// measure notes how far the last object is from the one at id.
func (c *Counter) measure(id uint64) {
	last := &c.last
	if id <= last.id || id-last.id > math.MaxUint32 {
		return
	}
	d := uint32(id - last.id)
	y := &c.All[last.number-1]
	if y.Kind == Instance {
		if y.Gap == 0 || d < y.Gap {
			y.Gap, y.Agree = d, 1
		} else if d == y.Gap {
			y.Agree++
		}
		return
	}
	if a := &c.Arrays[y.each]; len(*a) < maxSamples {
		*a = append(*a, Sample{last.length, d})
	}
}

// Join adds the counts of what follows.
func (c *Counter) Join(x *Counter) {
	if x.first.number == 0 {
		c.ended = c.ended || x.ended
		return
	}
	whole := make([]int, len(x.All)) // by tally of x: its place in c
	for i := range x.All {
		whole[i] = c.place(x.All[i].Kind, x.All[i].ID)
	}
	if c.first.number == 0 {
		c.first = x.first
		c.first.number = whole[x.first.number-1] + 1
		c.apart = c.ended || x.apart
	} else if !c.ended && !x.apart {
		c.measure(x.first.id)
	}
	for i := range x.All {
		c.All[whole[i]].add(&x.All[i])
	}
	for e := range x.Arrays {
		a := &c.Arrays[e]
		*a = append(*a, x.Arrays[e][:min(len(x.Arrays[e]), maxSamples-len(*a))]...)
	}
	c.last, c.ended = x.last, x.ended
	c.last.number = whole[x.last.number-1] + 1
}

// Reset forgets all objects, and keeps the memory.
func (c *Counter) Reset() {
	all, arrays := c.All[:0], c.Arrays
	for e := range arrays {
		arrays[e] = arrays[e][:0]
	}
	places := c.places
	for k := range places {
		places[k].clear()
	}
	*c = Counter{All: all, Arrays: arrays, places: places}
}

// Objects is how many objects were counted.
func (c *Counter) Objects() (sum uint64) {
	for i := range c.All {
		sum += c.All[i].Count
	}
	return sum
}

// A Table finds small numbers by an ID: open addressing, so that a pass over millions of objects pays one probe
// for each.
type Table struct {
	keys   []uint64
	values []uint32
	n      int
}

func (t *Table) slot(key uint64) uint64 {
	return (key * 0x9E3779B97F4A7C15) >> 32 & uint64(len(t.keys)-1)
}

// Get returns the value of key plus one, 0 where there is none.
func (t *Table) Get(key uint64) uint32 {
	if t.n == 0 {
		return 0
	}
	for i := t.slot(key); ; i = (i + 1) & uint64(len(t.keys)-1) {
		if v := t.values[i]; v == 0 || t.keys[i] == key {
			return v
		}
	}
}

// Put sets the value of a key that is not there yet.
func (t *Table) Put(key uint64, value uint32) {
	if t.n*2 >= len(t.keys) {
		old := *t
		size := max(1024, 2*len(old.keys))
		*t = Table{keys: make([]uint64, size), values: make([]uint32, size)}
		for i, v := range old.values {
			if v != 0 {
				t.Put(old.keys[i], v-1)
			}
		}
	}
	i := t.slot(key)
	for t.values[i] != 0 {
		i = (i + 1) & uint64(len(t.keys)-1)
	}
	t.keys[i], t.values[i] = key, value+1
	t.n++
}

func (t *Table) clear() {
	clear(t.values)
	t.n = 0
}
