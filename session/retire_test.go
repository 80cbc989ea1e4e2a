package session

import (
	"testing"

	"github.com/sliverprof/sliver/trace"
)

// What a process that has ended keeps in memory is bounded, and used only if the file has nothing else.
func TestRetire(t *testing.T) {
	for _, c := range []struct {
		name     string
		mappings int
		change   func(m *modules)
		whole    bool
	}{
		{"few", 3, nil, true},
		{"many mappings", maxRetired + 1, nil, false},
		{"generations of a jitdump in the file", 3, func(m *modules) { m.dumped = true }, false},
		{"generations that are not kept", 3, func(m *modules) { m.whole = false }, false},
	} {
		m := newModules(nil, nil)
		go m.run()
		m.whole = true
		m.keep(trace.Maps{Mappings: make([]trace.Mapping, c.mappings)}, []trace.Module{{Path: "/bin/a"}})
		if c.change != nil {
			c.change(m)
		}
		maps, mods, whole := m.retire()
		if whole != c.whole || whole && (len(maps) != 1 || len(mods) != 1) || !whole && (maps != nil || mods != nil) || m.kept != nil || m.mods != nil {
			t.Errorf("%s: whole %v, %d generations, %d modules", c.name, whole, len(maps), len(mods))
		}
	}
}
