package sampler

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// On a busy machine a thread waits for a CPU at nearly every tick, and has not run a moment
// before it. If ticks are far apart, no tick is lost because of that.
func TestLookAgain(t *testing.T) {
	for _, c := range []struct {
		what        string
		every       time.Duration
		cycle       stack.Time // the thread runs once per cycle, for a moment, and waits for a CPU before
		rest        stack.Time // time asleep per cycle
		least, late float64    // share of stops, and of ticks left out
	}{
		{"waits for long", 500 * time.Millisecond, 90 * ms, ms / 10, .9, .05},
		{"is on its way out of a long call", 500 * time.Millisecond, 2000 * ms, 1900 * ms, 0, .06},
	} {
		const run = ms / 3
		at := func(now stack.Time) (Counters, bool, stack.State) {
			n, in := now/c.cycle, now%c.cycle
			wait := c.cycle - run - c.rest
			k := Counters{CPU: int64(n * run), Delay: int64(n * wait), Switches: uint64(n)}
			switch { // it sleeps, then waits, then runs
			case in < c.rest:
				return k, false, stack.StateBlocked
			case in < c.rest+wait:
				return k, true, stack.StateRunning
			}
			k.Switches, k.Delay = k.Switches+1, k.Delay+int64(wait)
			return k, true, stack.StateRunning
		}
		const ticks = 1000
		f := &fakeTarget{until: ticks * stack.Time(c.every)}
		th := &offCPU{fakeThread: &fakeThread{tid: 2, cost: 10_000, at: at}}
		f.threads = []*fakeThread{th.fakeThread}
		f.open = func(stack.TID) Thread { return th }
		sinks, acc := sample(t, f, Config{Interval: c.every, Jitter: .1,
			Delays: func(*stack.Call, uint64) bool { return true }})
		stops := 0
		for _, s := range sinks[2].samples {
			if s.Way != stack.WayStop {
				continue
			}
			stops++
			if in := s.Time % c.cycle; in > c.rest && in < c.rest+ms && c.rest > longCall {
				t.Fatalf("%s: stopped %d ns after a call of %d", c.what, in-c.rest, c.rest)
			}
		}
		a := acc[2]
		if got := float64(stops) / ticks; got < c.least {
			t.Errorf("%s: %d stops in %d ticks", c.what, stops, ticks)
		}
		if got := float64(a.Late) / ticks; got > c.late {
			t.Errorf("%s: %d of %d ticks left out", c.what, a.Late, ticks)
		}
		if all := a.Samples + a.Late + a.TimedOut; all < ticks*98/100 || all > ticks*102/100 {
			t.Errorf("%s: %d samples and %d ticks left out, of %d", c.what, a.Samples, a.Late, ticks)
		}
	}
}
