package sampler

import (
	"testing"

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
