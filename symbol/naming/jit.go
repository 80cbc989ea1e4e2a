package naming

import (
	"bytes"
	"math"
	"slices"
	"strconv"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/trace"
)

// perfLog returns the program's perf map, nil if it has none.
func perfLog(kept []trace.Captured, g *gatherer) *symbol.PerfLog {
	var l *symbol.PerfLog
	for i := range kept {
		if kept[i].What != "perf-map" {
			continue
		}
		if l == nil {
			l = &symbol.PerfLog{}
		}
		if err := l.Add(int64(kept[i].At), bytes.NewReader(kept[i].Data)); err != nil {
			g.problem("%v", err)
			break
		}
	}
	if l != nil && l.Bad > 0 {
		g.problem("perf map: %d lines could not be understood", l.Bad)
	}
	return l
}

// jitDump returns the program's jitdump, nil if it has none.
func jitDump(kept []trace.Captured, g *gatherer) *symbol.JITDump {
	for i := range kept {
		if kept[i].What == "jitdump" {
			d, err := symbol.ParseJITDump(bytes.NewReader(kept[i].Data))
			if err != nil {
				g.problem("jitdump: %v", err)
			}
			return d
		}
	}
	return nil
}

// ends returns the last time of each module, by number: generations distinguish the
// code that was in turn at the same addresses without a file.
func ends(rec *trace.Recording) []int64 {
	out := make([]int64, len(rec.Modules))
	for i := range out {
		out[i] = math.MaxInt64
	}
	end := int64(math.MaxInt64)
	seen := make([]bool, len(out))
	for i := len(rec.Maps) - 1; i >= 0; i-- {
		if i+1 < len(rec.Maps) {
			// Of several generations of one time only the last counts.
			if rec.Maps[i+1].At == rec.Maps[i].At {
				continue
			}
			end = int64(rec.Maps[i+1].At)
		}
		for _, m := range rec.Maps[i].Mappings {
			if !seen[m.Module] {
				seen[m.Module], out[m.Module] = true, end
			}
		}
	}
	return out
}

// jitNames names run-time addresses outside files from the program's own descriptions:
// its jitdump, its in-memory files for debuggers and, if these have no entry, its perf
// map.
type jitNames struct {
	log  *symbol.PerfLog
	dump *symbol.JITDump
	// code maps addresses and times to objects, by number.
	code    *symbol.PerfLog
	objects []*symbol.JITObject
	ends    []int64

	asked []symbol.PerfQuery
	of    map[symbol.PerfQuery][]int // modules
}

func (j *jitNames) add(g *gatherer, module int, addrs []uint64) {
	for _, a := range addrs {
		if f, ok := j.dump.Lookup(a, j.ends[module]); ok {
			g.set(module, a, []symbol.Frame{f})
			continue
		}
		if j.log == nil && j.code == nil {
			continue
		}
		q := symbol.PerfQuery{Addr: a, Until: j.ends[module]}
		if j.of == nil {
			j.of = map[symbol.PerfQuery][]int{}
		}
		if j.of[q] == nil {
			j.asked = append(j.asked, q)
		}
		j.of[q] = append(j.of[q], module)
	}
}

// readObjects reads the files of GDB's JIT interface.
func (j *jitNames) readObjects(o Options, g *gatherer) {
	for _, c := range o.Captured {
		if c.What != "gdb-jit" {
			continue
		}
		x, err := symbol.OpenJITObject(c.Data, o.FullNames)
		if err != nil {
			g.problem("GDB's JIT interface: %v", err)
			continue
		}
		if j.code == nil {
			j.code = &symbol.PerfLog{}
		}
		if err := j.code.AddObject(int64(c.At), x, strconv.Itoa(len(j.objects))); err != nil {
			g.problem("GDB's JIT interface: %v", err)
		}
		j.objects = append(j.objects, x)
	}
}

// finish resolves the lookups deferred to the files and the perf map, all together.
func (j *jitNames) finish(g *gatherer) {
	var buf []symbol.Frame
	named := map[symbol.PerfQuery]bool{}
	j.code.Lookup(j.asked, func(q symbol.PerfQuery, object string, _ uint64) {
		i, _ := strconv.Atoi(object) // our own number
		if buf = j.objects[i].Frames(q.Addr, buf[:0]); len(buf) == 0 {
			return
		}
		named[q] = true
		for _, module := range j.of[q] {
			g.set(module, q.Addr, buf)
		}
	})
	j.asked = slices.DeleteFunc(j.asked, func(q symbol.PerfQuery) bool { return named[q] })
	j.log.Lookup(j.asked, func(q symbol.PerfQuery, name string, start uint64) {
		for _, module := range j.of[q] {
			g.set(module, q.Addr, []symbol.Frame{{Func: name, Start: start}})
		}
	})
}
