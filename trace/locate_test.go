package trace

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestLocateLater: of a process that just began, maps may be read before its libraries are there, and be noted after a sample in them.
func TestLocateLater(t *testing.T) {
	maps := func(at stack.Time, exec bool, m ...Mapping) Maps { return Maps{At: at, Exec: exec, Mappings: m} }
	program, library, other := Mapping{Start: 0x1000, End: 0x2000}, Mapping{Start: 0x7000, End: 0x9000, Module: 1}, Mapping{Start: 0xa000, End: 0xb000, Module: 2}
	rec := &Recording{Modules: []Module{{Path: "/bin/program"}, {Path: "/lib/library.so"}, {Path: "/lib/other.so"}},
		Maps: []Maps{maps(0, false, program), maps(10, false, program), maps(20, false, program, library), maps(30, true, program, other)}}
	for _, c := range []struct {
		addr   uint64
		from   int
		module int
		ok     bool
	}{{0x1100, 0, 0, true}, {0x8000, 0, 1, true}, {0x8000, 1, 1, true}, {0x8000, 2, 1, true}, {0x8000, 3, -1, false}, {0xa100, 0, -1, false}, {0xa100, 3, 2, true}} {
		if k, ok := rec.Locate(c.addr, c.from); ok != c.ok || k.Module != c.module {
			t.Errorf("%#x from generation %d: module %d, %v; want %d, %v", c.addr, c.from, k.Module, ok, c.module, c.ok)
		}
	}
}
