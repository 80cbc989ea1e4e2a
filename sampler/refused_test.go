package sampler

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// Each thread that is not recorded counts once, with the newest reason, also after it has ended.
// One that ended before it was opened, or is recorded later, does not count.
func TestRefusals(t *testing.T) {
	var r refusals
	full := func(tid int) error { return fmt.Errorf("open schedstat of thread %d: %w", tid, ErrFiles) }
	for range 3 { // it is tried repeatedly
		r.note(1, full(1))
		r.note(2, full(2))
		r.note(3, ErrDenied)
		r.note(4, full(4))
		r.note(5, fmt.Errorf("open thread 5: %w", ErrGone))
	}
	r.note(4, nil)
	r.note(3, full(3))
	r.note(6, errors.New("odd"))
	want := []Refused{{3, ErrFiles.Error()}, {1, "odd"}}
	if got := r.counts(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	r.listed([]stack.TID{2, 3})
	if got := r.counts(); !slices.Equal(got, want) {
		t.Errorf("after some ended: %v, want %v", got, want)
	}
	r.note(1, full(1)) // another thread of the same number
	if got := r.counts(); got[0].Threads != 4 {
		t.Errorf("a number that was given again: %v", got)
	}
	if r.has(4) || !r.has(2) {
		t.Error("what is counted now is wrong")
	}
}
