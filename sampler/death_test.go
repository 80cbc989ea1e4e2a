package sampler

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// mortal is a thread with a known time of death.
type mortal struct {
	*fakeThread
	died stack.Time
}

func (t *mortal) Died(after stack.Time, v *View) bool {
	if t.died <= after {
		return false
	}
	v.Regs, v.Stopped, v.Call = &t.tr.regs, t.died, stack.Call{Nr: -1}
	return true
}

// The last sample of a thread is that of its death, if that is known and later than the sample
// before. It is written once, in order, and before the end.
func TestLastWords(t *testing.T) {
	for _, c := range []struct {
		what string
		died stack.Time
		want stack.Time // of the last sample; 0: an ordinary one
	}{
		{"between two samples", 517 * ms, 517 * ms},
		{"long before", 123 * ms, 0}, // of another thread with the same number
	} {
		f := &fakeTarget{until: 800 * ms}
		th := &mortal{fakeThread: &fakeThread{tid: 2, cost: 10_000, at: func(now stack.Time) (Counters, bool, stack.State) {
			if now > 510*ms {
				return Counters{CPU: -1}, false, stack.StateDead
			}
			return Counters{CPU: int64(now), Switches: 1}, true, stack.StateRunning
		}}, died: c.died}
		f.threads = []*fakeThread{th.fakeThread}
		f.open = func(stack.TID) Thread { return th }
		sinks, acc := sample(t, f, Config{Interval: 20 * time.Millisecond})
		s := sinks[2]
		if n := len(s.samples); !s.ended || n < 20 || uint64(n) != acc[2].Samples {
			t.Fatalf("%s: %d samples of %d, ended %v", c.what, n, acc[2].Samples, s.ended)
		}
		last, before := &s.samples[len(s.samples)-1], &s.samples[len(s.samples)-2]
		if c.want != 0 && (last.Time != c.want || last.State != stack.StateRunning || before.Time >= 511*ms) || c.want == 0 && last.Time >= 511*ms {
			t.Errorf("%s: the last sample is of %v, the one before of %v", c.what, time.Duration(last.Time), time.Duration(before.Time))
		}
	}
	// A gap later than the death has been written.
	g := &group{s: &Sampler{target: &fakeTarget{}}}
	th := newThread(stack.ThreadInfo{TID: 1}, &mortal{fakeThread: &fakeThread{tr: &fakeEngine{}}, died: 5 * ms}, &memorySink{})
	th.gap(7*ms, stack.WhyLate, int64(ms))
	if err := g.init(); err != nil {
		t.Fatal(err)
	}
	g.lastWords(th)
	g.lastWords(th)
	if got := th.sink.(*memorySink).samples; len(got) != 1 || got[0].Time != 7*ms {
		t.Errorf("%+v", got)
	}
}
