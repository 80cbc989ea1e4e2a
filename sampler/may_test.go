package sampler

import (
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestMayStop: which blocked threads are stopped if only a stop shows their state.
func TestMayStop(t *testing.T) {
	const exact, late, never = 1, 2, 3 // calls
	g := &group{s: &Sampler{}, can: Abilities{Stops: true}}
	g.s.cfg.Harmless = func(c *stack.Call, _ uint64) bool { return c.Nr == exact }
	g.s.cfg.Delays = func(c *stack.Call, _ uint64) bool { return c.Nr == late }
	for _, c := range []struct {
		policy StopPolicy
		nr     int32
		why    stack.Reason
		asleep stack.Time // longest time since the last look
		want   bool
	}{
		{StopAuto, exact, stack.ReasonRegister, ms, true},
		{StopAuto, exact, stack.ReasonNone, ms, false},
		{StopAuto, exact, stack.ReasonRegister, 1000 * ms, true},
		{StopAuto, late, stack.ReasonRegister, ms, false},
		{StopAuto, never, stack.ReasonRegister, ms, false},
		{StopAuto, -1, stack.ReasonRegister, ms, true}, // a page fault
		{StopRunning, exact, stack.ReasonRegister, ms, false},
		{StopRunning, -1, stack.ReasonRegister, ms, false},
		{StopAlways, exact, stack.ReasonRegister, ms, true},
		{StopAlways, exact, stack.ReasonNone, ms, false},
		{StopAlways, late, stack.ReasonRegister, ms, true},
		{StopAlways, late, stack.ReasonRegister, 6 * ms, false},
		{StopAlways, never, stack.ReasonRegister, ms, false},
	} {
		g.s.cfg.Stop = c.policy
		th := newThread(stack.ThreadInfo{TID: 1}, nil, nil)
		th.life.started = true
		th.acc.to.Store(int64(5000 * ms))
		g.view.Stopped, g.view.Counters.Switches = 5000*ms+c.asleep, 40
		if got := g.mayStop(th, stack.StateBlocked, &stack.Call{Nr: c.nr}, c.why); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	// Once per wait.
	th := newThread(stack.ThreadInfo{TID: 1}, nil, nil)
	th.life.started = true
	g.s.cfg.Stop = StopAlways
	var got []bool
	for i, switches := range []uint64{40, 42, 42, 43, 45, 46} {
		th.acc.to.Store(int64(i) * int64(ms))
		g.view.Stopped, g.view.Counters.Switches = stack.Time(i)*ms+ms, switches
		got = append(got, g.mayStop(th, stack.StateBlocked, &stack.Call{Nr: late}, stack.ReasonRegister))
	}
	if want := []bool{true, false, false, true, false, true}; !slices.Equal(got, want) {
		t.Errorf("stops at %v, want %v", got, want)
	}
}

// TestMayLeave: which running threads may be leaving a call that a stop would restart.
func TestMayLeave(t *testing.T) {
	const delays, other = 1, 2 // calls
	g := &group{s: &Sampler{}}
	g.s.cfg.Delays = func(c *stack.Call, _ uint64) bool { return c.Nr == delays }
	for _, c := range []struct {
		what    string
		blocked int32 // in this call at the last look; 0: it ran
		ago     stack.Time
		since   Counters
		want    bool
	}{
		{"woken from such a call", delays, 10 * ms, Counters{CPU: 10_000, Switches: 1}, true},
		{"and went on", delays, 10 * ms, Counters{CPU: 300_000, Switches: 1}, false},
		{"and went on, and may have slept again", delays, 50 * ms, Counters{CPU: 300_000, Switches: 2}, true},
		{"woken from another call", other, 10 * ms, Counters{CPU: 10_000, Switches: 1}, false},
		{"it ran, and may have slept for a moment", 0, 10 * ms, Counters{CPU: 1_000_000, Switches: 2}, false},
		{"it ran, and may have slept for long", 0, 50 * ms, Counters{CPU: 1_000_000, Switches: 2}, true},
		{"it ran all the time", 0, 50 * ms, Counters{CPU: 49_000_000, Switches: 2}, false},
		{"it waited for a CPU", 0, 50 * ms, Counters{CPU: 1_000_000, Delay: 48_000_000, Switches: 2}, false},
		{"it was not switched", 0, 50 * ms, Counters{}, false},
	} {
		th := newThread(stack.ThreadInfo{TID: 1}, &fakeThread{times: func(c *stack.Call) bool { return c.Nr == delays }}, nil)
		th.life.started, th.seen.blocked, th.seen.call.Nr = true, c.blocked != 0, c.blocked
		th.seen.counters = Counters{CPU: 7_000_000, Delay: 5_000_000, Switches: 9}
		th.acc.to.Store(int64(1000 * ms))
		now := Counters{CPU: 7_000_000 + c.since.CPU, Delay: 5_000_000 + c.since.Delay, Switches: 9 + c.since.Switches}
		if got := g.mayLeave(th, &now, 1000*ms+c.ago); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
