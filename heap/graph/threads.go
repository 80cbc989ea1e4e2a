package graph

import (
	"fmt"
	"sort"
)

// stackIndex finds the parts of stack traces; it is built when the first is asked for.
type stackIndex struct {
	trace map[uint32]int    // by serial number: its place among the survey's traces
	frame map[uint64]int    // by ID: its place among the survey's frames
	class map[uint32]uint64 // by serial number: the ID of its name
}

// Call is a frame of a thread in the dump.
type Call struct {
	Class, Method, Source string
	Line                  int // 0: unknown
}

func (c Call) String() string {
	s := c.Class + "." + c.Method
	switch {
	case c.Source != "" && c.Line > 0:
		s += fmt.Sprintf(" (%s:%d)", c.Source, c.Line)
	case c.Source != "":
		s += " (" + c.Source + ")"
	}
	return s
}

// Thread is a thread of the dump.
type Thread struct {
	Object  Object
	Name    string
	Virtual bool
	Serial  uint32
	trace   uint32
}

// Threads returns the threads that are roots, by their serial numbers.
func (g *Graph) Threads() (all []Thread) {
	for serial, t := range g.survey.threadRoots {
		o := g.Find(t.id)
		if o == 0 {
			continue
		}
		all = append(all, Thread{o, g.ThreadName(o), g.Class(o).Is("java.lang.VirtualThread"), serial, t.trace})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Serial < all[j].Serial })
	return all
}

// ThreadName returns a thread's name, as java.lang.Thread has it.
func (g *Graph) ThreadName(o Object) string {
	name := g.Follow(o, "name")
	if s, ok := g.Text(name, 200); ok {
		return s
	}
	var runes []rune // before JDK 9 it was a char[]
	if name != 0 && g.Kind(name) == KindPrimitiveArray {
		g.Elements(name, 200, func(_ int, v Value) bool {
			runes = append(runes, rune(v.Bits))
			return true
		})
	}
	return string(runes)
}

// Stack returns a thread's frames, leaf first.
func (g *Graph) Stack(t Thread) []Call { return g.calls(t.trace) }

// CallOf returns the frame that has a root, false if the dump does not say.
func (g *Graph) CallOf(r Root) (Call, bool) {
	t, ok := g.survey.threadRoots[r.serial]
	if !ok || r.Frame < 0 {
		return Call{}, false
	}
	calls := g.calls(t.trace)
	if r.Frame >= len(calls) {
		return Call{}, false
	}
	return calls[r.Frame], true
}

func (g *Graph) calls(serial uint32) (all []Call) {
	if g.stacks.trace == nil {
		g.stacks.trace = map[uint32]int{}
		g.stacks.frame = map[uint64]int{}
		g.stacks.class = map[uint32]uint64{}
		for i := range g.survey.traces {
			g.stacks.trace[g.survey.traces[i].Serial] = i
		}
		for i := range g.survey.frames {
			g.stacks.frame[g.survey.frames[i].ID] = i
		}
		for _, l := range g.survey.loaded {
			g.stacks.class[l.serial] = l.name
		}
	}
	i, ok := g.stacks.trace[serial]
	if !ok {
		return nil
	}
	for _, id := range g.survey.traces[i].Frames {
		k, ok := g.stacks.frame[id]
		if !ok {
			all = append(all, Call{Class: "?", Method: "?"})
			continue
		}
		f := g.survey.frames[k]
		c := Call{Class: className(g.names.get(g.stacks.class[f.Class])), Method: g.names.get(f.Method), Source: g.names.get(f.Source)}
		if f.Line > 0 {
			c.Line = int(f.Line)
		}
		all = append(all, c)
	}
	return all
}
