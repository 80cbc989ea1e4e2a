package naming

import (
	"bytes"
	"math"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/trace"
)

// perfLog is the program's perf map, nil if it has none.
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

// jitDump is the program's jitdump, nil if it has none.
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

// ends are the times at which modules were last there, by number: generations
// tell apart what was at the addresses of one that is no file in turn.
func ends(rec *trace.Recording) []int64 {
	out := make([]int64, len(rec.Modules))
	for i := range out {
		out[i] = math.MaxInt64
	}
	end := int64(math.MaxInt64)
	seen := make([]bool, len(out))
	for i := len(rec.Maps) - 1; i >= 0; i-- {
		// Generations of one time: the last of them is the one that counts.
		if i+1 < len(rec.Maps) && rec.Maps[i+1].At > rec.Maps[i].At {
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

// jitNames names run-time addresses outside files by what the program says of
// them: its jitdump and, for what that lacks, its perf map.
type jitNames struct {
	log  *symbol.PerfLog
	dump *symbol.JITDump
	ends []int64

	asked []symbol.PerfQuery
	of    map[symbol.PerfQuery][]int // modules
}

func (j *jitNames) add(g *gatherer, module int, addrs []uint64) {
	for _, a := range addrs {
		if f, ok := j.dump.Lookup(a, j.ends[module]); ok {
			g.set(module, a, []symbol.Frame{f})
			continue
		}
		if j.log == nil {
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

// finish looks up what was left to the perf map: all at one go.
func (j *jitNames) finish(g *gatherer) {
	j.log.Lookup(j.asked, func(q symbol.PerfQuery, name string, start uint64) {
		for _, module := range j.of[q] {
			g.set(module, q.Addr, []symbol.Frame{{Func: name, Start: start}})
		}
	})
}
