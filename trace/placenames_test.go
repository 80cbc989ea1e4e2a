package trace

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// TestPlaceNames: code without a symbol has one name in all processes and at all times. Of a file whose program headers are
// known that is its address in the file, of another file its offset, and of memory that is in no file the address.
func TestPlaceNames(t *testing.T) {
	rec := &Recording{
		Modules: []Module{{Path: "/lib/read.so", Segments: []Segment{{Off: 0x1000, Vaddr: 0x401000, Size: 0x2000}}}, {Path: "/lib/unread.so"}, {Path: "[anon]"}, {Path: "/memfd:jit (deleted)"}},
		Maps: []Maps{
			{At: 0, Mappings: []Mapping{{Start: 0x10000, End: 0x12000, Off: 0x1000}, {Start: 0x20000, End: 0x24000, Off: 0x3000, Module: 1}, {Start: 0x30000, End: 0x34000, Module: 2}, {Start: 0x40000, End: 0x44000, Module: 3}}},
			{At: 100, Mappings: []Mapping{{Start: 0x50000, End: 0x54000, Off: 0x3000, Module: 1}}},
		},
	}
	n := NewNames(rec)
	at := func(addr uint64, at stack.Time) *Loc {
		return n.Resolve(event.WordOf(&stack.Frame{PC: addr, Exact: true}), at)
	}
	for _, c := range []struct {
		addr uint64
		at   stack.Time
		want string
	}{{0x10010, 0, "read.so+0x401010"}, {0x20010, 0, "unread.so+0x3010"}, {0x50010, 100, "unread.so+0x3010"}, {0x30010, 0, "[anon]+0x30000"}, {0x40010, 0, "memfd:jit (deleted)+0x40000"}, {0x60010, 0, "[unknown]+0x60010"}} {
		if got := n.Func(&at(c.addr, c.at).Frames[0]).Name; got != c.want {
			t.Errorf("%#x at %d is %q, want %q", c.addr, c.at, got, c.want)
		}
	}
	if a, b := at(0x20010, 0), at(0x50010, 100); a != b || a.Key != (LocKey{1, 0x3010}) {
		t.Errorf("one place at two addresses: %+v and %+v", a, b)
	}
}
