package leak

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/internal/plural"
)

// loaders finds classes that several class loaders have loaded each for itself: what a
// redeployed application leaves behind.
func (s *search) loaders() error {
	var found []Finding
	for _, t := range s.loaderSets() {
		if f, ok := s.loadedTwice(t); ok {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Title, b.Title)) })
	for _, f := range found[:min(len(found), maxFindings)] {
		s.add(f)
	}
	return nil
}

// loaderSet holds the loaders of one class that have loaded a class which another loader has
// loaded too.
type loaderSet struct {
	loader  *graph.Class
	loaders map[graph.Object]bool
	classes map[string]int // copies of each
}

// loaderSets groups class loaders by their class, since these belong together.
func (s *search) loaderSets() map[*graph.Class]*loaderSet {
	g := s.g
	loadersOf := map[string]map[uint64]bool{} // IDs of loaders by the name of a class
	for _, c := range g.Classes() {
		if c.Loader == 0 || c.IsArray() {
			continue
		}
		if loadersOf[c.Name] == nil {
			loadersOf[c.Name] = map[uint64]bool{}
		}
		loadersOf[c.Name][c.Loader] = true
	}
	sets := map[*graph.Class]*loaderSet{}
	for name, ids := range loadersOf {
		if len(ids) < 2 {
			continue
		}
		for id := range ids {
			o := g.Find(id)
			if o == 0 || g.Strength(o) == graph.Garbage {
				continue
			}
			k := g.Class(o)
			if sets[k] == nil {
				sets[k] = &loaderSet{k, map[graph.Object]bool{}, map[string]int{}}
			}
			sets[k].loaders[o] = true
			sets[k].classes[name]++
		}
	}
	return sets
}

// loadedTwice returns the finding for a set, if two of its loaders have loaded the same class.
func (s *search) loadedTwice(t *loaderSet) (f Finding, ok bool) {
	if len(t.loaders) < 2 {
		return f, false
	}
	name, most := "", 0
	for n, k := range t.classes {
		if k > most || k == most && n < name {
			name, most = n, k
		}
	}
	if most < 2 {
		return f, false
	}
	all := slices.Sorted(maps.Keys(t.loaders))
	return Finding{Kind: KindLoaders, Class: name, Count: len(all), Bytes: s.retainedByAll(all), object: s.easiest(all),
		Title: fmt.Sprintf("%d class loaders of %s have each loaded %s", len(all), t.loader.Name, name),
		Notes: []string{fmt.Sprintf("%d %s there more than once", len(t.classes), plural.Word(len(t.classes), "class is", "classes are")), "the path leads to one of the loaders"}}, true
}

// retainedByAll returns what the objects keep. With a tree it is the sum for each alone, since
// only a tree of the set has what several of them keep together.
func (s *search) retainedByAll(all []graph.Object) (bytes int64) {
	if !s.g.HasTree() {
		bytes, _ = s.g.RetainedBy(all...)
		return bytes
	}
	for _, o := range all {
		bytes += s.g.Retained(o)
	}
	return bytes
}

// easiest returns the object with the shortest path, the first one if there is none.
func (s *search) easiest(all []graph.Object) graph.Object {
	best, least := all[0], 1<<30
	for _, o := range all {
		if p, ok := s.g.Path(o); ok && len(p.Steps) < least {
			best, least = o, len(p.Steps)
		}
	}
	return best
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
	s.add(Finding{Kind: KindFinalizers, Count: len(objects), Bytes: bytes, Content: s.contentOf(objects), object: largest(objects, s.g.Retained),
		Title: fmt.Sprintf("%d %s %s", len(objects), plural.Word(len(objects), "object waits for its finalizer and keeps", "objects wait for their finalizers and keep"), Bytes(bytes))})
	return nil
}
