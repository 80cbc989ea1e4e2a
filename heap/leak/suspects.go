package leak

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/internal/plural"
)

// largest returns the first of the elements with the largest key.
func largest[T any](all []T, key func(T) int64) T {
	return slices.MaxFunc(all, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
}

func sortedBy[T any](all []T, key func(T) int64) []T {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b T) int { return cmp.Compare(key(b), key(a)) })
	return all
}

// accumulates is the part of what an object keeps from which on its largest child is
// where memory gathers, and not the object itself.
const accumulates = 0.7

// suspects finds objects, and groups of objects of a class, that keep more than a part of
// all memory.
func (s *search) suspects() error {
	g := s.g
	if !g.HasTree() {
		return s.suspectsWithoutTree()
	}
	limit := int64(s.opts.Share * float64(s.total))
	limit = max(limit, 1)
	var singles []graph.Object
	groups := map[*graph.Class][]graph.Object{}
	// Threads hold many things that have nothing to do with each other, and so do class
	// objects of large programs: below them it begins again.
	var look func(o graph.Object, depth int)
	look = func(o graph.Object, depth int) {
		for _, c := range g.Dominated(o) {
			c := graph.Object(c)
			if w, holder := g.Holder(c); holder {
				if w != graph.Garbage && depth == 0 {
					look(c, depth+1)
				}
				continue
			}
			if g.Strength(c) == graph.Garbage {
				continue
			}
			if g.Retained(c) >= limit {
				singles = append(singles, c)
			} else if g.Kind(c) != graph.KindClass && !s.interned(c) {
				groups[g.Class(c)] = append(groups[g.Class(c)], c)
			}
		}
	}
	look(0, 0)
	seen := map[graph.Object]bool{}
	for _, o := range sortedBy(singles, g.Retained) {
		for _, p := range s.points(o, limit) {
			if !seen[p] && len(seen) < maxFindings {
				seen[p] = true
				s.suspect(p)
			}
		}
	}
	type group struct {
		class   *graph.Class
		objects []graph.Object
		bytes   int64
	}
	var large []group
	for c, all := range groups {
		b := int64(0)
		for _, o := range all {
			b += g.Retained(o)
		}
		if b >= limit && len(all) > 1 {
			large = append(large, group{c, all, b})
		}
	}
	slices.SortFunc(large, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.class.ID, b.class.ID))
	})
	for _, l := range large[:min(len(large), maxFindings)] {
		most := slices.MaxFunc(l.objects, func(a, b graph.Object) int { return cmp.Compare(g.Retained(a), g.Retained(b)) })
		s.add(Finding{Kind: KindGroup, Class: l.class.Name, Count: len(l.objects), Bytes: l.bytes, object: most,
			Title:   fmt.Sprintf("%s of %s %s %s together", plural.Of(len(l.objects), "object"), l.class.Name, plural.Word(len(l.objects), "keeps", "keep"), Bytes(l.bytes)),
			Content: s.contentOf(l.objects), Notes: []string{"the path leads to the largest of them"}})
	}
	return nil
}

// interned reports whether an object is a string that the VM keeps: each is its own root,
// so that together they seem to be a leak.
func (s *search) interned(o graph.Object) bool {
	for _, r := range s.g.RootsOf(o) {
		if r.Kind == graph.RootInterned {
			return true
		}
	}
	return false
}

// points returns where below o memory gathers: the accumulation point, other children on the way to it that are suspects by
// themselves, and where no child is the one, all of those.
func (s *search) points(o graph.Object, limit int64) (all []graph.Object) {
	g := s.g
	type run struct {
		first graph.Object
		count int
	}
	runs := map[*graph.Class]*run{}
	for {
		// Along a list each link keeps nearly as much as the one before: memory gathers in
		// what holds the list.
		r := runs[g.Class(o)]
		if r == nil {
			r = &run{first: o}
			runs[g.Class(o)] = r
		}
		if r.count++; r.count >= minChain {
			holder := g.Dominator(r.first)
			if _, no := g.Holder(holder); holder == 0 || no {
				holder = r.first
			}
			return append(all, holder)
		}
		var big []graph.Object
		var most graph.Object
		for _, c := range g.Dominated(o) {
			c := graph.Object(c)
			if g.Retained(c) >= limit {
				big = append(big, c)
			}
			if most == 0 || g.Retained(c) > g.Retained(most) {
				most = c
			}
		}
		if most != 0 && float64(g.Retained(most)) >= accumulates*float64(g.Retained(o)) {
			for _, c := range big[:min(len(big), maxFindings)] {
				if c != most {
					all = append(all, s.points(c, limit)...)
				}
			}
			o = most
			continue
		}
		if len(big) > 1 && len(big) <= maxFindings {
			for _, c := range sortedBy(big, g.Retained) {
				all = append(all, s.points(c, limit)...)
			}
			return all
		}
		break
	}
	return append(all, o)
}

// minChain is how many objects of a class on the way down make it a list.
const minChain = 16

// suspect adds the accumulation point o.
func (s *search) suspect(o graph.Object) {
	g := s.g
	bytes := g.Retained(o)
	f := Finding{Kind: KindDominator, Class: g.Class(o).Name, Count: 1, Bytes: bytes, object: o}
	var children []graph.Object
	for _, c := range g.Dominated(o) {
		children = append(children, graph.Object(c))
	}
	f.Content = s.contentOf(children)
	f.Title = fmt.Sprintf("one %s keeps %s", Name(g, o), Bytes(bytes))
	if g.Kind(o) == graph.KindClass {
		f.Title = fmt.Sprintf("static fields of %s keep %s", Name(g, o), Bytes(bytes))
	}
	if g.Class(o).Is("java.lang.Thread") {
		f.Title = fmt.Sprintf("thread %q keeps %s", short(g.ThreadName(o), 60), Bytes(bytes))
	}
	if n := len(children); n > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("it dominates %d %s %s", n, plural.Word(n, "object directly, which has", "objects directly; the largest has"), Bytes(g.Retained(largest(children, g.Retained)))))
	}
	// The owner: the nearest object above whose class is not the platform's.
	for d, i := o, 0; d != 0 && i < 100; d, i = g.Dominator(d), i+1 {
		if _, holder := g.Holder(d); holder {
			break
		}
		if c := g.Class(d); !platform(c.Name) {
			if d != o {
				f.Notes = append(f.Notes, fmt.Sprintf("it belongs to %s (%s)", Name(g, d), hex(g.ID(d))))
			}
			break
		}
	}
	s.add(f)
}

// platform reports whether a class is of the platform and not of a program.
func platform(name string) bool {
	for _, p := range [...]string{"java.", "javax.", "jdk.", "sun.", "com.sun.", "android.", "androidx.", "dalvik.", "kotlin.", "libcore."} {
		if len(name) >= len(p) && name[:len(p)] == p {
			return true
		}
	}
	return len(name) > 2 && name[len(name)-2:] == "[]"
}

// contentOf groups objects by class, the five with most bytes.
func (s *search) contentOf(objects []graph.Object) (all []Class) {
	by := map[string]*Class{}
	for _, o := range objects {
		name := Name(s.g, o)
		c := by[name]
		if c == nil {
			c = &Class{Name: name}
			by[name] = c
		}
		c.Count++
		c.Bytes += s.g.Size(o)
		c.Retained += max(s.g.Retained(o), 0)
	}
	for _, c := range by {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Class) int {
		return cmp.Or(cmp.Compare(b.Retained, a.Retained), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), 5)]
}

// suspectsWithoutTree takes the largest arrays and what a program's classes hold in static
// fields, and computes what each keeps.
func (s *search) suspectsWithoutTree() error {
	g := s.g
	type big struct {
		o    graph.Object
		size int64
	}
	var most []big
	err := g.Arrays(s.ctx, 0, func(a *graph.Array) {
		if a.Size < leastArray && a.Size*10_000 < s.total {
			return
		}
		if len(most) < chosen || a.Size > most[len(most)-1].size {
			most = append(most, big{a.Object, a.Size})
			slices.SortFunc(most, func(x, y big) int { return cmp.Compare(y.size, x.size) })
			most = most[:min(len(most), chosen)]
		}
	})
	if err != nil {
		return err
	}
	limit := int64(s.opts.Share * float64(s.total))
	seen := map[graph.Object]bool{}
	for _, b := range most {
		// What holds the array most likely keeps more: up its path to what the nearest
		// object of a program's class refers to.
		p, ok := g.Path(b.o)
		if !ok {
			continue
		}
		o := b.o
		for i := len(p.Steps) - 1; i >= 0 && platform(g.Class(p.Steps[i].Object).Name); i-- {
			o = p.Steps[i].Object
		}
		if seen[o] {
			continue
		}
		seen[o] = true
		bytes, objects := g.RetainedBy(o)
		if bytes >= limit {
			s.add(Finding{Kind: KindDominator, Class: g.Class(o).Name, Count: 1, Bytes: bytes, object: o,
				Title: fmt.Sprintf("one %s keeps %s", Name(g, o), Bytes(bytes)),
				Notes: []string{fmt.Sprintf("%d %s be free without it", objects, plural.Word(objects, "object would", "objects would"))}})
		}
	}
	return nil
}

// chosen is how many objects are examined without a tree. Each costs a pass over the heap.
const chosen = 4

// leastArray is the least size of an array that a search starts from, unless the heap is
// small.
const leastArray = 64 << 10
