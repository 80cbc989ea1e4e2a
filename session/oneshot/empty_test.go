package oneshot

import (
	"errors"
	"testing"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
)

// TestEmptyAgain: a running thread whose sample has no stack is sampled again, a bounded number of times.
// A stack, a sleeping thread and other errors end the tries.
func TestEmptyAgain(t *testing.T) {
	frame := stack.Frame{PC: 1}
	gap := stack.Frame{Kind: stack.KindError, PC: uint64(stack.ReasonNoRule)}
	empty := &stack.Sample{Way: stack.WayStop, State: stack.StateRunning, Reason: stack.ReasonNoRule, Stack: []stack.Frame{frame, gap}}
	full := &stack.Sample{Way: stack.WayStop, State: stack.StateRunning, Stack: []stack.Frame{frame, frame, frame}}
	short := &stack.Sample{Way: stack.WayStop, State: stack.StateRunning, Stack: []stack.Frame{frame}} // whole
	asleep := &stack.Sample{Way: stack.WayStop, State: stack.StateBlocked, Reason: stack.ReasonNoRule, Stack: []stack.Frame{frame, gap}}
	other := errors.New("other")
	type result struct {
		s   *stack.Sample
		err error
	}
	for _, x := range []struct {
		name    string
		results []result
		looks   int
		want    result
	}{
		{"at once", []result{{full, nil}}, 1, result{full, nil}},
		{"a whole stack of one frame", []result{{short, nil}}, 1, result{short, nil}},
		{"the second time", []result{{empty, nil}, {full, nil}}, 2, result{full, nil}},
		{"unsure, then empty", []result{{nil, sampler.ErrUnsure}, {empty, nil}, {full, nil}}, 3, result{full, nil}},
		{"never", []result{{empty, nil}}, emptyTries, result{empty, nil}},
		{"never sure", []result{{nil, sampler.ErrUnsure}}, emptyTries, result{nil, sampler.ErrUnsure}},
		{"asleep", []result{{asleep, nil}}, 1, result{asleep, nil}},
		{"ended", []result{{empty, nil}, {nil, other}}, 2, result{nil, other}},
	} {
		looks, rests := 0, 0
		g, err := whole(func() (sampler.Glance, error) {
			r := x.results[min(looks, len(x.results)-1)]
			looks++
			return sampler.Glance{Sample: r.s}, r.err
		}, func() { rests++ })
		if looks != x.looks || rests != looks-1 || g.Sample != x.want.s || !errors.Is(err, x.want.err) || err != nil && x.want.err == nil {
			t.Errorf("%s: %d looks, %d rests, %+v, %v", x.name, looks, rests, g.Sample, err)
		}
	}
}
