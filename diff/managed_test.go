package diff

import (
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// TestManagedIncomplete: a walk that ended early, with Python frames whose places between the
// missing frames are unknown. If it can be joined to the stack before, these keep their places.
// Otherwise they are shown between two errors, and no frame of the stack before is kept.
func TestManagedIncomplete(t *testing.T) {
	var (
		start = stack.Frame{Func: 0x100, PC: 0x110, CFA: 0x1000}
		eval  = stack.Frame{Func: 0x200, PC: 0x200, CFA: 0xf00, Exact: true}
		py    = stack.Frame{Func: 0x8000_0000_0010, PC: 0x8000_0000_0012, CFA: 0x77_0000, Kind: stack.KindPython, Exact: true}
		f     = stack.Frame{Func: 0x300, PC: 0x310, CFA: 0xe00}
		leaf  = stack.Frame{Func: 0x400, PC: 0x404, CFA: 0xd00, Exact: true}
		other = stack.Frame{Func: 0x500, PC: 0x504, CFA: 0xd80, Exact: true}
		gap   = stack.Frame{PC: uint64(stack.ReasonRegister), Kind: stack.KindError}
	)
	d := &Differ{}
	var r Replayer
	for i, s := range []struct {
		in, want []stack.Frame // leaf first
	}{
		{[]stack.Frame{leaf, f, py, eval, start}, nil},
		{[]stack.Frame{other, f, gap, py, gap}, []stack.Frame{other, f, py, eval, start}},
		{[]stack.Frame{leaf, gap, py, gap}, nil},
		{[]stack.Frame{f, py, eval, start}, nil},
		{[]stack.Frame{leaf, f, gap}, []stack.Frame{leaf, f, py, eval, start}},
	} {
		x := &stack.Sample{Time: stack.Time(10 * (i + 1)), Stack: s.in, State: stack.StateRunning}
		if s.in[len(s.in)-1].Kind == stack.KindError {
			x.Reason = stack.ReasonRegister
		}
		for _, e := range d.Step(x, nil) {
			r.Apply(e, nothing{})
		}
		if s.want == nil {
			s.want = s.in
		}
		var got, want []event.Word
		for _, g := range r.Stack {
			got = append(got, g.Word)
		}
		for k := range s.want {
			want = append(want, event.WordOf(&s.want[len(s.want)-1-k]))
		}
		if !slices.Equal(got, want) {
			t.Errorf("sample %d: %x, not %x", i, got, want)
		}
	}
}

// TestJSIncomplete: below a gap, earlier JavaScript frames are not kept: others may have the same
// place.
func TestJSIncomplete(t *testing.T) {
	var (
		start = stack.Frame{Func: 0x100, PC: 0x110, CFA: 0x1000}
		js    = stack.Frame{Func: 0x8200_0000_0010, PC: 0x8200_0000_0012, CFA: 0xf00, Kind: stack.KindJS, Exact: true}
		leaf  = stack.Frame{Func: 0x400, PC: 0x404, CFA: 0xd00, Exact: true}
		other = stack.Frame{Func: 0x500, PC: 0x504, CFA: 0xd80, Exact: true}
		gap   = stack.Frame{PC: uint64(stack.ReasonNoRule), Kind: stack.KindError}
	)
	want := []stack.Kind{stack.KindNative, stack.KindError, stack.KindNative}
	for _, way := range []stack.Way{stack.WayStop, stack.WayPart} {
		d := &Differ{}
		var r Replayer
		for i, st := range [][]stack.Frame{{leaf, js, start}, {other, gap}} {
			x := &stack.Sample{Time: stack.Time(10 * (i + 1)), Stack: st, State: stack.StateRunning}
			if i == 1 {
				x.Reason, x.Way, x.Reach = stack.ReasonNoRule, way, 0x1000
			}
			for _, e := range d.Step(x, nil) {
				r.Apply(e, nothing{})
			}
		}
		var got []stack.Kind
		for _, g := range r.Stack {
			got = append(got, g.Word.Kind())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: %v, not %v", way, got, want)
		}
	}
}

// nothing is a Handler that ignores all calls.
type nothing struct{}

func (nothing) Enter(stack.Time, int, Frame) {}
func (nothing) Exit(stack.Time, int, Frame)  {}
func (nothing) Move(stack.Time, int, Frame)  {}
func (nothing) Other(event.Event)            {}
