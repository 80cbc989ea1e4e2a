package sampler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

func TestSelection(t *testing.T) {
	all := []stack.ThreadInfo{
		{TID: 105, NSTID: 9, Name: "worker-1", Born: 30},
		{TID: 100, NSTID: 1, Name: "server", Main: true, Born: 10},
		{TID: 103, NSTID: 5, Name: "worker-0", Born: 20},
		{TID: 7, NSTID: 12, Name: "gc,old", Born: 40},
	}
	for _, c := range []struct{ spec, want string }{
		{"all", "100 103 105 7"},
		{"main", "100"},
		{"main,2", "100 103"},
		{"105", "105"},
		{"9", "105"}, // its number in the target's namespace
		{"7", "7"},   // a TID wins over a position
		{"4", "7"},   // a position
		{"99", ""},   // neither
		{"1", "100"}, // here main has NSTID 1, and also position 1
		{"worker-*", "103 105"},
		{"worker-?,!worker-1", "103"},
		{"!main", "103 105 7"},
		{"!worker-*,!main", "7"},
		{"all,!/^work/", "100 7"},
		{"/er/", "100 103 105"},
		{"/c,o/", "7"},
		{"/c,o/,main", "100 7"},
		{"main, worker-0", "100 103"},
		{"!all,main", "100"},
	} {
		s, err := ParseSelection(c.spec)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		var got []string
		for _, x := range s.Pick(all) {
			got = append(got, fmt.Sprint(x.TID))
		}
		if g := strings.Join(got, " "); g != c.want {
			t.Errorf("%s: %q, want %q", c.spec, g, c.want)
		}
	}
	// Java's main thread is not the process's first one, and a program may be named main.
	for _, c := range []struct {
		first, spec string
		want        []stack.TID
	}{
		{"java", "main", []stack.TID{1, 2}}, {"java", "all,!main", []stack.TID{3}},
		{"main", "main", []stack.TID{1}}, {"main", "!main", []stack.TID{2, 3}},
	} {
		s, err := ParseSelection(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		var got []stack.TID
		for _, x := range s.Pick([]stack.ThreadInfo{{TID: 1, Name: c.first, Main: true}, {TID: 2, Name: "main", Born: 1}, {TID: 3, Name: "w", Born: 2}}) {
			got = append(got, x.TID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s of a program called %s: %v, want %v", c.spec, c.first, got, c.want)
		}
	}
	for _, bad := range []string{"", "a,,b", "!", "0", "-3", "/(/", "[", "main,"} {
		if _, err := ParseSelection(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than one line: %v", bad, err)
		}
	}
}

func FuzzSelection(f *testing.F) {
	f.Add("main,5,!w*,/a,b/")
	f.Fuzz(func(t *testing.T, s string) {
		sel, err := ParseSelection(s)
		if err == nil {
			sel.Pick([]stack.ThreadInfo{{TID: 1, Name: s, Main: true}, {TID: 2, Name: "x"}})
		}
	})
}
