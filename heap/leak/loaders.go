package leak

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/heap/graph"
)

// loaders finds classes that several class loaders have loaded each for itself: what a
// redeployed application leaves behind.
func (s *search) loaders() error {
	g := s.g
	copies := map[string]map[uint64]*graph.Class{}
	for _, c := range g.Classes() {
		if c.Loader == 0 || c.IsArray() {
			continue
		}
		m := copies[c.Name]
		if m == nil {
			m = map[uint64]*graph.Class{}
			copies[c.Name] = m
		}
		m[c.Loader] = c
	}
	// Loaders of the same class belong together.
	type set struct {
		loader  *graph.Class
		loaders map[graph.Object]bool
		classes map[string]int // copies of each
	}
	sets := map[*graph.Class]*set{}
	for name, m := range copies {
		if len(m) < 2 {
			continue
		}
		for id := range m {
			o := g.Find(id)
			if o == 0 || g.Strength(o) == graph.Garbage {
				continue
			}
			k := g.Class(o)
			t := sets[k]
			if t == nil {
				t = &set{k, map[graph.Object]bool{}, map[string]int{}}
				sets[k] = t
			}
			t.loaders[o] = true
			t.classes[name]++
		}
	}
	var found []Finding
	for _, t := range sets {
		if len(t.loaders) < 2 {
			continue
		}
		var all []graph.Object
		for o := range t.loaders {
			all = append(all, o)
		}
		slices.Sort(all)
		bytes := int64(0)
		if g.HasTree() {
			for _, o := range all {
				bytes += g.Retained(o)
			}
			// What several of them keep together only a tree of the set has.
		} else {
			bytes, _ = g.RetainedBy(all...)
		}
		name, most := "", 0
		for n, k := range t.classes {
			if k > most || k == most && n < name {
				name, most = n, k
			}
		}
		if most < 2 {
			continue
		}
		// The path of the one that is easiest to reach.
		best := all[0]
		least := 1 << 30
		for _, o := range all {
			if p, ok := g.Path(o); ok && len(p.Steps) < least {
				best, least = o, len(p.Steps)
			}
		}
		found = append(found, Finding{Kind: KindLoaders, Class: name, Count: len(all), Bytes: bytes, object: best,
			Title: fmt.Sprintf("%d class loaders of %s have each loaded %s", len(all), t.loader.Name, name),
			Notes: []string{fmt.Sprintf("%d classes are there more than once", len(t.classes)), "the path leads to one of the loaders"}})
	}
	slices.SortFunc(found, func(a, b Finding) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Title, b.Title)) })
	for _, f := range found[:min(len(found), maxFindings)] {
		s.add(f)
	}
	return nil
}

// finalizers reports objects that wait for their finalizer.
func (s *search) finalizers() error {
	bytes := s.g.Held(graph.Finalizer)
	if !s.worth(bytes) {
		return nil
	}
	var objects []graph.Object
	for o := graph.Object(1); int(o) <= s.g.Len(); o++ {
		if s.g.Strength(o) == graph.Finalizer {
			if _, holder := s.g.Holder(s.g.Dominator(o)); holder {
				objects = append(objects, o)
			}
		}
	}
	if len(objects) == 0 {
		return nil
	}
	s.add(Finding{Kind: KindFinalizers, Count: len(objects), Bytes: bytes, Content: s.contentOf(objects), object: sortedBy(objects, s.g.Retained)[0],
		Title: fmt.Sprintf("%d objects wait for their finalizers and keep %s", len(objects), Bytes(bytes))})
	return nil
}
