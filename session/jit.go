package session

import (
	"bytes"
	"io"
	"math"
	"path"
	"regexp"
	"slices"

	"github.com/sliverprof/sliver/flight"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// jitDumpName is how programs call their jitdump, which they map executable so
// that profilers find it.
var jitDumpName = regexp.MustCompile(`^jit-[0-9]+\.dump$`)

const (
	// maxDumpReuses is at how many times the code of a JIT compiler is told apart
	// from what was at its addresses before.
	maxDumpReuses = 256
	// maxKept bounds the generations that are kept for it.
	maxKept = 4096
)

// keep remembers a generation as it was noted; mu is not held.
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

// jitDump keeps the target's jitdump, if it has one, and notes generations of
// its memory at the times at which code took the place of other code: each
// names the same memory as a module of its own, so that an address means what
// was there at the time. settle has been called.
func (m *modules) jitDump() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.mods {
		f := m.files[i]
		if f == nil || !jitDumpName.MatchString(path.Base(m.mods[i].Path)) {
			continue
		}
		b, err := symbol.StripJITDump(io.NewSectionReader(f, 0, math.MaxInt64), maxDumpBytes)
		if err != nil && len(b) == 0 {
			continue
		}
		m.rec.Capture(trace.Captured{What: "jitdump", At: target.Now(), Data: b})
		if d, _ := symbol.ParseJITDump(bytes.NewReader(b)); d != nil && len(m.kept) < maxKept {
			for _, g := range reuses(m.kept, m.mods, d.Reused(maxDumpReuses)) {
				m.rec.Maps(g.Maps, g.fresh)
			}
		}
		return
	}
}

// addJITDump puts the target's jitdump into a copy of what a flight recorder
// holds, and the times at which code took the place of other code within it.
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
		b, err := symbol.StripJITDump(io.NewSectionReader(f, 0, math.MaxInt64), maxDumpBytes)
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
				c.IDs = append(c.IDs, -1) // no file
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

// reuses are further generations: one at each of the times, and one more for
// each that was noted after the first of them.
func reuses(kept []trace.Maps, mods []trace.Module, times []int64) (out []reuse) {
	next := len(mods)
	stands := map[int]int{} // module of code that comes and goes → the one that stands for it now
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
