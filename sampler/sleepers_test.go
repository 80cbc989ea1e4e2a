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

// Where all threads hardly run, the engine reads the process's clock ahead from their first look on, except while more of
// them are taken up.
func TestOldSleepersAhead(t *testing.T) {
	const threads, until, ticks = 40, 4000 * ms, 400
	for _, taking := range []bool{false, true} {
		f := &oldTarget{fakeTarget{until: until, ahead: true, doze: true}}
		f.steer = func(s *Sampler, _ stack.Time) { s.doze.taking.Store(taking) }
		for i := range threads {
			f.threads = append(f.threads, blocked(stack.TID(i+2)))
		}
		s, _, acc := sampleTarget(t, &f.fakeTarget, f, Config{})
		went := 0
		for _, g := range s.groups {
			went += g.engine.(*foreseer).ticks
		}
		if taking && went > 0 || !taking && went < ticks*95/100 {
			t.Errorf("taking up threads: %v: ahead for %d ticks of %d", taking, went, ticks)
		}
		for _, th := range f.threads {
			if a := acc[th.tid]; a.Late+a.Rested > 0 || int(a.Samples) < ticks-1 || th.looks > ticks/25+10 {
				t.Fatalf("taking up threads: %v: thread %d: %d samples, %d late, %d rested, %d looks", taking, th.tid, a.Samples, a.Late, a.Rested, th.looks)
			}
		}
	}
}

// The first two looks at a thread decide whether it naps at once, and whether it dozes then: not if it woke often.
func TestJudged(t *testing.T) {
	const second = 1_000_000_000
	for _, c := range []struct {
		name     string
		born     stack.Time
		cpu, ran int64 // in its life, and between the first two looks
		switches uint64
		want     int
		before   int64 // CPU time when its facts were read
		first    int   // wanted after the first look
	}{
		{"a sleeper", 0, 5, 0, 2, napMost, 5, napMost},
		{"a sleeper that has just run", 0, 5, 0, 2, napMost, 4, 0},
		{"hardly runs", 0, 10 * second / calmShare, 0, 20, napMost, 0, 0},
		{"ran before", 0, 10*second/calmShare + 1, 0, 20, 0, 10*second/calmShare + 1, 0},
		{"woke often", 0, 5, 0, 21, napMost, 5, napMost},
		{"young", 9*second + 1, 5, 0, 2, 0, 5, 0},
		{"runs now", 0, 5, 1, 2, 0, 4, 0},
	} {
		g := &group{s: &Sampler{}}
		g.threads = make([]*thread, fewSleep+1)
		th := newThread(stack.ThreadInfo{TID: 1, Born: c.born, CPU: c.before}, nil, &memorySink{})
		look := func(at stack.Time, cpu int64) {
			g.calmly(th, &Counters{CPU: cpu, Switches: c.switches}, at, cpu == th.sleep.nap.cpu)
		}
		look(10*second-20*ms, c.cpu)
		if th.sleep.nap.level != c.first {
			t.Errorf("%s: level %d after its first look", c.name, th.sleep.nap.level)
		}
		look(10*second, c.cpu+c.ran)
		if th.sleep.nap.level != c.want || th.sleep.doze.soon != (c.want > 0 && c.switches <= 20) {
			t.Errorf("%s: level %d", c.name, th.sleep.nap.level)
		}
		// Later, it naps and wakes by the rules for all.
		th.sleep.nap.level, th.sleep.nap.calm = 0, 0
		if look(11*second, c.cpu+c.ran); th.sleep.nap.level != 0 {
			t.Errorf("%s: level %d after its third look", c.name, th.sleep.nap.level)
		}
	}
}

// While very many threads are taken up, and after many have begun to doze, no round looks at all threads for the
// clock of those; a dozing thread is then looked at once in the time that the clock would sample.
func TestTakingUp(t *testing.T) {
	g := &group{s: &Sampler{}, tick: tick{every: int64(10 * ms)}}
	for i := range fewSleep + 1 {
		th := newThread(stack.ThreadInfo{TID: stack.TID(i)}, nil, &memorySink{})
		th.seen.blocked, th.sleep.nap.level, th.sleep.doze.on = true, napMost, true
		g.threads = append(g.threads, th)
	}
	th, d := g.threads[0], &g.s.doze
	rounds := func(want ...bool) {
		t.Helper()
		for i, w := range want {
			if got := g.dozesWhole(); got != w {
				t.Errorf("round %d looks at all threads: %v", i, got)
			}
		}
	}
	rounds(true)
	for range fewSleep {
		d.drop(th)
		d.add(th)
	}
	rounds(false, true)
	d.drop(th)
	rounds(true)
	d.taking.Store(true)
	rounds(false)
	if n, whole := g.tick.every<<g.napLevel(th), g.dozeSpan(); n < whole || n >= 2*whole {
		t.Errorf("looks at a dozing thread are %d ns apart, the clock would sample %d", n, whole)
	}
	th.sleep.doze.on = false
	if n := g.napLevel(th); n != napMost {
		t.Errorf("level %d of a thread that does not doze", n)
	}
	d.taking.Store(false)
	rounds(true)
	// One that hardly ran in its life dozes from its first look, until it wakes.
	th.seen.blocked, th.sleep.doze.soon, th.ahead.way = true, true, stack.WayRead
	if !th.mayDoze() {
		t.Error("it does not doze after its first look")
	}
	th.sleep.doze.on = true
	if g.wakes(th); th.mayDoze() || th.sleep.doze.on {
		t.Error("it dozes right after it woke")
	}
	// A reading of the clock holds the longer the more threads it adds up, so they take at most one hundredth of a CPU.
	g.s.groups = []*group{g}
	for threads, want := range map[int32]int64{100: int64(10*ms) * 2 / 3, 4000: 4000 * dozeReadEach, 100_000: mostDozeSpan / 16} {
		g.tally.size.Store(threads)
		if got := int64(g.dozeFresh()); got != want {
			t.Errorf("with %d threads a reading holds for %d ns, want %d", threads, got, want)
		}
	}
	// The looks at all threads are a small share of the time between them.
	for threads, want := range map[int]int64{fewSleep + 1: sleepSpan, 700: 700 * dozeEach, 10_000: mostDozeSpan} {
		g.threads = make([]*thread, threads)
		if got := g.dozeSpan(); got != want {
			t.Errorf("with %d threads the clock samples %d ns, want %d", threads, got, want)
		}
	}
}

// wakeCounter counts how often its group is woken.
type wakeCounter struct {
	*fakeEngine
	n int
}

func (w *wakeCounter) Wake() { w.n++ }

// Groups are woken at once for the first thread, and then once for several.
func TestWakeups(t *testing.T) {
	engines := []*wakeCounter{{}, {}}
	groups := make([]*group, len(engines))
	for i, w := range engines {
		groups[i] = &group{engine: w}
		groups[i].ctl.ready.Store(true)
	}
	var w wakeups
	if w.add(groups[0]); engines[0].n != 1 {
		t.Errorf("woken %d times for the first thread", engines[0].n)
	}
	w.add(nil) // it could not be opened
	for i := range 2*wakeEach + 1 {
		w.add(groups[i%2])
	}
	if w.flush(); engines[0].n != 4 || engines[1].n != 3 {
		t.Errorf("woken %d and %d times for %d threads", engines[0].n, engines[1].n, w.n)
	}
	if w.flush(); engines[0].n+engines[1].n != 7 {
		t.Error("woken once more")
	}
}
