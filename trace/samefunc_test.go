package trace_test

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Clones and inlined copies of a function are one function; others of the same name, and functions of interpreters, are not.
func TestSameFunction(t *testing.T) {
	s := &trace.Symbols{}
	for i, f := range []trace.Func{
		{Name: "walk", File: "tree.c", StartLine: 24}, // inlined
		{Name: "walk", File: "tree.c", StartLine: 24, Start: 0x100},
		{Name: "walk", File: "tree.c", StartLine: 24, Start: 0x200},
		{Name: "walk", File: "other.c", StartLine: 24, Start: 0x300},
		{Name: "walk", File: "tree.c", StartLine: 24, Start: 0x400, Module: 1},
		{Name: "init", Start: 0x500},
		{Name: "init", Start: 0x600},
		{Name: "put", Linkage: "_Z3putIiEvT_", File: "put.h", StartLine: 3, Start: 0x700},
		{Name: "put", Linkage: "_Z3putIlEvT_", File: "put.h", StartLine: 3, Start: 0x800},
		{Name: "put", Linkage: "_Z3putIiEvT_.part.0", File: "put.h", StartLine: 3, Start: 0x900},
	} {
		s.Set(trace.LocKey{Module: f.Module, Addr: uint64(i) + 1}, []trace.LocFrame{{Func: s.FuncID(f)}})
	}
	rec := &trace.Recording{Symbols: s, Modules: []trace.Module{{Path: "/bin/tree", Segments: []trace.Segment{{Size: 0x1000}}}, {Path: "/lib/x.so", Segments: []trace.Segment{{Size: 0x1000}}}},
		Maps: []trace.Maps{{Mappings: []trace.Mapping{{Start: 0x1000, End: 0x2000}, {Start: 0x2000, End: 0x3000, Module: 1}}}}}
	for i, want := range []int{1, 1, 1, 3, 4, 5, 6, 7, 8, 7} {
		base := uint64(0x1000)
		if i == 4 {
			base = 0x2000
		}
		for kind, want := range map[stack.Kind]int{stack.KindNative: want, stack.KindJS: i} {
			n := trace.NewNames(rec)
			w := event.WordOf(&stack.Frame{PC: base + uint64(i) + 1, Kind: kind, Exact: true})
			if l := n.Resolve(w, 0); l.Key.Addr != uint64(i)+1 || l.Frames[0].Func != want {
				t.Errorf("function %d of %v: %+v, want function %d", i, kind, l, want)
			}
		}
	}
}
