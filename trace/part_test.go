package trace

import (
	"slices"
	"testing"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// TestPart: a call continues while it is in a separately placed part of its function, and
// ends when the frame shows another function.
func TestPart(t *testing.T) {
	var s Symbols
	gamma, cold, delta := s.FuncID(Func{Name: "gamma"}), s.FuncID(Func{Name: "gamma", Linkage: "gamma.cold"}), s.FuncID(Func{Name: "delta"})
	s.Set(LocKey{0, 0x11}, []LocFrame{{Func: gamma, Line: 1}})
	s.Set(LocKey{0, 0x12}, []LocFrame{{Func: gamma, Line: 2}})
	s.Set(LocKey{0, 0x91}, []LocFrame{{Func: cold, Line: 3}})
	s.Set(LocKey{0, 0x41}, []LocFrame{{Func: delta, Line: 4}})
	rec := &Recording{Symbols: &s, Modules: []Module{{Path: "m"}}, Maps: []Maps{{Mappings: []Mapping{{Start: 0, End: 0x100}}}}}
	in := func(fn, pc uint64, part bool) stack.Frame {
		return stack.Frame{Func: fn, PC: pc, CFA: 0x8000, Exact: true, Part: part}
	}
	hot, part, later, other := in(0x10, 0x11, false), in(0x90, 0x91, true), in(0x10, 0x12, false), in(0x40, 0x41, false)
	for _, c := range []struct {
		name string
		in   []stack.Frame
		want []string
	}{
		{"there and back", []stack.Frame{hot, part, later}, []string{"1 +0 gamma:1", "9 -0 gamma:2"}},
		{"begun there", []stack.Frame{part, part, later}, []string{"1 +0 gamma:3", "9 -0 gamma:2"}},
		{"then another", []stack.Frame{hot, part, other}, []string{"1 +0 gamma:1", "3 -0 gamma:3", "3 +0 delta:4", "9 -0 delta:4"}},
		{"another's", []stack.Frame{other, part, part}, []string{"1 +0 delta:4", "2 -0 delta:4", "2 +0 gamma:3", "9 -0 gamma:3"}},
	} {
		log := &sliceLog{n: NewNames(rec)}
		sl := NewSlices(log.n, log)
		var d diff.Differ
		for i, f := range c.in {
			x := &stack.Sample{Time: stack.Time(i + 1), Stack: []stack.Frame{f}, State: stack.StateRunning}
			for _, e := range d.Step(x, nil) {
				sl.Apply(e)
			}
		}
		sl.Close(9)
		if !slices.Equal(log.out, c.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, log.out, c.want)
		}
	}
	if w := event.WordOf(&part); !w.Bare() {
		t.Errorf("%#x is taken to tell its function", uint64(w))
	}
}
