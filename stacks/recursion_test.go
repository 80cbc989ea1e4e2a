package stacks

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestRecursion: many calls of a function by itself are folded into one line. With --full, all
// are shown. Frames in between are kept.
func TestRecursion(t *testing.T) {
	stackOf := func(names ...string) (fs []Frame) {
		for _, n := range names {
			fs = append(fs, Frame{Func: n, NoOffset: true})
		}
		return fs
	}
	deep := func(n int, name string) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = name
		}
		return out
	}
	for _, c := range []struct {
		in   []string
		want string // names, and the numbers of those left out
	}{
		{[]string{"a", "b"}, "a b"},
		{deep(4, "a"), "a a a a"},
		{deep(5, "a"), "a 3 a"},
		{append([]string{"x"}, append(deep(150, "a"), "main")...), "x a 148 a main"},
		{append(deep(6, "a"), deep(7, "b")...), "a 4 a b 5 b"},
		{append(deep(3, "a"), append([]string{"b"}, deep(3, "a")...)...), "a a a b a a a"},
		{deep(6, ""), "?? ?? ?? ?? ?? ??"},
	} {
		for _, full := range []bool{false, true} {
			s := &Snapshot{Threads: []Thread{{Frames: stackOf(c.in...)}}, Full: full}
			var b bytes.Buffer
			if err := s.WriteText(&b); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range strings.Split(b.String(), "\n")[3:] {
				var n int
				if f := strings.Fields(l); len(f) > 1 && f[0] == "…" {
					fmt.Sscan(f[1], &n)
					got = append(got, fmt.Sprint(n))
				} else if len(f) > 1 {
					got = append(got, f[1])
				}
			}
			want := c.want
			if full {
				want = strings.Join(c.in, " ")
				if c.in[0] == "" {
					want = c.want
				}
			}
			if s := strings.Join(got, " "); s != want {
				t.Errorf("%v, full %v: %s, want %s", c.in, full, s, want)
			}
		}
	}
}
