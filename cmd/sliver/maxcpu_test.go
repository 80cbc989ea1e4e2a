package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestMaxCPU records three busy processes at a short interval. The limit stretches the intervals of all of them,
// and the summary says so.
func TestMaxCPU(t *testing.T) {
	testprog.Whole(t, "package sampler tests the bound with a clock of its own")
	testprog.Need(t, "gcc", "ptrace")
	program := testprog.Build(t, "c/spin", "O2")
	var pids []string
	for range 3 {
		pids = append(pids, fmt.Sprint(testprog.Start(t, program, "--seconds", "120").PID))
	}
	record := func(more ...string) result {
		t.Helper()
		r := sliver(t, t.TempDir(), append([]string{"record", "-p", strings.Join(pids, ","), "-i", "1ms", "--max-overhead", "0", "-d", "8s", "-o", "x.sliver"}, more...)...)
		if r.status != 0 {
			t.Fatalf("%+v", r)
		}
		return r
	}
	if r := record("--max-cpu", "1%"); !strings.Contains(strings.Join(strings.Fields(r.out+r.errors), " "), "; to hold --max-cpu 1%, the interval was stretched from 1 ms to ") {
		t.Errorf("%+v", r)
	}
	for limit, most := range map[string]bool{"1%": false, "0": true} {
		var sum struct{ Cost costJSON }
		if err := json.Unmarshal([]byte(record("--max-cpu", limit, "--json").out), &sum); err != nil {
			t.Fatal(err)
		}
		if (sum.Cost.Stretch <= 1) != most || (sum.Cost.MaxCPU == 0) != most {
			t.Errorf("--max-cpu %s: %+v", limit, sum.Cost)
		}
	}
}
