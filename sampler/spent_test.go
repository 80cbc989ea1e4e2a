package sampler

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// napper runs for 60 of each 500 ms and sleeps otherwise; stopping it is expensive.
func napper() *fakeThread {
	return &fakeThread{tid: 1, cost: int64(3 * ms), at: func(now stack.Time) (Counters, bool, stack.State) {
		turns, in := uint64(now/(500*ms)), now%(500*ms)
		c := Counters{CPU: int64(turns)*int64(60*ms) + int64(min(in, 60*ms)), Switches: turns + 1}
		if in < 60*ms {
			return c, true, stack.StateRunning
		}
		return c, false, stack.StateBlocked
	}}
}

// shows returns the state that the samples show at a time, and whether a gap covers it.
func shows(m *memorySink, at stack.Time) (st stack.State, missing bool) {
	for _, s := range m.samples {
		if s.Time <= at {
			st = s.State
		}
	}
	for _, s := range m.samples {
		missing = missing || s.Way == stack.WayStop && s.Begin <= at && at < s.Time // the stop itself: 3 ms
	}
	for _, g := range m.spans {
		if g[0] <= at && at <= g[1] {
			missing = true
		}
	}
	return st, missing
}

// TestSpentSeesSleep: a thread whose stops have used up their share goes to sleep and later wakes
// up. Its sleep is seen without a stop, and a gap covers times at which its shown state may be
// wrong. The number of stops does not increase.
func TestSpentSeesSleep(t *testing.T) {
	for _, ofCPU := range []bool{false, true} {
		f := &fakeTarget{threads: []*fakeThread{napper()}, until: 5000 * ms}
		sinks, acc := sample(t, f, Config{Interval: 10 * time.Millisecond, MaxOverhead: .01, OverheadOfCPU: ofCPU})
		m, a := sinks[1], acc[1]
		if a.Stretched == 0 {
			t.Fatalf("its share was never used up: %+v", a)
		}
		if share := float64(a.PauseNS) / float64(a.SpanNS); share > .0115 { // the last stop is charged afterwards
			t.Errorf("takes %.4f of the time, bound .01", share)
		}
		wrong := 0
		for at := 20 * ms; at < 4900*ms; at += ms {
			in := at % (500 * ms)
			if in < 16*ms || in > 44*ms && in < 76*ms { // ticks are at most 1.5 intervals apart
				continue
			}
			want := stack.StateBlocked
			if in < 60*ms {
				want = stack.StateRunning
			}
			if st, missing := shows(m, at); st != want && !missing {
				if wrong++; wrong < 4 {
					t.Errorf("at %d ms it is shown as %v, and is %v", at/ms, st, want)
				}
			}
		}
		if g := m.gaps[stack.WhyBudget]; ofCPU && g == 0 || g > int64(a.Stretched+a.Stops)*int64(15*ms) { // the last one of a row ends at a stop
			t.Errorf("gaps of %d ns for the budget; %d ticks were left out for it", g, a.Stretched)
		}
		for _, e := range m.events {
			if e.Kind() == event.Mark && e.Payload() != uint64(stack.WhyBudget) {
				t.Errorf("marked: %v", e)
			}
		}
	}
}

// TestLateIsOneGap: if a group is several ticks late, one gap covers all of them. Readers cut a
// gap at another event of the thread, so the second of two gaps with the same end would have no
// length.
func TestLateIsOneGap(t *testing.T) {
	f := &fakeTarget{threads: []*fakeThread{running(30_000)}, until: 1000 * ms}
	f.late = func(due stack.Time) stack.Time {
		if due > 400*ms && due < 410*ms {
			return 250 * ms
		}
		return 0
	}
	sinks, acc := sample(t, f, Config{Interval: 10 * time.Millisecond})
	m := sinks[1]
	if len(m.spans) != 1 || m.gaps[stack.WhyLate] != int64(acc[1].Late)*int64(10*ms) {
		t.Fatalf("gaps %v for %d ticks, not one", m.spans, acc[1].Late)
	}
	if d := m.spans[0][1] - m.spans[0][0]; d < 240*ms || d > 260*ms {
		t.Errorf("a gap of %d ms where the group was 250 ms late", d/ms)
	}
}
