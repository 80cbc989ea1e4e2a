package main

import (
	"encoding/json"
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
	for known, want := range map[uint64]string{0: "null", 1: "0"} {
		b, err := json.Marshal(&traceSummary{Functions: []functionLine{{known: known}}})
		var sum struct{ Functions []map[string]json.RawMessage }
		if err == nil {
			err = json.Unmarshal(b, &sum)
		}
		if err != nil || len(sum.Functions) != 1 {
			t.Fatalf("%v: %s", err, b)
		}
		for _, field := range []string{"total_ns", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"} {
			if got := string(sum.Functions[0][field]); got != want {
				t.Errorf("%d known calls: %s is %q, want %s", known, field, got, want)
			}
		}
	}
}
