package sampler

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/rule"
)

// lacking is a runtime whose frames need memory that every second copy alone has.
type lacking struct {
	unwind.NoPart
	walks *int
}

func (l lacking) Begin(*unwind.Walker, *unwind.Thread, *stack.Regs) { *l.walks++ }
func (l lacking) Report(*unwind.Thread) unwind.Report {
	lacks := *l.walks%2 == 1
	return unwind.Report{Gap: lacks, Lacks: lacks}
}

// lackingTarget is a process with that runtime.
type lackingTarget struct {
	*fakeTarget
	space *unwind.Space
}

func (t *lackingTarget) Space() *unwind.Space { return t.space }

// wholeSink counts samples of stops, and those whose last walk lacked memory.
type wholeSink struct {
	Sink
	walks       *int
	stops, lack int
}

func (s *wholeSink) Sample(x *stack.Sample) {
	if x.Way == stack.WayStop {
		s.stops++
		s.lack += *s.walks % 2
	}
	s.Sink.Sample(x)
}

type noMemory struct{}

func (noMemory) ReadAt([]byte, int64) (int, error) { return 0, nil }

// TestLateLacks: a sample of a thread that waited for a CPU came late, and lacks memory. The thread is looked at
// again, and the tick has a whole sample.
func TestLateLacks(t *testing.T) {
	const until, every = 3000 * ms, 10 * ms
	f := &fakeTarget{until: until, queue: true}
	var times []stack.Time
	for at := stack.Time(0); at < until+1000*ms; at += 15 * ms {
		times = append(times, at, at+14*ms) // it runs in the last of 15 ms
	}
	th := turns(2, times)
	th.waitsForCPU()
	f.threads = []*fakeThread{th}
	walks := 0
	var whole []*wholeSink
	f.wrap = func(s *memorySink) Sink {
		whole = append(whole, &wholeSink{Sink: s, walks: &walks})
		return whole[len(whole)-1]
	}
	x := &lackingTarget{f, unwind.NewSpace(rule.AMD64, nil, noMemory{})}
	if _, err := x.space.Follow(&unwind.Language{Find: func(*unwind.Space, *managed.Table) (unwind.Stepper, error) {
		return lacking{walks: &walks}, nil
	}}, nil); err != nil {
		t.Fatal(err)
	}
	_, sinks, accounts := sampleTarget(t, f, x, Config{Interval: time.Duration(every)})
	a := accounts[2]
	ticks := uint64(until / every)
	// A tick whose sample came after the next one is late.
	if a.TimedOut > 4 || a.Samples < ticks/2 || a.Samples+a.Late+a.TimedOut < ticks {
		t.Errorf("of %d ticks: %+v", ticks, a)
	}
	last := stack.Time(0)
	for _, s := range sinks[2].samples {
		if s.Time < last {
			t.Fatalf("a sample at %d after one at %d", s.Time, last)
		}
		last = s.Time
	}
	if w := whole[0]; w.lack > 0 || w.stops == 0 {
		t.Errorf("%d of %d samples lack memory", w.lack, w.stops)
	}
}
