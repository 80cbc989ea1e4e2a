package main

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/session/exact"
)

// Of a function whose calls have no known begin and end, as where all are left by longjmp, no time is shown, and not 0.
func TestTimesOfLeftCalls(t *testing.T) {
	var left, returned exact.FuncStats
	left.Calls, left.Left = 5, 5
	returned.Calls = 1
	returned.Times.Add(2000)
	c := &session.Calls{Functions: []exact.Function{{Name: "jumper"}, {Name: "leaf"}}}
	c.Funcs = []exact.FuncStats{left, returned}
	var out strings.Builder
	writeCalls(&out, c, &callFlags{})
	if want := "jumper: 5 calls, 5 left without a return\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q, want %q", out.String(), want)
	}
	if want := "leaf: 1 call, p50 2µs, p99 2µs, longest 2µs\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q, want %q", out.String(), want)
	}
	if a, b := knownTime(0, 0), knownTime(1, 0); a != "-" || b != "0s" {
		t.Errorf("%q and %q", a, b)
	}
}
