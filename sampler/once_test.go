package sampler

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

func once(t *testing.T, f *fakeTarget, cfg Config) (*Once, *fakeEngine) {
	t.Helper()
	f.until = 1 << 60
	f.taken = []stack.TID{1} // its clock moves
	o, err := NewOnce(f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	tr := o.g.engine.(*fakeEngine)
	for _, th := range f.threads {
		th.tr = tr
	}
	return o, tr
}

func TestOnce(t *testing.T) {
	awake, asleep := running(50_000), blocked(2)
	stops := map[stack.TID]int{}
	for _, th := range []*fakeThread{awake, asleep} {
		th.err = func(stack.Time) error { stops[th.tid]++; return nil }
	}
	o, tr := once(t, &fakeTarget{threads: []*fakeThread{awake, asleep}}, Config{})
	tr.regs.Set(rule.AMD64.SP(), 0x7000)

	g, err := o.Look(awake, &stack.ThreadInfo{TID: awake.tid})
	if err != nil || g.State != stack.StateRunning || g.Sample == nil || g.Sample.Way != stack.WayStop || g.SP != 0 {
		t.Errorf("running: %+v, %v", g, err)
	}
	if g, ok, err := o.Peek(awake); ok || err != nil || g.State != stack.StateRunning {
		t.Errorf("peek at a running one: %+v, %v, %v", g, ok, err)
	}

	g, err = o.Look(asleep, &stack.ThreadInfo{TID: 2})
	if err != nil || g.State != stack.StateBlocked || g.Call.Nr != 7 || g.SP != 0x7000 || g.Sample.Pause != 0 {
		t.Errorf("blocked: %+v, %v", g, err)
	}
	p, ok, err := o.Peek(asleep)
	if !ok || err != nil || p.State != stack.StateBlocked || p.Call != g.Call || p.SP != g.SP || p.Counters != g.Counters || p.Sample != nil {
		t.Errorf("peek at a blocked one: %+v, %v, %v", p, ok, err)
	}
	if stops[awake.tid] != 1 || stops[asleep.tid] != 0 {
		t.Errorf("stops %v, want one of the thread that ran", stops)
	}
}

// The number of tries for a thread that does not stop in time is bounded.
func TestOnceTimeout(t *testing.T) {
	for _, fails := range []int{1, onceTries - 1, onceTries} {
		th := running(50_000)
		asked := 0
		th.err = func(stack.Time) error {
			if asked++; asked <= fails {
				return ErrTimeout
			}
			return nil
		}
		o, _ := once(t, &fakeTarget{threads: []*fakeThread{th}}, Config{})
		_, err := o.Look(th, &stack.ThreadInfo{TID: 1})
		if want := fails < onceTries; (err == nil) != want || asked != min(fails+1, onceTries) {
			t.Errorf("%d time-outs: %v after %d tries", fails, err, asked)
		}
	}
	th := running(50_000)
	th.err = func(stack.Time) error { return ErrTraced }
	o, _ := once(t, &fakeTarget{threads: []*fakeThread{th}}, Config{})
	if g, err := o.Look(th, &stack.ThreadInfo{TID: 1}); err != ErrTraced || g.State != stack.StateUnknown {
		t.Errorf("%+v, %v", g, err)
	}
}
