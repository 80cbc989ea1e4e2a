package ruby

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestMerge puts the frames of Ruby between those of C. In the texts, innermost first, a letter is a C
// function, E the one that evaluates, a number a frame of Ruby, and ! a gap.
func TestMerge(t *testing.T) {
	const eval = 'E'
	for _, c := range []struct {
		name, c  string
		groups   string // numbers of frames; ! at the end: the outer ones are missing, o: no evaluation runs the last group
		expected string
	}{
		{"one evaluation", "aEbc", "2", "a12Ebc"},
		{"two", "aEbEc", "2 1", "a12Eb3Ec"},
		{"an evaluation that begins", "EbEc", "1", "Eb1Ec"},
		{"a frame that is not run yet", "abEc", "1 1", "1ab2Ec"},
		{"no frame of C evaluates", "abc", "2", "12abc"},
		{"C ends early", "aEb!", "1 2", "a1Eb!23!"},
		{"C ends before the first evaluation", "a!", "2", "a!12!"},
		{"Ruby ends early", "aEbEc", "1 !", "a1Eb!Ec"},
		{"nothing of Ruby is known", "aEbEc", "!", "a!Eb!Ec"},
		{"methods in C run by nothing", "aEbc", "1 1o", "a1E2bc"},
		{"only methods in C", "abc", "2o", "12abc"},
	} {
		var frames []stack.Frame
		for _, r := range c.c {
			f := stack.Frame{Func: uint64(r), PC: uint64(r) + 5}
			if r == '!' {
				f = stack.Frame{PC: uint64(stack.ReasonNoRule), Kind: stack.KindError}
			}
			frames = append(frames, f)
		}
		var s Stack
		for _, w := range strings.Fields(c.groups) {
			if w == "!" {
				s.Reason = stack.ReasonMemory
				continue
			}
			g := Group{Open: strings.HasSuffix(w, "o")}
			fmt.Sscanf(w, "%d", &g.N)
			s.Groups = append(s.Groups, g)
			for range g.N {
				n := uint64(len(s.Frames) + 1)
				s.Frames = append(s.Frames, Frame{Addr: n, Func: n})
			}
		}
		var got strings.Builder
		for _, f := range s.Merge(nil, frames, eval) {
			switch f.Kind {
			case stack.KindError:
				got.WriteByte('!')
			case stack.KindRuby:
				fmt.Fprint(&got, f.Func)
			default:
				if f.Func == eval && (f.PC != eval || !f.Exact) {
					t.Errorf("%s: the evaluation is at %#x", c.name, f.PC)
				}
				got.WriteByte(byte(f.Func))
			}
		}
		if got.String() != c.expected {
			t.Errorf("%s: %s, not %s", c.name, got.String(), c.expected)
		}
	}
}

// TestHidden: from 3.4 on, the method around a rescue is not shown beside it.
func TestHidden(t *testing.T) {
	s := Stack{Frames: []Frame{{ISeq: 8}, {ISeq: 16}, {Entry: 8}, {ISeq: 24}}}
	kinds := []uint32{iseqRescue, iseqMethod, 0, iseqBlock}
	for minor, want := range map[int][]bool{3: {false, false, false, false}, 4: {false, true, false, false}} {
		r := Runtime{img: &Image{Minor: minor}}
		r.Hide(&s, func(i int) *Func { return &Func{kind: kinds[i]} })
		var got []bool
		for _, f := range s.Frames {
			got = append(got, f.Hidden)
		}
		if !slices.Equal(got, want) {
			t.Errorf("3.%d: %v, not %v", minor, got, want)
		}
	}
}

// TestEnvironmentAtEnd: an environment at the end of the address space is not among the values of a thread that has none.
func TestEnvironmentAtEnd(t *testing.T) {
	nothing := bytes.NewReader(nil)
	for _, ep := range []uint64{^uint64(0) - 31, ^uint64(0) - 23, ^uint64(0) - 15, ^uint64(0) - 7} {
		if _, err := new(Thread).env(nothing, nothing, ep); err == nil {
			t.Errorf("there is an environment that ends at %#x", ep)
		}
	}
}
