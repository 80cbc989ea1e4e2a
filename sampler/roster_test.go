package sampler

import (
	"errors"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// listed is a target with a list of threads that counts how often each is read.
type listed struct {
	fakeTarget
	names map[stack.TID]string
	reads map[stack.TID]int
}

func (l *listed) Info(tid stack.TID) (stack.ThreadInfo, error) {
	l.reads[tid]++
	name, ok := l.names[tid]
	if !ok {
		return stack.ThreadInfo{}, errors.New("gone")
	}
	return stack.ThreadInfo{TID: tid, Name: name, State: stack.StateBlocked}, nil
}

// TestRoster: a thread is read when it is new, a few more times, and together with all others;
// its name comes from the last reading.
func TestRoster(t *testing.T) {
	l := &listed{names: map[stack.TID]string{1: "a", 2: "b"}, reads: map[stack.TID]int{}}
	var r roster
	names := func(due bool, tids ...stack.TID) (out []string) {
		for _, in := range r.list(l, tids, due, func() bool { return false }) {
			out = append(out, in.Name)
		}
		return out
	}
	if got := names(false, 1, 2); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("%q", got)
	}
	names(false, 1, 2)
	if l.reads[1] != 1 {
		t.Errorf("read %d times, want once", l.reads[1])
	}
	l.names[1] = "renamed"
	if got := names(true, 1, 2); !slices.Equal(got, []string{"renamed", "b"}) {
		t.Errorf("%q: a young thread's name changed", got)
	}
	r.next = r.next.AddDate(1, 0, 0) // reading all took very long
	for range 2 * youth {
		names(true, 1, 2)
	}
	if l.reads[1] != youth {
		t.Errorf("read %d times, want %d", l.reads[1], youth)
	}
	// The number of a taken-up thread now belongs to another one.
	in := r.list(l, []stack.TID{1, 2}, false, func() bool { return false })[1]
	if !r.taken(l, &in) || l.reads[2] != youth {
		t.Errorf("read %d times to be taken up, want none more than %d", l.reads[2], youth)
	}
	l.names[2] = "another"
	if !r.taken(l, &in) || in.Name != "another" {
		t.Errorf("%q: not read anew", in.Name)
	}
	delete(l.names, 2)
	if r.taken(l, &in) {
		t.Error("a thread that has ended was taken up")
	}
	if got := names(false, 1, 2); !slices.Equal(got, []string{"renamed"}) {
		t.Errorf("%q", got)
	}
	if names(false); len(r.known) != 0 {
		t.Errorf("%d threads are known of none", len(r.known))
	}
}
