package sampler

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestNames: new names come from samples and from the list of threads, with their times. An older list does not
// undo what a sample saw, and names of runtimes hide the kernel's.
func TestNames(t *testing.T) {
	var got []string
	th, other := &thread{info: stack.ThreadInfo{TID: 7}}, &thread{info: stack.ThreadInfo{TID: 7}}
	s := &Sampler{roll: roll{names: map[stack.TID]named{}, threads: map[stack.TID]*thread{7: th}},
		cfg: Config{Renamed: func(in stack.ThreadInfo, at stack.Time) {
			got = append(got, fmt.Sprintf("%d %s at %d", in.TID, in.Name, at))
		}}}
	list := func(th *thread, name, comm string, at stack.Time) {
		s.tellNames()
		s.listed(th, &stack.ThreadInfo{TID: 7, Name: name, Comm: comm}, at)
	}
	list(nil, "a", "", 10)
	s.named(th, "a", 20)
	s.named(th, "b", 30)
	list(th, "a", "", 25) // read before the sample
	list(th, "b", "", 35)
	list(th, "c", "", 40)
	s.named(other, "x", 50) // a thread that ended had the same number
	list(th, "own", "kernel's", 60)
	s.named(th, "kernel's 2", 70)
	s.tellNames()
	if want := []string{"7 b at 30", "7 c at 40", "7 own at 60"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	// A name that has no room is left to the list.
	got = nil
	list(th, "0", "", 100)
	for i := range maxRenamed + 2 {
		s.named(th, fmt.Sprint(i+1), stack.Time(101+i))
	}
	list(th, "last", "", 1_000_000)
	if n := len(got); n != maxRenamed+2 || got[n-1] != "7 last at 1000000" || got[n-2] != fmt.Sprintf("7 %d at %d", maxRenamed, 100+maxRenamed) {
		t.Errorf("%d names, the last %q", n, got[n-2:])
	}
}
