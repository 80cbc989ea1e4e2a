package graph

import (
	"github.com/sliverprof/sliver/heap/hprof"
)

// alignment is the least of objects in the heap.
const alignment = 8

// A sizeModel says how many bytes of the VM's heap an object takes.
//
// HPROF has no such sizes: HotSpot writes the sum of the fields, with references as wide
// as its pointers, whatever they are in the heap. But IDs are addresses, and the next
// object begins no sooner than this one ends. So the least distance of the objects of a
// class to their successors is its size, if one of them has its successor right behind,
// and head and references are as wide as most arrays agree with. ART writes the sizes of
// instances as they are.
type sizeModel struct {
	head   int64    // of an instance
	ref    int64    // a reference in the heap
	base   [9]int64 // of an array, by the bytes of an element: where they begin
	align  int64    // of objects: 8, or what -XX:ObjectAlignmentInBytes made it, a power of 2
	art    bool
	mirror int64 // of a class object without its static fields
}

// defaultModel is the usual layout of VMs with identifiers of that width.
func (g *Graph) defaultModel() sizeModel {
	m := sizeModel{align: alignment}
	if shift := g.survey.span.shift(); g.addresses() && shift <= 8 && g.survey.span.n > 1000 {
		m.align = max(m.align, 1<<shift)
	}
	switch {
	case g.header.Version == "1.0.3":
		m.art, m.head, m.ref = true, 8, 4
		m.base = [9]int64{1: 12, 2: 12, 4: 12, 8: 16}
	case g.header.IDSize == 4:
		m.head, m.ref = 8, 4
		m.base = [9]int64{1: 12, 2: 12, 4: 12, 8: 16}
	default: // compressed, as all heaps below 32 GB are since JDK 7
		m.head, m.ref = 12, 4
		m.base = [9]int64{1: 16, 2: 16, 4: 16, 8: 16}
	}
	m.mirror = 96
	return m
}

func (m *sizeModel) up(n int64) int64 { return (n + m.align - 1) &^ (m.align - 1) }

// array returns the bytes of an array of n elements.
func (m *sizeModel) array(t hprof.Type, n int64) int64 {
	e := int64(t.Size(int(m.ref)))
	return m.up(m.base[e] + n*e)
}

// maxPadding is what HotSpot pads two groups of fields by at most, with
// -XX:ContendedPaddingWidth at its default.
const maxPadding = 3 * 128

// bases are where an array's elements may begin: behind a compact head, one with a
// compressed class pointer, one without, and that rounded.
var bases = [...]int64{12, 16, 20, 24}

// model finds the size model from the distances that the survey measured, and with it the
// sizes of all classes' instances.
func (g *Graph) model() sizeModel {
	m := g.defaultModel()
	if m.art || g.header.IDSize == 4 || !g.addresses() {
		for _, c := range g.classes.all {
			c.size = uint32(m.instance(c))
		}
		return m
	}
	var votes [9][len(bases)]uint64 // by the bytes of a primitive
	var refVotes [2][len(bases)]uint64
	for e, samples := range g.survey.counts.Arrays {
		for _, a := range samples {
			for i, b := range bases {
				fits := func(e int64) bool { // values of 8 bytes are aligned
					return (e != 8 || b%8 == 0) && m.up(b+int64(a.Length)*e) == int64(a.Distance)
				}
				switch {
				case e > 0 && fits(int64(e)):
					votes[e][i]++
				case e == 0 && fits(4):
					refVotes[0][i]++
				}
				if e == 0 && fits(8) {
					refVotes[1][i]++
				}
			}
		}
	}
	m.fromVotes(&votes, &refVotes)
	for _, c := range g.classes.all {
		c.size = uint32(m.instance(c))
	}
	for i := range g.survey.counts.All {
		y := &g.survey.counts.All[i]
		c := g.classes.find(y.ID)
		if y.Kind != KindInstance || c == nil || c.record == nil || c.array {
			continue
		}
		// A distance is an upper bound. Where three objects have the same one it is the
		// size: fields that the VM adds by itself are not in the dump. Padding of fields
		// that are apart for the caches (jdk.internal.vm.annotation.Contended) is more than
		// one would expect, so most of the objects have to agree.
		if agree := y.Agree >= 3; y.Gap != 0 && (y.Gap < c.size || agree && y.Gap < c.size+64 ||
			agree && uint64(y.Agree)*2 >= c.Count && y.Gap <= c.size+maxPadding) {
			c.size = y.Gap
		}
	}
	return m
}

// addresses reports whether IDs are likely addresses: multiples of 8.
func (g *Graph) addresses() bool {
	return g.survey.span.shift() >= 3 && g.survey.span.min&7 == 0
}

// fromVotes chooses what most arrays agree with.
func (m *sizeModel) fromVotes(votes *[9][len(bases)]uint64, refs *[2][len(bases)]uint64) {
	best, which := uint64(0), 0
	for r := range refs {
		for i, n := range refs[r] {
			if n > best {
				best, which, m.ref = n, i, int64(4+4*r)
			}
		}
	}
	if best == 0 {
		return
	}
	base := bases[which]
	for e, v := range votes {
		m.base[e] = base
		if e == 8 {
			m.base[e] = (base + 7) / 8 * 8
		}
		var most uint64
		for i, n := range v {
			if n > most {
				most, m.base[e] = n, bases[i]
			}
		}
	}
	if m.ref == 4 {
		m.base[4] = min(m.base[4], base)
	}
	m.base[m.ref] = base
	m.head = base - 4 // the length is the last of an array's head
	if m.head > 16 {
		m.head = 16
	}
}

// instance returns the size of a class's instances by its fields.
func (m *sizeModel) instance(c *Class) int64 {
	if m.art {
		return m.up(max(int64(c.raw), m.head))
	}
	sum := m.head
	for k := range c.Supers {
		if k.record == nil {
			break
		}
		for _, f := range k.record.Fields {
			sum += int64(f.Type.Size(int(m.ref)))
		}
	}
	return m.up(sum)
}

// classObject returns the size of a class object, which has the static fields.
func (m *sizeModel) classObject(c *Class) int64 {
	sum := m.mirror
	if c.record != nil {
		for _, f := range c.record.Statics {
			sum += int64(f.Type.Size(int(m.ref)))
		}
	}
	return m.up(sum)
}

// sizeOf returns the bytes of an object, where the tables are kept.
func (g *Graph) sizeOf(o uint32) int64 {
	m := g.meta[o]
	c := g.classes.all[m&numberMask]
	switch Kind(m >> kindShift) {
	case KindInstance:
		return int64(c.size)
	case KindObjectArray:
		return g.sizes.array(hprof.TypeObject, int64(g.length[o]))
	case KindPrimitiveArray:
		return g.sizes.array(c.elem, int64(g.length[o]))
	}
	return g.sizes.classObject(c)
}

// RefBytes returns what a reference takes of the VM's heap.
func (g *Graph) RefBytes() int64 { return g.sizes.ref }
