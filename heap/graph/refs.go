package graph

import (
	"github.com/sliverprof/sliver/heap/hprof"
)

// Refs appends what an object holds strongly to all, as the dominator tree sees it: what
// fields, elements and static fields name, its class, a thread's locals.
func (g *Graph) RefsOf(o Object, all []Object) []Object {
	if g.start != nil {
		return g.listed(o, all)
	}
	return g.refsFromFile(o, all)
}

// refsFromFile reads what the table of references would have.
func (g *Graph) refsFromFile(o Object, all []Object) []Object {
	add := func(id uint64) {
		if id == 0 {
			return
		}
		if t := g.Find(id); t != 0 {
			all = append(all, t)
		}
	}
	ids := g.header.IDSize
	tag, class, n, _, _ := g.head(o)
	switch tag {
	case hprof.SubInstance:
		c := g.classes.find(class)
		if c == nil {
			return all
		}
		if len(c.refs) > 0 {
			body := g.bytesOf(o, 0, int64(c.bytes))
			for _, at := range c.refs {
				if at&referent == 0 && int(at)+ids <= len(body) {
					add(hprof.ID(body[at:], ids))
				}
			}
		}
		if g.holdsClass(c) {
			all = append(all, c.Object)
		}
		for _, i := range g.locals[o] {
			all = append(all, g.roots[i].Object)
		}
	case hprof.SubObjectArray:
		size := int64(n) * int64(ids)
		const piece = 1 << 20
		for at := int64(0); at < size; at += piece {
			b := g.bytesOf(o, at, min(piece, size-at))
			for len(b) >= ids {
				add(hprof.ID(b, ids))
				b = b[ids:]
			}
		}
		if c := g.classes.find(class); c != nil && g.holdsClass(c) {
			all = append(all, c.Object)
		}
	case hprof.SubClass:
		if c := g.classes.find(class); c != nil && c.record != nil {
			eachClassRef(&c.record.Class, add)
		}
	}
	return all
}

// Ref is a reference with its name.
type Ref struct {
	From     Object
	To       Object
	Name     string // of a field; "" for others
	Class    *Class // that declares the field
	Static   bool
	Index    int // of an array's element, else -1
	Local    bool
	Meta     bool     // one that a class or object has by itself: superclass, class loader
	Strength Strength // of a referent
}

// String returns the reference as a path has it.
func (r Ref) String() string {
	switch {
	case r.Index >= 0:
		return "[" + itoa(r.Index) + "]"
	case r.Local:
		return "<local>"
	case r.Meta:
		return "<" + r.Name + ">"
	}
	return r.Name
}

// NamedRefs calls f with each reference of an object, weak ones among them, until it
// returns false. Elements beyond max are left out.
func (g *Graph) NamedRefs(o Object, max int, f func(Ref) bool) {
	on := true
	send := func(r Ref, id uint64) {
		if id == 0 || !on {
			return
		}
		if r.To = g.Find(id); r.To != 0 {
			r.From = o
			on = f(r)
		}
	}
	switch g.Kind(o) {
	case KindInstance:
		c := g.Class(o)
		for _, d := range g.Fields(o) {
			if d.Type == hprof.TypeObject {
				r := Ref{Name: d.Name, Class: d.Class, Index: -1}
				if c.strong != Strong && d.Name == "referent" && d.Class.Name == "java.lang.ref.Reference" {
					r.Strength = c.strong
				}
				send(r, d.Bits)
			}
		}
		for _, i := range g.locals[o] {
			send(Ref{Name: g.roots[i].Kind.String(), Local: true, Index: -1}, g.ID(g.roots[i].Object))
		}
	case KindObjectArray:
		g.Elements(o, max, func(i int, v Value) bool {
			send(Ref{Index: i}, v.Bits)
			return on
		})
	case KindClass:
		c := g.Class(o)
		if c.record == nil {
			return
		}
		for _, d := range g.Fields(o) {
			if d.Type == hprof.TypeObject {
				send(Ref{Name: d.Name, Class: c, Static: true, Index: -1}, d.Bits)
			}
		}
		for i, id := range [...]uint64{c.record.Super, c.record.Loader, c.record.Signers, c.record.Domain} {
			send(Ref{Name: [...]string{"superclass", "class loader", "signers", "protection domain"}[i], Meta: true, Index: -1}, id)
		}
		for _, k := range c.record.Constants {
			if k.Type == hprof.TypeObject {
				send(Ref{Name: "constant " + itoa(int(k.Index)), Meta: true, Index: -1}, k.Value)
			}
		}
		return
	default:
		return
	}
	if c := g.Class(o); on && g.holdsClass(c) {
		send(Ref{Name: "class", Meta: true, Index: -1}, c.ID)
	}
}

// NameRef returns how from refers to to, the strongest way first.
func (g *Graph) NameRef(from, to Object) Ref {
	best := Ref{From: from, To: to, Index: -1, Meta: true, Name: "reference"}
	found := false
	g.NamedRefs(from, 1<<31-1, func(r Ref) bool {
		if r.To != to {
			return true
		}
		if !found || r.Strength < best.Strength {
			best, found = r, true
		}
		return best.Strength != Strong
	})
	return best
}

// Referrers returns up to max objects that hold o strongly, in the order of their
// numbers. It looks at all references.
func (g *Graph) Referrers(o Object, max int) (all []Object, count int) {
	if g.start == nil {
		var buf []Object
		for v := Object(1); uint32(v) <= g.n; v++ {
			buf = g.refsFromFile(v, buf[:0])
			for _, t := range buf {
				if t == o {
					if count++; len(all) < max {
						all = append(all, v)
					}
					break
				}
			}
		}
		return all, count
	}
	for v := uint32(1); v <= g.n; v++ {
		for pos := g.start[v]; pos != 0; pos++ {
			t := g.to[pos]
			if t&refMask == uint32(o) {
				if count++; len(all) < max {
					all = append(all, Object(v))
				}
				break
			}
			if t&lastRef != 0 {
				break
			}
		}
	}
	return all, count
}

// WeakReferrers returns up to max objects that refer to o and do not keep it.
func (g *Graph) WeakReferrers(o Object, max int) (all []Object) {
	for _, w := range g.weak {
		if w.target == uint32(o) && len(all) < max {
			all = append(all, Object(w.owner))
		}
	}
	return all
}
