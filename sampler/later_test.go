package sampler

import (
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// queuer is a fakeEngine of a machine with busy CPUs: its threads run when their scripts say so,
// and otherwise wait for a CPU. A waiting thread stops when it gets one.
type queuer struct {
	*fakeEngine
	coming map[*fakeThread]View
	free   bool
	r      *rand.Rand
	late   []stack.Time // times of stops that were deferred
}

// stopTakes is how long, in ns, the group waits for a running thread to stop.
const stopTakes = 60_000

func (tr *queuer) Stop(t Thread, v *View) error {
	th := t.(*fakeThread)
	if _, ok := tr.coming[th]; ok {
		return ErrTimeout
	}
	// The requester may be delayed itself, after reading the clock, while the thread runs on.
	asked := tr.now
	held := tr.now + stack.Time(tr.r.Int64N(int64(ms)))
	c, running, _ := th.at(held)
	if running || tr.r.IntN(4) > 0 {
		held = tr.now
		c, running, _ = th.at(held)
	}
	tr.now = held
	if running && v.Deadline >= stopTakes {
		err := tr.fakeEngine.Stop(t, v)
		v.Counters = c
		return err
	}
	if v.Deadline == AtOnce && tr.r.IntN(32) == 0 { // its stopper has to wait for a CPU first
		held = tr.now + stack.Time(tr.r.Int64N(int64(40*ms)))
		c, _, _ = th.at(held)
		tr.coming[th] = View{Deadline: v.Deadline, Asked: held, Halted: held, Regs: &tr.regs, Call: stack.Call{Nr: -1}, Counters: c}
		return ErrLater
	}
	tr.late = append(tr.late, tr.now)
	tr.coming[th] = View{Deadline: v.Deadline, Asked: asked, Halted: tr.now, Regs: &tr.regs, Call: stack.Call{Nr: -1}, Counters: c}
	tr.now += stack.Time(v.Deadline)
	return ErrLater
}

func (tr *queuer) Arrived(v *View) (Thread, error, bool) {
	for th, x := range tr.coming {
		if tr.now < x.Halted {
			continue
		}
		if _, running, _ := th.at(x.Halted); running { // it only needed more time
			if tr.now < x.Halted+stopTakes {
				continue
			}
			delete(tr.coming, th)
			*v = x
			v.Stopped, v.Resumed = x.Halted+stopTakes, x.Halted+stopTakes+1000
			th.stands(x.Halted)
			if v.Deadline == AtOnce && tr.r.IntN(2) == 0 { // its first check was after that
				c, _, _ := th.at(x.Halted)
				v.Asked, v.Halted, v.Stopped, v.Counters = x.Halted, 0, x.Halted, c
			}
			return th, nil, true
		}
		if c, _, _ := th.at(tr.now); c.Switches == x.Counters.Switches {
			continue
		}
		delete(tr.coming, th)
		// It stopped at the moment it got a CPU.
		after := sort.Search(int(tr.now-x.Halted), func(ns int) bool {
			c, _, _ := th.at(x.Halted + stack.Time(ns))
			return c.Switches != x.Counters.Switches
		})
		*v = x
		v.Stopped = x.Halted + stack.Time(after)
		v.Resumed = v.Stopped + 1000
		th.stands(x.Halted)
		return th, nil, true
	}
	return nil, nil, false
}

// Notes the time since which a late stop has held the thread, for 1000 ns.
func (t *fakeThread) stands(since stack.Time) {
	if t.stood == nil {
		t.stood = map[stack.Time]bool{}
	}
	t.stood[since] = true
}

// waitsForCPU makes the thread wait for a CPU whenever it does not run.
func (t *fakeThread) waitsForCPU() {
	states := t.at
	t.at = func(now stack.Time) (Counters, bool, stack.State) {
		c, running, _ := states(now)
		c.Delay = int64(now) - c.CPU + 1000
		return c, running, stack.StateRunning
	}
	t.queued = true
}

// SleepUntil continues after the end, because the group may still wait for a stop.
func (tr *queuer) SleepUntil(t stack.Time) {
	if tr.g.ctl.stopping.Load() {
		tr.now = max(tr.now, t)
		return
	}
	tr.fakeEngine.SleepUntil(t)
}

func (tr *queuer) Reap() int  { return len(tr.coming) }
func (tr *queuer) Free() bool { return tr.free }
func (tr *queuer) Ask()       {}

func (tr *queuer) Can() Abilities { return Abilities{Stops: true, Late: true} }

// A thread that waits for a CPU at a tick is still sampled when it gets one, in its state at that
// tick. The group's other threads do not wait for it.
func TestLater(t *testing.T) {
	stops, atOnce := 0, 0 // all stops, and those of waiting threads that are recorded as running
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		const until = 3000 * ms
		f := &fakeTarget{until: until, queue: true}
		for i := range 1 + r.IntN(6) {
			times := []stack.Time{0, 0}
			for t := stack.Time(0); t < until+1000*ms; {
				t += stack.Time(1 + r.Int64N(int64(10*ms)))
				times = append(times, t) // it loses its CPU
				t += stack.Time(1 + r.Int64N(int64(60*ms)))
				times = append(times, t)
			}
			th := turns(stack.TID(i+2), times)
			th.waitsForCPU()
			f.threads = append(f.threads, th)
		}
		every := time.Duration(2+r.IntN(15)) * time.Millisecond
		_, sinks, accounts := sampleAll(t, f, Config{Interval: every})
		for _, th := range f.threads {
			last := stack.Time(0)
			for i, x := range sinks[th.tid].samples {
				c, _, _ := th.at(x.Time)
				if x.Time < last {
					t.Fatalf("seed %d: thread %d: sample %d at %d, after one at %d", seed, th.tid, i, x.Time, last)
				}
				last = x.Time
				if x.Way == stack.WayStop && x.Pause > int64(ms)+longStop {
					t.Fatalf("seed %d: thread %d: at %v it is told to have been held for %d ns: it waited for a CPU", seed, th.tid, time.Duration(x.Time), x.Pause)
				}
				if x.Way == stack.WayStop && th.stood[x.Time] && x.Pause < 1000 {
					t.Fatalf("seed %d: thread %d: at %v it is told to have been held for %d ns: it stood for 1000", seed, th.tid, time.Duration(x.Time), x.Pause)
				}
				if _, running, _ := th.at(x.Time); x.Way == stack.WayStop && !running && x.State == stack.StateRunning {
					atOnce++
				}
				if x.Way == stack.WayStop {
					stops++
				}
				if x.CPU != c.CPU || x.Switches != c.Switches {
					t.Fatalf("seed %d: thread %d: at %v (%v) it had run for %d ns, the sample says %d", seed, th.tid, time.Duration(x.Time), x.Way, c.CPU, x.CPU)
				}
			}
			a := accounts[th.tid]
			ticks := uint64(until) / uint64(every)
			if got := a.Samples + a.Late + a.TimedOut; got < ticks || got > ticks+3 {
				t.Errorf("seed %d: thread %d: %+v of %d ticks", seed, th.tid, a, ticks)
			}
			if a.TimedOut > 4 || a.Late*20 > ticks*uint64(len(f.threads)) { // the last ones never arrive
				t.Errorf("seed %d: thread %d: %d timed out, %d late of %d", seed, th.tid, a.TimedOut, a.Late, ticks)
			}
			if a.Unrun == 0 || a.Stops == 0 {
				t.Errorf("seed %d: thread %d: %+v", seed, th.tid, a)
			}
		}
	}
	if stops < 1000 || atOnce*20 > stops {
		t.Errorf("of %d stops %d were of threads that waited for a CPU and are told to have run", stops, atOnce)
	}
}

// After several late stops in a row, a thread is left to its stopper at once, until it is seen
// with a CPU: from then on the group waits for its stops again.
func TestLateAtOnceEnds(t *testing.T) {
	f := &fakeTarget{until: 1000 * ms, queue: true}
	var times []stack.Time
	for at := stack.Time(0); at < 300*ms; at += 15 * ms {
		times = append(times, at, at+14*ms) // it runs in the last of 15 ms
	}
	th := turns(2, append(times, 300*ms, 301*ms))
	th.waitsForCPU()
	f.threads = []*fakeThread{th}
	s, _, _ := sampleAll(t, f, Config{Interval: 10 * time.Millisecond})
	before, after := 0, 0
	for _, g := range s.groups {
		if tr, ok := g.engine.(*queuer); ok {
			for _, at := range tr.late {
				if at < 301*ms {
					before++
				} else {
					after++
				}
			}
		}
	}
	if before < 10 || after > 1 {
		t.Errorf("%d stops were late while it had no CPU, %d after", before, after)
	}
}

// A sample that does not arrive within 200 ms counts as timed out, and is dropped if it arrives
// later.
func TestLaterIsTooLate(t *testing.T) {
	f := &fakeTarget{until: 1000 * ms, queue: true}
	th := turns(2, []stack.Time{0, 0, 105 * ms, 605 * ms})
	states := th.at
	th.at = func(now stack.Time) (Counters, bool, stack.State) {
		c, running, _ := states(now)
		return c, running, stack.StateRunning
	}
	th.queued = true
	f.threads = []*fakeThread{th}
	sinks, accounts := sample(t, f, Config{Interval: 10 * time.Millisecond})
	a := accounts[2]
	if a.TimedOut < 48 || a.TimedOut > 51 || a.Samples < 48 {
		t.Errorf("%+v", a)
	}
	if g := sinks[2].gaps[stack.WhyTimeout]; g != int64(a.TimedOut)*int64(10*ms) {
		t.Errorf("gaps of %d ns for %d ticks", g, a.TimedOut)
	}
	for _, x := range sinks[2].samples {
		if x.Time > 110*ms && x.Time < 605*ms {
			t.Errorf("a sample at %v", time.Duration(x.Time))
		}
	}
}

// TestLaterAsleep: a thread that enters an uninterruptible sleep (vfork) right before its stop is
// seen asleep from the next tick on.
func TestLaterAsleep(t *testing.T) {
	left := 0 // stops that did not arrive
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 4))
		const until, every = 2000 * ms, 4 * ms
		f := &fakeTarget{until: until, queue: true}
		times := []stack.Time{0, 0}
		type sleep struct{ from, to stack.Time }
		var sleeps []sleep
		for t := stack.Time(0); t < until; {
			t += stack.Time(1 + r.Int64N(int64(10*ms)))
			s := sleep{t, t + 16*ms}
			times, sleeps, t = append(times, s.from, s.to), append(sleeps, s), s.to
		}
		th := turns(2, times)
		states := th.at
		th.at = func(now stack.Time) (Counters, bool, stack.State) {
			c, running, _ := states(now)
			if running {
				return c, true, stack.StateRunning
			}
			return c, false, stack.StateDisk
		}
		f.threads = append(f.threads, th)
		_, sinks, accounts := sampleAll(t, f, Config{Interval: time.Duration(every)})
		left += int(accounts[2].TimedOut)
		for _, s := range sleeps[:len(sleeps)-1] {
			seen := 0
			for _, x := range sinks[2].samples {
				if x.Time > s.from && x.Time < s.to && x.State == stack.StateDisk {
					seen++
				}
			}
			if seen < 2 {
				t.Errorf("seed %d: asleep from %v to %v, and in %d samples only", seed, time.Duration(s.from), time.Duration(s.to), seen)
			}
		}
	}
	if left == 0 {
		t.Error("no thread fell asleep right before its stop")
	}
}

// Ticks left out while a sample was pending are reported in order of time, at the place where
// they are missing, and not at the arrival of that sample.
func TestLeftOutWhere(t *testing.T) {
	m := &memorySink{}
	g := &group{engine: &fakeEngine{now: 100 * ms}}
	g.tick.every = int64(ms)
	th := &thread{sink: m}
	th.pend.expect(10 * ms)
	g.miss(th, 20*ms, 7)
	th.pend.expect(21 * ms)
	g.miss(th, 30*ms, 2)
	g.miss(th, 31*ms, 1)
	if len(m.spans) != 0 {
		t.Fatalf("told already: %v", m.spans)
	}
	g.giveUp(th)
	g.miss(th, 33*ms, 2)
	want := [][2]stack.Time{{9 * ms, 10 * ms}, {13 * ms, 20 * ms}, {20 * ms, 21 * ms}, {28 * ms, 31 * ms}, {31 * ms, 33 * ms}}
	if !slices.Equal(m.spans, want) {
		t.Errorf("gaps %v, want %v", m.spans, want)
	}
	if late, timedOut := th.acc.late.Load(), th.acc.timedOut.Load(); late != 12 || timedOut != 2 {
		t.Errorf("%d late and %d timed out, want 12 and 2", late, timedOut)
	}
}
