package sampler

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

const ms = stack.Time(time.Millisecond)

// TestSpacing: the rate holds, and all gaps between two samples are within the bounds of the
// jitter.
func TestSpacing(t *testing.T) {
	for _, jitter := range []float64{0, .1, .5} {
		f := &fakeTarget{threads: []*fakeThread{running(30_000)}, until: 64_000 * ms}
		sinks, acc := sample(t, f, Config{Interval: 10 * time.Millisecond, Jitter: jitter})
		got := sinks[1].samples
		if n := len(got); n < 6399 || n > 6402 {
			t.Errorf("jitter %v: %d samples in 6400 ticks", jitter, n)
		}
		least, most := 1., 1.
		for i := 1; i < len(got); i++ {
			d := float64(got[i].Time-got[i-1].Time) / float64(10*ms)
			least, most = min(least, d), max(most, d)
		}
		// Each block has a gap next to either bound.
		if most > 1+jitter+.0001 || least < 1-jitter-.0001 || most < 1+jitter*.95 || least > 1-jitter*.95 {
			t.Errorf("jitter %v: gaps of %v to %v intervals", jitter, least, most)
		}
		if acc[1].Late != 0 {
			t.Errorf("%d late", acc[1].Late)
		}
	}
}

// TestNoLockIn: a stop delays a program that works and sleeps in turn, so that its phase depends
// on the times of stops. Its measured share of work is still correct for every period, both in
// the time of slices and in samples. With some 20,000 samples a share has a standard deviation of
// less than 0.4 points, and stops change it by less than 1: one of the 18 is off by 3 in less
// than 1 of 10^5 runs.
func TestNoLockIn(t *testing.T) {
	const every, share, cost = 10 * ms, .42, 100_000
	for _, periods := range []float64{.2, .4, .5, .7, 1, 1.04, 1.5, 2, 3} {
		period := stack.Time(periods * float64(every))
		work := stack.Time(share * float64(period))
		held := stack.Time(0)
		th := &fakeThread{tid: 1, cost: cost}
		th.at = func(now stack.Time) (Counters, bool, stack.State) {
			turn, in := (now-held)/period, (now-held)%period
			if in < work {
				return Counters{CPU: int64(now), Switches: uint64(turn)}, true, stack.StateRunning
			}
			return Counters{CPU: int64(turn), Switches: uint64(turn)}, false, stack.StateBlocked
		}
		th.err = func(stack.Time) error {
			held += cost
			return nil
		}
		f := &fakeTarget{threads: []*fakeThread{th}, until: 200_000 * ms}
		sinks, _ := sample(t, f, Config{Interval: time.Duration(every), Jitter: .5})
		got := sinks[1].samples
		var at stack.Time
		n := 0
		for i, s := range got[:len(got)-1] {
			if s.State == stack.StateRunning {
				at += got[i+1].Time - s.Time
				n++
			}
		}
		all := got[len(got)-1].Time - got[0].Time
		truth := share*float64(all-held)/float64(all) + float64(held)/float64(all)
		byTime, byCount := float64(at)/float64(all), float64(n)/float64(len(got))
		if d := byTime - truth; d > .03 || d < -.03 {
			t.Errorf("a period of %v intervals: %.3f of the time at work, truth %.3f", periods, byTime, truth)
		}
		if d := byCount - truth; d > .03 || d < -.03 {
			t.Errorf("a period of %v intervals: %.3f of the samples at work, truth %.3f", periods, byCount, truth)
		}
	}
}

// TestLateIsLeftOut: ticks that pass while the group sleeps too long are counted and shown, and
// never made up for in a burst.
func TestLateIsLeftOut(t *testing.T) {
	stalled := false
	f := &fakeTarget{threads: []*fakeThread{running(30_000)}, until: 1000 * ms}
	f.late = func(due stack.Time) stack.Time {
		if due > 300*ms && !stalled {
			stalled = true
			return 155 * ms
		}
		return 0
	}
	sinks, acc := sample(t, f, Config{Interval: 10 * time.Millisecond})
	a := acc[1]
	if a.Late < 14 || a.Late > 16 || a.Samples+a.Late < 99 || a.Samples+a.Late > 101 {
		t.Errorf("late %d, samples %d", a.Late, a.Samples)
	}
	if g := sinks[1].gaps[stack.WhyLate]; g != int64(a.Late)*int64(10*ms) {
		t.Errorf("gap of %d ns for %d ticks", g, a.Late)
	}
	for i, s := range sinks[1].samples[1:] {
		if d := s.Time - sinks[1].samples[i].Time; d < 3*ms {
			t.Errorf("a burst: %d ns between samples", d)
		}
	}
}

// TestBlockedIsNotStopped: a sleeping thread is read once and not touched again.
func TestBlockedIsNotStopped(t *testing.T) {
	f := &fakeTarget{threads: []*fakeThread{blocked(1)}, until: 500 * ms}
	sinks, acc := sample(t, f, Config{Interval: 10 * time.Millisecond})
	if a := acc[1]; a.Stops != 0 || a.Read != 1 || a.Unrun < 48 {
		t.Errorf("%+v", a)
	}
	if s := sinks[1].samples[5]; s.Way != stack.WayUnrun || s.State != stack.StateBlocked || s.Call.Nr != 7 {
		t.Errorf("%+v", s)
	}
	// With StopAlways it is not stopped either, because a stop would add no information.
	f = &fakeTarget{threads: []*fakeThread{blocked(1)}, until: 500 * ms}
	_, acc = sample(t, f, Config{Interval: 10 * time.Millisecond, Stop: StopAlways})
	if a := acc[1]; a.Stops != 0 || a.Unrun < 48 {
		t.Errorf("always: %+v", a)
	}
}

// TestWakes: a thread that ran between two looks is looked at again.
func TestWakes(t *testing.T) {
	th := &fakeThread{tid: 1, cost: 1000, at: func(now stack.Time) (Counters, bool, stack.State) {
		n := uint64(now / (100 * ms)) // it blocks again every 100 ms
		return Counters{CPU: int64(n), Switches: n}, false, stack.StateBlocked
	}}
	_, acc := sample(t, &fakeTarget{threads: []*fakeThread{th}, until: 1000 * ms}, Config{Interval: 10 * time.Millisecond})
	if a := acc[1]; a.Read < 10 || a.Read > 11 || a.Stops != 0 {
		t.Errorf("%+v", a)
	}
}

// TestRunningComesFirst: many sleeping threads do not delay the running one.
func TestRunningComesFirst(t *testing.T) {
	f := &fakeTarget{until: 300 * ms}
	for i := range stack.TID(100) {
		th := blocked(10 + i)
		at := th.at
		th.at = func(now stack.Time) (Counters, bool, stack.State) {
			th.tr.now += 60_000 // looking takes time: 100 × 60 µs and more per round
			return at(now)
		}
		f.threads = append(f.threads, th)
	}
	r := running(30_000)
	r.tid = 500
	f.threads = append(f.threads, r)
	_, acc := sample(t, f, Config{Interval: 10 * time.Millisecond})
	if a := acc[500]; a.Late > 3 || a.Samples < 25 {
		t.Errorf("running: %+v", a)
	}
}

// TestTimeout: a stop that times out costs that thread's samples only, and is shown.
func TestTimeout(t *testing.T) {
	bad := running(30_000)
	bad.tid, bad.err = 2, func(stack.Time) error { return ErrTimeout }
	good := running(30_000)
	good.tid = 3
	f := &fakeTarget{threads: []*fakeThread{bad, good}, until: 1000 * ms}
	sinks, acc := sample(t, f, Config{Interval: 10 * time.Millisecond})
	if a := acc[2]; a.Samples != 0 || a.TimedOut < 98 || sinks[2].gaps[stack.WhyTimeout] == 0 {
		t.Errorf("stuck thread: %+v", a)
	}
	if a := acc[3]; a.Samples < 98 || a.Late > 1 {
		t.Errorf("its neighbour: %+v", a)
	}
}

// TestEnd: a thread that exits is ended; the others stay.
func TestEnd(t *testing.T) {
	short := running(1000)
	short.tid = 2
	short.at = func(now stack.Time) (Counters, bool, stack.State) {
		if now > 100*ms {
			return Counters{CPU: -1}, false, stack.StateDead
		}
		return Counters{CPU: int64(now)}, true, stack.StateRunning
	}
	long := running(1000)
	long.tid = 3
	f := &fakeTarget{threads: []*fakeThread{short, long}, until: 500 * ms}
	sinks, acc := sample(t, f, Config{Interval: 10 * time.Millisecond})
	if !sinks[2].ended || acc[2].Samples > 11 || sinks[3].ended || acc[3].Samples < 48 {
		t.Errorf("%+v %+v", acc[2], acc[3])
	}
}

// TestBudget: a thread whose stops take more than their share is sampled less often, and the
// recording shows the change; without a bound it is not.
func TestBudget(t *testing.T) {
	run := func(limit float64) (*memorySink, stack.ThreadStats) {
		f := &fakeTarget{threads: []*fakeThread{running(50_000)}, until: 2000 * ms}
		sinks, acc := sample(t, f, Config{Interval: time.Millisecond, MaxOverhead: limit})
		return sinks[1], acc[1]
	}
	s, a := run(.01)
	if share := float64(a.PauseNS) / float64(a.SpanNS); share > .0105 || share < .006 {
		t.Errorf("takes %.4f of the time, bound .01", share)
	}
	if a.Stretched == 0 || a.Stretched+a.Samples < 1990 {
		t.Errorf("%+v", a)
	}
	marked := false
	for _, e := range s.events {
		if e.Kind() == event.Rate && e.Payload() > uint64(time.Millisecond) {
			marked = true
		}
	}
	if !marked {
		t.Error("the change of interval is not in the recording")
	}
	if _, a = run(0); a.Stretched != 0 || a.Samples < 1980 {
		t.Errorf("no bound: %+v", a)
	}
}

// TestQueued: the time for which a thread waits for a CPU before it can stop does not count for
// its budget, on a machine busy with other work.
func TestQueued(t *testing.T) {
	const stop, queue = 50_000, 3_000_000
	th := running(stop + queue)
	stops := int64(0)
	at := th.at
	th.at = func(now stack.Time) (Counters, bool, stack.State) {
		c, running, st := at(now)
		c.Delay = stops * queue
		return c, running, st
	}
	th.err = func(stack.Time) error { stops++; return nil }
	f := &fakeTarget{threads: []*fakeThread{th}, until: 2000 * ms}
	_, acc := sample(t, f, Config{Interval: 10 * time.Millisecond, MaxOverhead: .01})
	if a := acc[1]; a.Stretched != 0 || a.Samples < 190 || a.PauseNS != int64(a.Stops)*stop {
		t.Errorf("%+v", a)
	}
}

// TestPause: a pause leaves out samples and records that; nothing else changes.
func TestPause(t *testing.T) {
	f := &fakeTarget{threads: []*fakeThread{running(1000)}, until: 1000 * ms}
	f.steer = func(s *Sampler, now stack.Time) {
		if now > 300*ms && now < 600*ms {
			s.Pause()
		} else {
			s.Resume()
		}
	}
	sinks, acc := sample(t, f, Config{Interval: 10 * time.Millisecond})
	if a := acc[1]; a.Samples < 62 || a.Samples > 72 || a.Late > 0 {
		t.Errorf("%+v", a)
	}
	if g := stack.Time(sinks[1].gaps[stack.WhyStopped]); g < 270*ms || g > 360*ms {
		t.Errorf("a gap of %d ns", g)
	}
	for i, x := range sinks[1].samples[1:] {
		if d := x.Time - sinks[1].samples[i].Time; d > 20*ms && (x.Time < 600*ms || x.Time > 670*ms) {
			t.Errorf("%d ns without a sample before %d", d, x.Time)
		}
	}
}

// TestSelectionChanges: threads that a new selection excludes are dropped, and those that it adds
// are taken up.
func TestSelectionChanges(t *testing.T) {
	var threads []*fakeThread
	for tid := stack.TID(2); tid <= 3; tid++ {
		th := running(1000)
		th.tid = tid
		threads = append(threads, th)
	}
	f := &fakeTarget{threads: threads, until: 1 << 62}
	only, err := ParseSelection("3")
	if err != nil {
		t.Fatal(err)
	}
	var of *Sampler
	f.steer = func(s *Sampler, now stack.Time) {
		if of == nil && now > 100*ms {
			of = s
			if err := s.SetSelection(only); err != nil {
				t.Error(err)
			}
			none, _ := ParseSelection("nosuch")
			if err := s.SetSelection(none); err != ErrNoThreads || s.Selection() != only {
				t.Errorf("a selection of nothing: %v", err)
			}
		}
		if of != nil && of.Threads() == 1 && s.groups[1].tally.size.Load() == 1 {
			f.cancel()
		}
	}
	sinks, acc := sample(t, f, Config{Interval: 10 * time.Millisecond})
	if !sinks[2].ended || sinks[3].ended || acc[3].Samples <= acc[2].Samples {
		t.Errorf("%+v %+v", acc[2], acc[3])
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{
		{Interval: time.Microsecond}, {Interval: time.Hour}, {Jitter: .5}, {Jitter: -1}, {Groups: -1}, {MaxOverhead: 2}, {},
	} {
		if _, err := New(&fakeTarget{}, c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	if _, err := ParseStopPolicy("never"); err == nil {
		t.Error("never is accepted")
	}
}

// TestBudgetOfEachThread: the bound is per thread. A thread with long stops is sampled less
// often, and each change is recorded. Its neighbour with the same interval is unaffected, and so
// is a thread that is only read.
func TestBudgetOfEachThread(t *testing.T) {
	dear, cheap, asleep := running(200_000), running(20_000), blocked(4)
	dear.tid, cheap.tid = 2, 3
	f := &fakeTarget{threads: []*fakeThread{dear, cheap, asleep}, until: 4000 * ms}
	sinks, acc := sample(t, f, Config{Interval: 10 * time.Millisecond, MaxOverhead: .01})
	if a := acc[2]; a.Stretched == 0 || float64(a.PauseNS)/float64(a.SpanNS) > .0105 {
		t.Errorf("200 µs each 10 ms are 2 %%: %+v", a)
	}
	for _, tid := range []stack.TID{3, 4} {
		if a := acc[tid]; a.Stretched != 0 || a.Samples < 390 {
			t.Errorf("thread %d: %+v", tid, a)
		}
	}
	rates, marks := 0, 0
	for _, e := range sinks[2].events {
		switch {
		case e.Kind() == event.Rate && e.Payload() > uint64(10*ms):
			rates++
		case e.Kind() == event.Mark && e.Payload() == uint64(stack.WhyBudget):
			marks++
		}
	}
	if rates == 0 || marks < rates {
		t.Errorf("%d new intervals, %d marks of why", rates, marks)
	}
	for _, tid := range []stack.TID{3, 4} {
		for _, e := range sinks[tid].events {
			if e.Kind() == event.Mark {
				t.Errorf("thread %d is marked: %v", tid, e)
			}
		}
	}
}

// TestBudgetComesBack: a thread whose stops become short gets its interval back, and the
// recording shows that too.
func TestBudgetComesBack(t *testing.T) {
	th := running(0)
	at := th.at
	th.at = func(now stack.Time) (Counters, bool, stack.State) {
		th.cost = 300_000
		if now > 2000*ms {
			th.cost = 20_000
		}
		return at(now)
	}
	sinks, acc := sample(t, &fakeTarget{threads: []*fakeThread{th}, until: 6000 * ms},
		Config{Interval: 10 * time.Millisecond, MaxOverhead: .01})
	if acc[1].Stretched == 0 {
		t.Fatalf("%+v", acc[1])
	}
	last, late := uint64(0), 0
	for _, e := range sinks[1].events {
		if e.Kind() == event.Rate {
			last = e.Payload()
		}
	}
	for _, s := range sinks[1].samples {
		if s.Time > 3000*ms {
			late++
		}
	}
	if last != uint64(10*ms) || late < 295 {
		t.Errorf("the last interval in the recording is %d ns; %d samples in the last 3 s", last, late)
	}
}

// TestBudgetOneLongStop: one stop that took long, as another program had the CPU, costs its own time and not the samples of the seconds
// after it. The time without samples until that is paid off is a gap.
func TestBudgetOneLongStop(t *testing.T) {
	th := running(0)
	stops := 0
	th.err = func(stack.Time) error {
		if th.cost = 80_000; stops == 100 {
			th.cost = 10_000_000
		}
		stops++
		return nil
	}
	sinks, _ := sample(t, &fakeTarget{threads: []*fakeThread{th}, until: 5000 * ms}, Config{Interval: 10 * time.Millisecond, MaxOverhead: .01})
	late := 0
	for _, s := range sinks[1].samples {
		if s.Time > 2100*ms { // it took 10 ms at 1 s, which are 1 % of the next second
			late++
		}
	}
	if late < 288 {
		t.Errorf("%d samples in the last 2.9 s, at 10 ms", late)
	}
	if gap := stack.Time(sinks[1].gaps[stack.WhyBudget]); gap < 500*ms || gap > 1100*ms {
		t.Errorf("gaps of %d ms, want most of 1 s", gap/ms)
	}
}

// TestJitterInLateTicks: a late sample does not move the ticks after it, and no tick has two
// samples.
func TestJitterInLateTicks(t *testing.T) {
	n := stack.Time(0)
	f := &fakeTarget{threads: []*fakeThread{running(30_000)}, until: 3000 * ms}
	f.late = func(stack.Time) stack.Time {
		n++
		return n * 7 % 23 * ms / 2 // up to 11 ms too late, repeating
	}
	s, sinks, acc := sampleAll(t, f, Config{Interval: 10 * time.Millisecond, Jitter: .5})
	a := acc[1]
	// The last sleep before the end may end more than a tick after it.
	if a.Late == 0 || a.Samples+a.Late < 290 || a.Samples+a.Late > 310 {
		t.Errorf("%d samples and %d late in 300 ticks", a.Samples, a.Late)
	}
	clock := s.groups[0].tick
	seen := map[int64]bool{}
	for _, x := range sinks[1].samples {
		k := clock.at(x.Time - 15_000) // the fake's stop takes that long
		if seen[k] {
			t.Errorf("two samples in tick %d", k)
		}
		seen[k] = true
	}
}

// TestTicks: clocks with the same seed have the same ticks, whenever they start, and a tick's
// number is found from its time.
func TestTicks(t *testing.T) {
	const every = 3_000_000
	for _, jitter := range []float64{0, .01, .5} {
		a := tick{every: every, jitter: jitter, seed: 7}
		b := a
		a.join(5 * every / 2)
		b.join(777 * every)
		if a.due != 5*every/2 || b.due != 777*every {
			t.Errorf("first ticks at %d and %d", a.due, b.due)
		}
		last := b.due
		for k := int64(1); k < 1000; k++ {
			due := b.dueOf(k)
			if i := a.at(due); a.dueOf(i) != due || a.at(due-1) != i-1 || a.at(a.dueOf(i+1)-1) != i {
				t.Fatalf("jitter %v: tick %d at %d has the number %d with the other clock", jitter, k, due, i)
			}
			if gap := float64(due-last) / every; k > 1 && (gap < 1-jitter-1e-4 || gap > 1+jitter+1e-4) || gap <= 0 || gap > 1+jitter+1e-4 {
				t.Fatalf("jitter %v: tick %d comes after %.3f intervals", jitter, k, gap)
			}
			last = due
		}
	}
}

// TestEndAfter: a group ends on its own, at the time from its first tick that EndAfter sets,
// although its context continues.
func TestEndAfter(t *testing.T) {
	f := &fakeTarget{threads: []*fakeThread{running(30_000)}, until: 1000 * ms}
	f.steer = func(s *Sampler, now stack.Time) {
		if s.run.end.Load() == 0 {
			s.EndAfter(time.Duration(500*ms + 3_000_000 - s.Began()))
		}
	}
	f.late = func(due stack.Time) stack.Time {
		if due > 502*ms {
			f.cancel() // it has stopped on its own
		}
		return 0
	}
	s, sinks, _ := sampleAll(t, f, Config{Interval: 10 * time.Millisecond})
	got := sinks[1].samples
	if last := got[len(got)-1].Time; last < 490*ms || last > 504*ms || s.Ended() > 504*ms {
		t.Errorf("the last sample is of %d ms; it ended at %d ms", last/ms, s.Ended()/ms)
	}
}

// TestStopBesideBlockedStart: while new threads cannot be taken up because their file does not
// accept writes, the end of the context still stops the sampling of the others.
func TestStopBesideBlockedStart(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	block, ended := make(chan struct{}), make(chan error, 1)
	f := &guestTarget{fakeTarget: fakeTarget{threads: []*fakeThread{{tid: 1}, {tid: 2}}},
		tr: &guestEngine{realSleeper: &realSleeper{sleeps: new(atomic.Int64), woken: make(chan struct{}, 1), begun: time.Now()}}}
	s, err := New(f, Config{Interval: time.Millisecond, Groups: 1, Start: func(in stack.ThreadInfo) Sink {
		if in.TID == 2 {
			<-block
		}
		return &countingSink{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- s.Run(ctx) }()
	waitUntil(t, "samples", func() bool {
		all, _ := s.Accounts()
		return len(all) == 1 && all[0].Samples > 3
	})
	cancel()
	waitUntil(t, "the end of sampling", func() bool { return s.Ended() > 0 })
	close(block)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestUntaken counts, at the end, selected threads that were never sampled, and threads of which
// nothing was read, each once.
func TestUntaken(t *testing.T) {
	for spec, want := range map[string]int{"all": 3, "worker": 2} {
		f := &fakeTarget{threads: []*fakeThread{{tid: 1}, {tid: 2}, {tid: 3}, {tid: 4}, {tid: 5}}, name: func(tid stack.TID) string {
			return map[stack.TID]string{1: "main", 2: "worker", 3: "other", 4: "worker", 5: "worker"}[tid]
		}}
		sel, err := ParseSelection(spec)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(f, Config{Selection: sel, Start: func(stack.ThreadInfo) Sink { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		tids, _ := f.Threads(nil)
		var r roster
		r.list(f, tids[:4], true, s.over) // nothing is known of 5
		s.roll.threads[1], s.roll.threads[2] = &thread{}, &thread{}
		for range 2 {
			s.leave(&r, tids)
		}
		if got := s.Untaken(); got != want {
			t.Errorf("%s: %d threads", spec, got)
		}
	}
}

// TestFullSink: ticks of a thread whose sink is full are left out, counted once, and shown as a
// gap once it has room again.
func TestFullSink(t *testing.T) {
	f := &fakeTarget{threads: []*fakeThread{running(30_000)}, until: 1000 * ms}
	var now stack.Time
	f.steer = func(_ *Sampler, at stack.Time) { now = at }
	full := func() bool { return now > 300*ms && now < 500*ms }
	f.wrap = func(m *memorySink) Sink { return &fullSink{m, full} }
	sinks, acc := sample(t, f, Config{Interval: 10 * time.Millisecond})
	a := acc[1]
	if a.Behind < 18 || a.Behind > 21 || a.Late != a.Behind || a.Samples+a.Late < 99 || a.Samples+a.Late > 101 {
		t.Errorf("%+v", a)
	}
	if g := sinks[1].gaps[stack.WhyLate]; g != int64(a.Late)*int64(10*ms) || len(sinks[1].spans) != 1 {
		t.Errorf("gaps %v for %d ticks", sinks[1].spans, a.Late)
	}
}

type fullSink struct {
	*memorySink
	full func() bool
}

func (f *fullSink) Full() bool { return f.full() }
