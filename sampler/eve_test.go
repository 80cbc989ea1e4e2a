package sampler

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// offCPU is a thread that never seems to be on a CPU when asked.
type offCPU struct {
	*fakeThread
	asked int
}

func (t *offCPU) OnCPU() (bool, error)      { t.asked++; return false, nil }
func (t *offCPU) TimesOut(*stack.Call) bool { return true }

// Widely spaced samples of a thread that often sleeps for a moment do not ask whether it is on a
// CPU; those of a thread that may be leaving a long sleep do.
func TestEve(t *testing.T) {
	for _, c := range []struct {
		what        string
		runs, rests stack.Time // alternating
		least, most float64    // samples in which it runs, as a share of the ticks at which it does
	}{
		{"moments", ms / 2, ms / 2, .97, 1},
		// With random gaps between ticks it is found running in 1.09 times its share of them
		// (mean of 45 runs).
		{"ever shorter than what may start anew", 3 * ms, 7 * ms, .9, 1.15},
		{"long sleeps", 2 * ms, 150 * ms, 0, 0},
	} {
		at := func(now stack.Time) (Counters, bool, stack.State) {
			n, in := now/(c.runs+c.rests), now%(c.runs+c.rests)
			cpu := n * c.runs
			if in >= c.runs { // the kernel does not report the CPU time of the current run
				cpu += c.runs
			}
			return Counters{CPU: int64(cpu), Switches: uint64(n + 1)}, in < c.runs, stack.StateRunning
		}
		const ticks = 2000
		f := &fakeTarget{until: ticks * 200 * ms}
		th := &offCPU{fakeThread: &fakeThread{tid: 2, cost: 10_000, at: at}}
		f.threads = []*fakeThread{th.fakeThread}
		f.open = func(stack.TID) Thread { return th }
		sinks, acc := sample(t, f, Config{Interval: 200 * time.Millisecond, Jitter: .1,
			Delays: func(*stack.Call, uint64) bool { return true }})
		ran := 0
		for _, s := range sinks[2].samples {
			if s.Way == stack.WayStop {
				ran++
			}
		}
		all := float64(ticks) * float64(c.runs) / float64(c.runs+c.rests)
		if got := float64(ran) / all; got < c.least*.85 || got > c.most*1.15 { // random variation
			t.Errorf("%s: %d stops in some %.0f ticks at which it ran", c.what, ran, all)
		}
		if late := acc[2].Late; c.least > .5 && (late > ticks/20 || th.asked > ticks/20) {
			t.Errorf("%s: %d late, asked %d times whether it is on a CPU", c.what, late, th.asked)
		}
	}
}

// Decisions based on the counters before a tick.
func TestWentOn(t *testing.T) {
	for _, c := range []struct {
		what  string
		ago   stack.Time
		since Counters
		want  bool
	}{
		{"it has not run", 10 * ms, Counters{}, false},
		{"it has run for no longer than it takes to leave a call", 10 * ms, Counters{CPU: leaveFor, Switches: 1}, false},
		{"it has run", 10 * ms, Counters{CPU: leaveFor + 1, Switches: 1}, true},
		{"it has run, and may have slept for long since", 30 * ms, Counters{CPU: int64(ms), Switches: 1}, false},
		{"it has run, and waited for a CPU", 30 * ms, Counters{CPU: int64(ms), Delay: 15 * int64(ms), Switches: 1}, true},
	} {
		th := newThread(stack.ThreadInfo{TID: 1}, nil, nil)
		if th.leave.early.wentOn(&Counters{CPU: 1 << 40}, 1000*ms) {
			t.Error("known though nobody looked")
		}
		th.leave.early.Counters, th.leave.early.at = Counters{CPU: 7_000_000, Delay: 5_000_000, Switches: 9}, 1000*ms
		now := Counters{CPU: 7_000_000 + c.since.CPU, Delay: 5_000_000 + c.since.Delay, Switches: 9 + c.since.Switches}
		if got := th.leave.early.wentOn(&now, 1000*ms+c.ago); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// A thread that may have slept for long before it began to compute, and has no CPU at any tick,
// is sampled from the second tick on, at every interval. One that waits for a CPU to leave its
// call is not.
func TestComputesOffCPU(t *testing.T) {
	for _, c := range []struct {
		what  string
		every time.Duration
		share stack.Time // of a CPU that it gets, in percent
		want  bool
	}{
		{"computes", 20 * time.Millisecond, 10, true},
		{"computes, samples far apart", 200 * time.Millisecond, 10, true},
		{"waits for a CPU", 20 * time.Millisecond, 0, false},
	} {
		every := stack.Time(c.every)
		begin := 10 * every
		at := func(now stack.Time) (Counters, bool, stack.State) {
			if now < begin { // the sampler is late and does not see it
				return Counters{CPU: 5, Switches: 3}, false, stack.StateBlocked
			}
			// It is given a CPU for a moment between two ticks.
			n := (now - begin + every/2) / every
			cpu := n * every * c.share / 100
			delay := n * every * (100 - c.share) / 100
			if c.share == 0 {
				return Counters{CPU: 5 + int64(leaveFor)/2, Switches: 4}, true, stack.StateRunning
			}
			return Counters{CPU: 5 + int64(leaveFor) + int64(cpu), Delay: int64(delay), Switches: 4 + uint64(n)}, true, stack.StateRunning
		}
		f := &fakeTarget{until: 40 * every}
		late := false
		f.late = func(due stack.Time) stack.Time { // when first seen computing, it may have slept for that long
			if due < begin-every*2 || late {
				return 0
			}
			late = true
			return 2*every + 30*ms
		}
		th := &offCPU{fakeThread: &fakeThread{tid: 2, cost: 10_000, at: at}}
		f.threads = []*fakeThread{th.fakeThread}
		f.open = func(stack.TID) Thread { return th }
		sinks, _ := sample(t, f, Config{Interval: c.every, Delays: func(*stack.Call, uint64) bool { return true }})
		var first stack.Time
		stops := 0
		for _, s := range sinks[2].samples {
			if s.Way == stack.WayStop {
				if stops++; first == 0 {
					first = s.Time
				}
			}
		}
		switch {
		case th.asked == 0:
			t.Errorf("%s: nobody asked whether it is on a CPU", c.what)
		case !c.want && stops > 0:
			t.Errorf("%s: stopped %d times", c.what, stops)
		case c.want && (stops < 20 || first > begin+4*every+30*ms):
			t.Errorf("%s: %d stops from %v on, it computes since %v", c.what, stops, time.Duration(first), time.Duration(begin))
		}
	}
}
