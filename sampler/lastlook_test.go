package sampler

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// TestLastLook: a thread that goes to sleep between the last tick and the end has all its CPU time in its samples, and is
// not stopped for that.
func TestLastLook(t *testing.T) {
	const works = 1_200_020_000 // the last stop takes from 1 to 26 µs after the tick
	th := &fakeThread{tid: 1, cost: 25_000, at: func(now stack.Time) (Counters, bool, stack.State) {
		c := Counters{CPU: min(int64(now), works), Switches: 1}
		if now < works {
			return c, true, stack.StateRunning
		}
		c.Switches++
		return c, false, stack.StateBlocked
	}}
	f := &fakeTarget{threads: []*fakeThread{th}, until: 1_000_000_000}
	_, sinks, acc := sampleTarget(t, f, f, Config{Interval: 300 * time.Millisecond})
	all := sinks[1].samples
	if len(all) < 3 {
		t.Fatalf("%d samples", len(all))
	}
	last, before := all[len(all)-1], all[len(all)-2]
	if before.Time > works {
		t.Fatalf("a tick at %d was after the work", before.Time)
	}
	if last.CPU != works || last.State != stack.StateBlocked || last.Way == stack.WayStop || acc[1].Stops != uint64(len(all)-1) {
		t.Errorf("last sample %+v, %d stops", last, acc[1].Stops)
	}
}
