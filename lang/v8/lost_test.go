package v8

import (
	"errors"
	"testing"

	"github.com/sliverprof/sliver/unwind/meter"
)

// TestLost: a frame that may be a function's is reported as lost, not as plain machine code, if
// reading its data would exceed the limit of one walk. A frame that cannot be a function's is not.
func TestLost(t *testing.T) {
	img := layouts(t)[0]
	r := New(img, func(*Function) any { return nil })
	object := &slab{b: []byte{1, 0x10, 0, 0, 0, 0, 0, 0}} // each word is a pointer
	number := &slab{b: []byte{0, 0, 0, 0, 7, 0, 0, 0}}
	for _, x := range []struct {
		name  string
		words *slab
		p     Place
		spent bool
		lost  bool
	}{
		{"function", object, Place{PC: 0x5000, FP: 0x8000}, true, true},
		{"function, all read", object, Place{PC: 0x5000, FP: 0x8000}, false, false},
		{"other frame", number, Place{PC: 0x5000, FP: 0x8000}, true, false},
		{"no frame", object, Place{PC: 0x5000}, true, false},
		{"made code", number, Place{PC: 0x5000, FP: 0x8000, Made: true}, true, true},
	} {
		w, m := r.Walker(), &meter.Meter{}
		m.Begin(&slab{}, &meter.Credit{})
		if x.spent {
			for _, first := range []bool{false, true} {
				done := func() {}
				if first {
					done = m.FirstLook()
				}
				if err := m.Charge(m.Left()); err != nil {
					t.Fatal(err)
				}
				if err := m.Charge(1); !errors.Is(err, meter.ErrSpent) {
					t.Fatalf("charged: %v", err)
				}
				done()
			}
		}
		w.Begin(m, &Known{}, nil, x.words)
		js, lost := w.Frames(&x.p, x.words)
		if len(js) != 0 || lost != x.lost {
			t.Errorf("%s: %d functions, lost %v; want none, %v", x.name, len(js), lost, x.lost)
		}
		w.End()
		m.End()
	}
}
