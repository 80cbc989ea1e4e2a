package leak

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/heap/graph"
)

// maxThreads bounds the threads that are looked at.
const maxThreads = 2 << 20

// instances calls f with each object of a class with that name or superclass that is not
// garbage.
func (s *search) instances(name string, f func(o graph.Object)) error {
	want := map[*graph.Class]bool{}
	any := false
	for _, c := range s.g.Classes() {
		if c.Count > 0 && c.Is(name) {
			want[c], any = true, true
		}
	}
	if !any {
		return nil
	}
	for o := graph.Object(1); int(o) <= s.g.Len(); o++ {
		if o&0xfffff == 0 && s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if s.g.Kind(o) == graph.KindInstance && want[s.g.Class(o)] && s.g.Strength(o) != graph.Garbage {
			f(o)
		}
	}
	return nil
}

// threadLocals adds up what threads keep in thread locals, by ThreadLocal.
func (s *search) threadLocals() error {
	g := s.g
	type local struct {
		key     graph.Object
		value   *graph.Class
		threads map[graph.Object]bool
		bytes   int64
		best    graph.Object
	}
	type id struct {
		key   graph.Object
		value *graph.Class
	}
	locals := map[id]*local{}
	n := 0
	err := s.instances("java.lang.Thread", func(thread graph.Object) {
		if n++; n > maxThreads {
			return
		}
		for _, field := range [...]string{"threadLocals", "inheritableThreadLocals", "localValues"} {
			table := g.Follow(thread, field, "table")
			if table == 0 {
				continue
			}
			g.Elements(table, 1<<20, func(_ int, v graph.Value) bool {
				entry := g.Find(v.Bits)
				if v.Bits == 0 || entry == 0 || g.Kind(entry) != graph.KindInstance {
					return true
				}
				value := g.Follow(entry, "value")
				if value == 0 {
					return true
				}
				k := id{g.Follow(entry, "referent"), g.Class(value)}
				l := locals[k]
				if l == nil {
					l = &local{key: k.key, value: k.value, threads: map[graph.Object]bool{}}
					locals[k] = l
				}
				l.threads[thread] = true
				size := int64(0)
				if g.HasTree() {
					size = g.Retained(value)
				} else {
					size = g.Size(value)
				}
				l.bytes += size
				if l.best == 0 || size > s.sizeOf(l.best) {
					l.best = value
				}
				return true
			})
		}
	})
	if err != nil {
		return err
	}
	var all []*local
	for _, l := range locals {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *local) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.best, b.best)) })
	for _, l := range all[:min(len(all), maxFindings)] {
		if !s.worth(l.bytes) {
			break
		}
		f := Finding{Kind: KindThreadLocals, Class: l.value.Name, Count: len(l.threads), Bytes: l.bytes, object: l.best,
			Title: fmt.Sprintf("%d threads keep %s in %s", len(l.threads), Bytes(l.bytes), s.localName(l.key)),
			Notes: []string{fmt.Sprintf("the values are of %s, %s a thread", l.value.Name, Bytes(l.bytes/int64(len(l.threads))))}}
		if l.key == 0 {
			f.Notes = append(f.Notes, "no ThreadLocal leads to these entries any more: they stay until the thread ends or its table is cleaned")
		}
		s.add(f)
	}
	return nil
}

func (s *search) sizeOf(o graph.Object) int64 {
	if s.g.HasTree() {
		return s.g.Retained(o)
	}
	return s.g.Size(o)
}

// localName returns what a ThreadLocal is called: the field that has it.
func (s *search) localName(key graph.Object) string {
	if key == 0 {
		return "thread locals whose key is gone"
	}
	if p, ok := s.g.Path(key); ok && len(p.Steps) > 1 {
		if r := p.Steps[len(p.Steps)-1].Ref; r.Class != nil && r.Strength == graph.Strong {
			return "the thread local " + r.Class.Name + "." + r.Name
		}
	}
	holders, _ := s.g.Referrers(key, 50)
	for _, h := range holders {
		if r := s.g.NameRef(h, key); r.Static && r.Class != nil {
			return "the thread local " + r.Class.Name + "." + r.Name
		}
	}
	return "a thread local of " + s.g.Class(key).Name
}

// virtualThreads adds up what parked virtual threads keep.
func (s *search) virtualThreads() error {
	g := s.g
	class := g.ClassByName("java.lang.VirtualThread")
	if class == nil || class.Count == 0 {
		return nil
	}
	states := map[uint64]string{}
	for _, name := range [...]string{"NEW", "STARTED", "RUNNABLE", "RUNNING", "PARKING", "PARKED", "PINNED", "YIELDING", "TERMINATED",
		"TIMED_PARKING", "TIMED_PARKED", "TIMED_PINNED", "UNPARKED", "YIELDED"} {
		if v, ok := g.Static(class, name); ok {
			states[v.Bits] = name
		}
	}
	state, hasState := g.Slot(class, "", "state")
	type task struct {
		name  string
		count int
		bytes int64
		best  graph.Object
	}
	tasks := map[string]*task{}
	total, bytes := 0, int64(0)
	threads := map[graph.Object]graph.Thread{}
	for _, t := range g.Threads() {
		if t.Virtual {
			threads[t.Object] = t
		}
	}
	withFrames := 0
	err := s.instances("java.lang.VirtualThread", func(o graph.Object) {
		if hasState && len(states) > 0 {
			v, ok := g.At(o, state)
			name := states[v.Bits&^(1<<8)]
			if !ok || name != "PARKED" && name != "TIMED_PARKED" {
				return
			}
		}
		total++
		name := ""
		if t, ok := threads[o]; ok {
			for _, c := range g.Stack(t) {
				if !platform(c.Class) {
					name = c.String()
					break
				}
			}
			if name != "" {
				withFrames++
			}
		}
		if name == "" {
			target := g.Follow(o, "cont", "target")
			if inner := g.Follow(target, "arg$2"); inner != 0 {
				target = inner
			}
			if inner := g.Follow(target, "val$task"); inner != 0 {
				target = inner
			}
			if name = "a task without a class"; target != 0 {
				name = g.Class(target).Name
			}
		}
		t := tasks[name]
		if t == nil {
			t = &task{name: name, best: o}
			tasks[name] = t
		}
		size := s.sizeOf(o)
		t.count++
		t.bytes += size
		bytes += size
		if size > s.sizeOf(t.best) {
			t.best = o
		}
	})
	if err != nil || total == 0 || total < 10 && !s.worth(bytes) {
		return err
	}
	var all []*task
	for _, t := range tasks {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *task) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name)) })
	f := Finding{Kind: KindVirtual, Class: class.Name, Count: total, Bytes: bytes, object: all[0].best,
		Title: fmt.Sprintf("%d parked virtual threads keep %s", total, Bytes(bytes))}
	for _, t := range all[:min(len(all), 5)] {
		f.Content = append(f.Content, Class{Name: "parked in " + t.name, Count: uint64(t.count), Bytes: t.bytes, Retained: t.bytes})
	}
	if withFrames == 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("the dump has no frames of virtual threads, as those of JDK 21 have none: what only they hold looks unreachable (%s are)",
			Bytes(g.Held(graph.Garbage))))
	}
	s.add(f)
	return nil
}
