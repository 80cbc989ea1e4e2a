package sampler

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// TestPlannedNaps: a group whose threads all nap, of one of many processes, leaves out the ticks that no thread is
// looked at, and each of them is open until the next look. A thread that is awake ends that.
func TestPlannedNaps(t *testing.T) {
	l := NewLimit(Bounds{Share: 1, From: 1})
	l.size.Store(fewSleep + 1)
	s, err := New(&fakeTarget{}, Config{Limit: l, Hosts: NewHosts(8, nil), Start: func(stack.ThreadInfo) Sink { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	g := s.groups[0]
	g.engine = &fakeEngine{}
	g.hosted.host.Store(&host{})
	for _, tid := range []stack.TID{3, 4} {
		th := newThread(stack.ThreadInfo{TID: tid}, nil, nil)
		th.seen.blocked, th.sleep.nap.level = true, napMost
		g.threads = append(g.threads, th)
	}
	g.image.runtimes = s.target.Space().Runtimes()
	g.tick = tick{every: int64(10 * ms), jitter: .5, seed: 7}
	g.tick.begin(0, 0)
	// The host's ticks 8, 16 … are looked at: these are 4, 12 … of the group.
	g.tick.first, g.tick.k = 4, 6
	g.tick.due = g.tick.dueOf(6)
	g.planNaps()
	if g.pass.napTo != 12 {
		t.Fatalf("the next look is at tick %d", g.pass.napTo)
	}
	until, ok := g.allNap(g.tick.dueOf(8))
	if !ok || until != g.tick.dueOf(12) || g.tick.k != 9 || g.tick.due != g.tick.dueOf(9) {
		t.Errorf("at tick %d until %d, %v", g.tick.k, until, ok)
	}
	if until, ok := g.allNap(g.tick.dueOf(12)); ok || g.tick.k != 12 {
		t.Errorf("at tick %d until %d", g.tick.k, until)
	}
	for _, th := range g.threads {
		if th.pend.is != napping || th.pend.skips != 6 || th.pend.last != g.tick.dueOf(11) {
			t.Errorf("thread %d: %+v", th.info.TID, th.pend)
		}
	}
	g.threads[1].sleep.nap.level = 5
	if g.naps(g.threads[0]) || !g.naps(g.threads[1]) {
		t.Error("tick 12 is that of the first thread alone")
	}
	g.planNaps()
	s.ctl.execs.Add(1)
	if _, ok := g.allNap(0); ok {
		t.Error("an exec does not end the naps")
	}
	g.threads[0].seen.blocked = false
	if g.planNaps(); g.pass.napTo != 0 {
		t.Errorf("a running thread is looked at in tick %d", g.pass.napTo)
	}
	g.threads[0].seen.blocked = true
	l.size.Store(fewSleep)
	if g.planNaps(); g.pass.napTo != 0 {
		t.Error("a thread of few processes naps")
	}
}

// At long naps, a large group looks at its threads in some ticks only, and sleeps through the others.
func TestNapsTogether(t *testing.T) {
	const until, ticks = 6000 * ms, 600
	for level, most := range map[int32]int{napMost: ticks + 20, mostNap: ticks/8 + 60} {
		f := &fakeTarget{until: until}
		wakes := 0
		f.steer = func(s *Sampler, _ stack.Time) { s.gov.napLeast.Store(level); wakes++ }
		for tid := stack.TID(2); tid < 2+3*fewSleep; tid++ { // each runs for 100 µs of 100 ms
			times := []stack.Time{0}
			for at := stack.Time(tid) * ms; at < until; at += 100 * ms {
				times = append(times, at, at+ms/10)
			}
			f.threads = append(f.threads, turns(tid, times))
		}
		_, sinks, accounts := sampleAll(t, f, Config{Interval: 10 * time.Millisecond})
		if wakes > most || level == napMost && wakes < ticks-20 {
			t.Errorf("level %d: the group woke %d times in %d ticks, want at most %d", level, wakes, ticks, most)
		}
		for _, th := range f.threads {
			holdTrue(t, 0, th, sinks[th.tid].samples)
			a := accounts[th.tid]
			if got := int64(a.Samples + a.Late + a.Rested); got < ticks-1 || got > ticks+16 { // the last sleep is a long one
				t.Errorf("level %d: thread %d: %d samples, %d late and %d rested of %d ticks", level, th.tid, a.Samples, a.Late, a.Rested, ticks)
			}
			if looks := ticks>>level + 40; a.Late > 2 || int(a.Samples) < ticks>>level || th.looks > 3*looks {
				t.Errorf("level %d: thread %d: %d samples, %d late, %d readings", level, th.tid, a.Samples, a.Late, th.looks)
			}
		}
	}
}
