package sampler

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// After an exec by another thread, the first thread has that one's counters. Its samples and its account go on with the CPU
// time since the last sample of the other thread, whichever of the two had used more before.
func TestExecByOtherThread(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct {
		name                      string
		first, other, otherDelays int64 // ms of both threads' CPU time before the exec, and of the other one's waiting
		by                        stack.TID
		sampled                   bool // the other thread is sampled before
		noticed                   int  // ticks after which the sampler knows of the exec
	}{
		{"other used more", 30, 900, 0, 2, true, 0},
		{"other used less", 900, 30, 0, 2, true, 0},
		{"seen before the exec is known", 30, 900, 0, 2, true, 2},
		{"other waited for CPUs", 30, 32, 4000, 2, true, 0},
		{"first one execs", 30, 900, 0, 1, true, 0},
		{"other was not sampled", 900, 1, 0, 2, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			const at, end = 500 * ms, 1000 * ms
			after := func(now stack.Time, before int64) (Counters, bool, stack.State) {
				return Counters{CPU: before + int64(now-at), Delay: c.otherDelays * ms, Switches: 9}, true, stack.StateRunning
			}
			first := &fakeThread{tid: 1, cost: 50_000, at: func(now stack.Time) (Counters, bool, stack.State) {
				switch {
				case now < at:
					return Counters{CPU: c.first * ms, Switches: 50}, false, stack.StateBlocked
				case c.by == 1:
					n, running, st := after(now, c.first*ms)
					n.Delay, n.Switches = 0, 51
					return n, running, st
				}
				return after(now, c.other*ms)
			}}
			other := &fakeThread{tid: 2, cost: 50_000, at: func(now stack.Time) (Counters, bool, stack.State) {
				if now >= at {
					return Counters{CPU: -1}, false, stack.StateDead
				}
				return Counters{CPU: c.other * ms, Delay: c.otherDelays * ms, Switches: 8}, false, stack.StateBlocked
			}}
			f := &fakeTarget{threads: []*fakeThread{first, other}, until: end}
			if !c.sampled {
				f.threads = f.threads[:1]
			}
			known := false
			f.steer = func(s *Sampler, now stack.Time) {
				if !known && now >= at+stack.Time(c.noticed-1)*10*ms {
					known = true
					s.ctl.execs.Add(1)
				}
			}
			sinks, acc := sample(t, f, Config{Interval: 10 * ms, Together: 4})
			// The fake's Info gives all threads a CPU time of 0 before the recording.
			want := c.first*ms + (end - at)
			if got := acc[1].CPUNS; got < want-50*ms || got > want+50*ms {
				t.Errorf("the first thread has %d ms of CPU time, want %d", got/ms, want/ms)
			}
			last := stack.Sample{}
			for i, s := range sinks[1].samples {
				if i > 0 && (s.CPU < last.CPU || s.CPU-last.CPU > int64(s.Time-last.Time)+tickLate || s.Delay-last.Delay > int64(s.Time-last.Time)+tickLate) {
					t.Errorf("a sample at %d ms has %d ms of CPU time and %d of waiting, the one before, at %d ms, %d and %d",
						s.Time/ms, s.CPU/ms, s.Delay/ms, last.Time/ms, last.CPU/ms, last.Delay/ms)
				}
				last = s
			}
		})
	}
}
