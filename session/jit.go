package session

import (
	"bytes"
	"io"
	"math"
	"path"
	"regexp"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/flight"
)

// jitDumpName matches the name of a jitdump, which programs map executable so that
// profilers find it.
var jitDumpName = regexp.MustCompile(`^jit-[0-9]+\.dump$`)

const (
	// maxDumpReuses bounds the times at which a JIT compiler's code is distinguished
	// from older code at its addresses.
	maxDumpReuses = 256
	// maxKept bounds the generations kept for it.
	maxKept = 4096
	// maxDumpRead bounds the bytes of a jitdump that are read: most of it is code, which is
	// skipped, and a sparse file has any size.
	maxDumpRead = 1 << 30
)

// keep stores a generation as it was recorded; the caller does not hold mu.
func (m *modules) keep(g trace.Maps, fresh []trace.Module) {
	if !m.whole {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mods = append(m.mods, fresh...)
	if len(m.kept) < maxKept {
		m.kept = append(m.kept, g)
	}
}

// jitDump stores the target's jitdump, if it has one. It records a generation of its
// memory for each time at which code replaced other code: each generation has the same
// memory as a new module, so that an address resolves to the code of its time. Call
// settle first.
func (m *modules) jitDump() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.mods {
		f := m.files[i]
		if f == nil || !jitDumpName.MatchString(path.Base(m.mods[i].Path)) {
			continue
		}
		b, err := symbol.StripJITDump(io.NewSectionReader(f, 0, maxDumpRead), maxDumpBytes)
		if err != nil && len(b) == 0 {
			continue
		}
		m.rec.Capture(trace.Captured{What: "jitdump", At: target.Now(), Data: b})
		if d, _ := symbol.ParseJITDump(bytes.NewReader(b)); d != nil && len(m.kept) < maxKept {
			for _, g := range reuses(m.kept, m.mods, d.Reused(maxDumpReuses)) {
				m.rec.Maps(g.Maps, g.fresh)
				m.dumped = true
			}
		}
		return
	}
}

// addJITDump adds the target's jitdump to a copy of a flight recorder's content, with
// the times at which code replaced other code during it.
func (m *modules) addJITDump(c *flight.Copy, keep stack.Time) {
	for i := range c.Modules {
		if !jitDumpName.MatchString(path.Base(c.Modules[i].Path)) {
			continue
		}
		m.mu.Lock()
		f := m.files[c.IDs[i]]
		m.mu.Unlock()
		if f == nil {
			continue
		}
		b, err := symbol.StripJITDump(io.NewSectionReader(f, 0, maxDumpRead), maxDumpBytes)
		if err != nil && len(b) == 0 {
			continue
		}
		c.Captured = append(c.Captured, trace.Captured{What: "jitdump", At: c.At, Data: b})
		d, _ := symbol.ParseJITDump(bytes.NewReader(b))
		if d == nil {
			return
		}
		times := slices.DeleteFunc(d.Reused(math.MaxInt), func(t int64) bool { return keep > 0 && stack.Time(t) < c.At-keep })
		for _, g := range reuses(c.Maps, c.Modules, times[max(0, len(times)-maxDumpReuses):]) {
			c.Maps = append(c.Maps, g.Maps)
			for range g.fresh {
				c.IDs = append(c.IDs, -1) // not a file
			}
			c.Modules = append(c.Modules, g.fresh...)
		}
		return
	}
}

type reuse struct {
	trace.Maps
	fresh []trace.Module
}

// reuses returns additional generations: one at each of the times, and one more for
// each generation recorded after the first of them.
func reuses(kept []trace.Maps, mods []trace.Module, times []int64) (out []reuse) {
	next := len(mods)
	stands := map[int]int{} // module of replaceable code → the module that represents it now
	put := func(at stack.Time, g *trace.Maps) {
		r := reuse{Maps: trace.Maps{At: at, Exec: g.Exec && at == g.At}}
		for _, x := range g.Mappings {
			if jit := &mods[x.Module]; len(jit.Segments) == 0 && jit.Path != "[vdso]" {
				if _, ok := stands[x.Module]; !ok {
					stands[x.Module] = next
					next++
					r.fresh = append(r.fresh, *jit)
				}
				x.Module = stands[x.Module]
			}
			r.Mappings = append(r.Mappings, x)
		}
		out = append(out, r)
	}
	g := 0
	for i, t := range times {
		at := stack.Time(t)
		for g+1 < len(kept) && kept[g+1].At <= at {
			g++
			if i > 0 {
				put(kept[g].At, &kept[g])
			}
		}
		if g >= len(kept) || kept[g].At > at {
			continue
		}
		clear(stands)
		put(at, &kept[g])
	}
	for g++; len(out) > 0 && g < len(kept); g++ {
		put(kept[g].At, &kept[g])
	}
	return out
}
