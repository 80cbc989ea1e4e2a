package naming

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/python"
)

// pythonFunctions puts together what was kept of Python's functions: by address.
func pythonFunctions(kept []trace.Captured, g *gatherer) (all []python.Function) {
	for i := range kept {
		if kept[i].What != "python" {
			continue
		}
		part, err := python.ParseTable(kept[i].Data, nil)
		if err != nil {
			g.problem("%v", err)
		}
		all = append(all, part...)
	}
	slices.SortStableFunc(all, func(a, b python.Function) int { return cmp.Compare(a.Addr, b.Addr) })
	return all
}

func pythonFrame(all []python.Function, addr uint64) (symbol.Frame, bool) {
	f := python.Find(all, addr)
	if f == nil {
		return symbol.Frame{}, false
	}
	return symbol.Frame{Func: cmp.Or(f.Name, "?"), File: f.File, Line: f.Line(addr), StartFile: f.File, StartLine: f.First, Start: f.Addr}, true
}
