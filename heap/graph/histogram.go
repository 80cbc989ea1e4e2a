package graph

import (
	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/heap/tally"
)

// Line is what a histogram says of a class.
type Line struct {
	Class    *Class
	Count    uint64
	Bytes    int64
	Retained int64 // by all of its objects together; -1 where the level has no tree
}

// Histogram returns a line for each class that has objects, in no order.
func (g *Graph) Histogram() []Line {
	lines := make([]Line, len(g.classes.all))
	if g.length != nil {
		for o := uint32(1); o <= g.n; o++ {
			l := &lines[g.lineOf(o)]
			l.Count++
			l.Bytes += g.sizeOf(o)
		}
	} else {
		g.countFromTallies(lines)
	}
	var retained []int64
	if g.tree != nil {
		retained = g.retainedByClass()
	}
	out := lines[:0]
	for i, l := range lines {
		if l.Count == 0 {
			continue
		}
		l.Class, l.Retained = g.classes.all[i], -1
		if retained != nil {
			l.Retained = retained[i]
		}
		out = append(out, l)
	}
	return out
}

// lineOf returns the number of the class that an object is counted with: class objects
// are java.lang.Class.
func (g *Graph) lineOf(o uint32) uint32 {
	if Kind(g.meta[o]>>kindShift) != KindClass {
		return g.meta[o] & numberMask
	}
	if c := g.classes.byName["java.lang.Class"]; c != nil {
		return c.number
	}
	return g.meta[o] & numberMask
}

func (g *Graph) countFromTallies(lines []Line) {
	m := &g.sizes
	for i := range g.survey.counts.All {
		y := &g.survey.counts.All[i]
		var c *Class
		var bytes int64
		switch y.Kind {
		case KindPrimitiveArray:
			c = g.classes.prim[y.ID&15]
			bytes = m.arrays(c.elem, y)
		case KindObjectArray:
			c = g.classes.find(y.ID)
			bytes = m.arrays(hprof.TypeObject, y)
		default:
			c = g.classes.find(y.ID)
			bytes = int64(y.Count) * int64(c.size)
		}
		lines[c.number].Count += y.Count
		lines[c.number].Bytes += bytes
	}
	class := g.classes.byName["java.lang.Class"]
	for _, c := range g.classes.all {
		if c.record == nil {
			continue
		}
		l := &lines[c.number]
		if class != nil {
			l = &lines[class.number]
		}
		l.Count++
		l.Bytes += m.classObject(c)
	}
}

// arrays returns the bytes of all arrays of a tally.
func (m *sizeModel) arrays(t hprof.Type, y *tally.Tally) int64 {
	e := int64(t.Size(int(m.ref)))
	sum := int64(y.Count)*m.base[e] + int64(y.Elements)*e
	for r, n := range y.Lengths {
		bytes := m.base[e] + int64(r)*e
		sum += int64(n) * (m.up(bytes) - bytes)
	}
	return sum
}

// retainedByClass returns what all objects of each class retain together: the sum of
// those that none of the same class dominates.
func (g *Graph) retainedByClass() []int64 {
	sums := make([]int64, len(g.classes.all))
	inside := make([]uint32, len(g.classes.all)) // objects of the class on the way down
	g.walkTree(0, func(o Object) bool {
		if uint32(o) <= g.n && o != 0 {
			l := g.lineOf(uint32(o))
			if inside[l] == 0 {
				sums[l] += g.Retained(o)
			}
			inside[l]++
		}
		return true
	}, func(o Object) {
		if uint32(o) <= g.n && o != 0 {
			inside[g.lineOf(uint32(o))]--
		}
	})
	return sums
}
