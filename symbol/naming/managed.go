package naming

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/managed"
)

// managedFunctions combines the captured functions of one runtime, sorted by address.
func managedFunctions(r managed.Range, kept []trace.Captured, g *gatherer) (all []managed.Function) {
	for i := range kept {
		if kept[i].What != r.What {
			continue
		}
		part, err := managed.Parse(r, kept[i].Data, nil)
		if err != nil {
			g.problem("%v", err)
		}
		all = append(all, part...)
	}
	slices.SortStableFunc(all, func(a, b managed.Function) int { return cmp.Compare(a.Addr, b.Addr) })
	return all
}

// managed names locations of a runtime's functions, whose module is id.
func (g *gatherer) managed(id int, addrs []uint64, all []managed.Function) {
	for _, a := range addrs {
		if f := managed.Find(all, a); f != nil {
			g.set(id, a, []symbol.Frame{ManagedFrame(f, a)})
		}
	}
}

// ManagedFrame returns the frame at addr in f.
func ManagedFrame(f *managed.Function, addr uint64) symbol.Frame {
	return symbol.Frame{Func: cmp.Or(f.Name, "?"), File: f.File, Line: f.Line(addr), StartFile: f.File, StartLine: f.First, Start: f.Addr}
}
