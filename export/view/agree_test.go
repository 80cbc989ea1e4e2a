package view

import (
	"math/rand/v2"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// Any runs keep their order and total length, without gaps. Runs of states that have boundaries add up to the
// account if that is possible.
func TestAgree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	states := []stack.State{stack.StateRunning, stack.StateRunnable, stack.StateBlocked, stack.StateDisk}
	for try := range 1000 {
		var runs []StateRun
		at, sum := stack.Time(1000), map[stack.State]int64{}
		for range 2 + rnd.IntN(60) {
			x := StateRun{at, rnd.Int64N(20_000_000), states[rnd.IntN(4)]}
			runs = append(runs, x)
			at += stack.Time(x.NS)
			sum[x.State] += x.NS
		}
		cpu := sum[stack.StateRunning] * (90 + rnd.Int64N(20)) / 100
		Agree(runs, cpu, sum[stack.StateRunnable], 10_000_000)
		now, next := map[stack.State]int64{}, stack.Time(1000)
		for i, x := range runs {
			if x.At != next || x.NS < 0 {
				t.Fatalf("%d: run %d: %+v, the one before ends at %d", try, i, x, next)
			}
			next = x.At + stack.Time(x.NS)
			now[x.State] += x.NS
		}
		if next != at {
			t.Fatalf("%d: they end at %d, not %d", try, next, at)
		}
		if len(runs) > 30 && now[stack.StateRunning] != cpu {
			t.Errorf("%d: running for %d, the account says %d, samples %d", try, now[stack.StateRunning], cpu, sum[stack.StateRunning])
		}
	}
	// A boundary moves by at most an interval if that is enough.
	runs := []StateRun{{0, 100, stack.StateBlocked}, {100, 10, stack.StateRunning}, {110, 1000, stack.StateBlocked}}
	Agree(runs, 30, 0, 10)
	if want := (StateRun{90, 30, stack.StateRunning}); runs[1] != want {
		t.Errorf("%+v, want %+v", runs[1], want)
	}
	Agree(nil, 5, 5, 10)
}
