package sampler

import (
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// oldTarget is a target whose threads began long before the recording.
type oldTarget struct{ fakeTarget }

func (o *oldTarget) Info(tid stack.TID) (stack.ThreadInfo, error) {
	in, err := o.fakeTarget.Info(tid)
	in.Born = -100_000 * ms
	return in, err
}

// Threads that hardly ran in their life are seldom looked at from the start, and have all of their samples. A process's clock
// makes that fewer looks; one that cannot be read does not make it more.
func TestOldSleepers(t *testing.T) {
	const threads, until, ticks = 40, 4000 * ms, 400
	for _, c := range []struct {
		name string
		doze bool
		most int // looks at a thread
	}{
		// Eight ticks apart. Rounds that try the clock look at all threads, less often each time.
		{"no clock", false, ticks/8 + 20},
		// A quarter of a second apart.
		{"clock", true, ticks/25 + 10},
	} {
		f := &oldTarget{fakeTarget{until: until, doze: c.doze}}
		for i := range threads {
			f.threads = append(f.threads, blocked(stack.TID(i+2)))
		}
		runner := running(0)
		runner.tid = threads + 2
		f.threads = append(f.threads, runner)
		_, _, acc := sampleTarget(t, &f.fakeTarget, f, Config{})
		for _, th := range f.threads[:threads] {
			a, n := acc[th.tid], th.looks
			if got := int(a.Samples); a.Late+a.Rested > 0 || got < ticks-1 || got > ticks+3 {
				t.Fatalf("%s: %d samples, %d late, %d rested of %d ticks", c.name, got, a.Late, a.Rested, ticks)
			}
			if n > c.most {
				t.Fatalf("%s: %d looks at a thread that sleeps for %d ticks, want at most %d", c.name, n, ticks, c.most)
			}
		}
	}
}

// The second look at a thread decides whether it naps at once.
func TestJudged(t *testing.T) {
	const second = 1_000_000_000
	for _, c := range []struct {
		name     string
		born     stack.Time
		cpu, ran int64 // in its life, and between the first two looks
		switches uint64
		want     int
	}{
		{"a sleeper", 0, 5, 0, 2, napMost},
		{"hardly runs", 0, 10 * second / calmShare, 0, 20, napMost},
		{"ran before", 0, 10*second/calmShare + 1, 0, 20, 0},
		{"woke often", 0, 5, 0, 21, 0},
		{"young", 9*second + 1, 5, 0, 2, 0},
		{"runs now", 0, 5, 1, 2, 0},
	} {
		g := &group{s: &Sampler{}}
		g.threads = make([]*thread, fewSleep+1)
		th := newThread(stack.ThreadInfo{TID: 1, Born: c.born}, nil, &memorySink{})
		look := func(at stack.Time, cpu int64) {
			g.calmly(th, &Counters{CPU: cpu, Switches: c.switches}, at, cpu == th.sleep.nap.cpu)
		}
		look(10*second-1, c.cpu)
		look(10*second, c.cpu+c.ran)
		if th.sleep.nap.level != c.want || th.sleep.doze.soon != (c.want > 0) {
			t.Errorf("%s: level %d", c.name, th.sleep.nap.level)
		}
		// Later, it naps and wakes by the rules for all.
		th.sleep.nap.level, th.sleep.nap.calm = 0, 0
		if look(11*second, c.cpu+c.ran); th.sleep.nap.level != 0 {
			t.Errorf("%s: level %d after its third look", c.name, th.sleep.nap.level)
		}
	}
}
