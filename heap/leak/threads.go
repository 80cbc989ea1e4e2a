package leak

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/internal/plural"
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
			Title: fmt.Sprintf("%d %s %s in %s", len(l.threads), plural.Word(len(l.threads), "thread keeps", "threads keep"), Bytes(l.bytes), s.localName(l.key)),
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
	class := s.g.ClassByName("java.lang.VirtualThread")
	if class == nil || class.Count == 0 {
		return nil
	}
	p := newParked(s, class)
	err := s.instances("java.lang.VirtualThread", func(o graph.Object) {
		if p.isParked(o) {
			p.add(o)
		}
	})
	if err != nil || p.total == 0 || p.total < 10 && !s.worth(p.bytes) {
		return err
	}
	p.report(class)
	return nil
}

// parked counts parked virtual threads by where they are parked.
type parked struct {
	s        *search
	state    graph.Slot
	hasState bool
	states   map[uint64]string // name by number
	threads  map[graph.Object]graph.Thread

	tasks      map[string]*parkedTask
	total      int
	bytes      int64
	withFrames int
}

// parkedTask counts the threads that are parked in one function, or that run one task.
type parkedTask struct {
	name  string
	count int
	bytes int64
	best  graph.Object // keeps most
}

func newParked(s *search, class *graph.Class) *parked {
	p := &parked{s: s, states: map[uint64]string{}, threads: map[graph.Object]graph.Thread{}, tasks: map[string]*parkedTask{}}
	for _, name := range [...]string{"NEW", "STARTED", "RUNNABLE", "RUNNING", "PARKING", "PARKED", "PINNED", "YIELDING", "TERMINATED",
		"TIMED_PARKING", "TIMED_PARKED", "TIMED_PINNED", "UNPARKED", "YIELDED"} {
		if v, ok := s.g.Static(class, name); ok {
			p.states[v.Bits] = name
		}
	}
	p.state, p.hasState = s.g.Slot(class, "", "state")
	for _, t := range s.g.Threads() {
		if t.Virtual {
			p.threads[t.Object] = t
		}
	}
	return p
}

// isParked reports whether a virtual thread is parked, or the dump does not say.
func (p *parked) isParked(o graph.Object) bool {
	if !p.hasState || len(p.states) == 0 {
		return true
	}
	v, ok := p.s.g.At(o, p.state)
	name := p.states[v.Bits&^(1<<8)]
	return ok && (name == "PARKED" || name == "TIMED_PARKED")
}

// add counts a parked thread.
func (p *parked) add(o graph.Object) {
	p.total++
	name := p.function(o)
	if name != "" {
		p.withFrames++
	} else {
		name = p.target(o)
	}
	t := p.tasks[name]
	if t == nil {
		t = &parkedTask{name: name, best: o}
		p.tasks[name] = t
	}
	size := p.s.sizeOf(o)
	t.count++
	t.bytes += size
	p.bytes += size
	if size > p.s.sizeOf(t.best) {
		t.best = o
	}
}

// function returns the innermost function of the program in the thread's frames; "": none.
func (p *parked) function(o graph.Object) string {
	t, ok := p.threads[o]
	if !ok {
		return ""
	}
	for _, c := range p.s.g.Stack(t) {
		if !platform(c.Class) {
			return c.String()
		}
	}
	return ""
}

// target returns the class of the thread's task.
func (p *parked) target(o graph.Object) string {
	g := p.s.g
	target := g.Follow(o, "cont", "target")
	for _, wrapped := range [...]string{"arg$2", "val$task"} {
		if inner := g.Follow(target, wrapped); inner != 0 {
			target = inner
		}
	}
	if target == 0 {
		return "a task without a class"
	}
	return g.Class(target).Name
}

// report adds the finding.
func (p *parked) report(class *graph.Class) {
	var all []*parkedTask
	for _, t := range p.tasks {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *parkedTask) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name))
	})
	f := Finding{Kind: KindVirtual, Class: class.Name, Count: p.total, Bytes: p.bytes, object: all[0].best,
		Title: fmt.Sprintf("%d parked virtual %s %s", p.total, plural.Word(p.total, "thread keeps", "threads keep"), Bytes(p.bytes))}
	for _, t := range all[:min(len(all), 5)] {
		f.Content = append(f.Content, Class{Name: "parked in " + t.name, Count: uint64(t.count), Bytes: t.bytes, Retained: t.bytes})
	}
	if p.withFrames == 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("the dump has no frames of virtual threads, as those of JDK 21 have none: what only they hold looks unreachable (%s are)",
			Bytes(p.s.g.Held(graph.Garbage))))
	}
	p.s.add(f)
}
