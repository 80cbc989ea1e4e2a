package sampler

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// Addresses of the fake program: code, and a stack whose frame pointers end at once.
const (
	fakeCode  = 0x400000
	fakeStack = 0x7fff0000
)

// clockSpace is the address space of that program.
func clockSpace() *unwind.Space {
	s := unwind.NewSpace(rule.AMD64, nil, nil)
	s.Update([]stack.Mapping{{Start: fakeCode, End: fakeCode + 0x1000, Exec: true}, {Start: fakeStack, End: fakeStack + 0x10000, Write: true}})
	return s
}

// clockRegs are registers in it.
func clockRegs() (r stack.Regs) {
	r.PC = fakeCode + 0x100
	for i := range 17 {
		r.Set(i, 0)
	}
	r.Set(rule.AMD64.SP(), fakeStack+0x100)
	r.Set(rule.AMD64FP, fakeStack+0x200)
	return r
}

// clockStack is the copy of its stack: zeros from the frame pointer on.
func clockStack() []byte {
	b := make([]byte, 0x400)
	binary.LittleEndian.PutUint64(b[0x108:], 0)
	return b
}

type clockTarget struct {
	*fakeTarget
	space *unwind.Space
}

func (t *clockTarget) Space() *unwind.Space { return t.space }

func (t *clockTarget) Engine(n int) (Engine, error) {
	tr, err := t.fakeTarget.Engine(n)
	return &clockEngine{tr.(*fakeEngine)}, err
}

// clockEngine adds the stack to what a fakeEngine copies.
type clockEngine struct{ *fakeEngine }

func (tr *clockEngine) fill(v *View) {
	tr.regs = clockRegs()
	v.Regs, v.Mem.Blocks = &tr.regs, []unwind.Block{{Addr: fakeStack + 0x100, Data: clockStack()}}
}

func (tr *clockEngine) Stop(t Thread, v *View) error {
	err := tr.fakeEngine.Stop(t, v)
	t.(*clockThread).stops++
	tr.fill(v)
	v.Found = ActivityOnCPU
	th := t.(*clockThread)
	if th.waits != nil && th.waits(v.Asked) {
		v.Found = ActivityQueued
	}
	if th.place != nil {
		if th.stopped == nil {
			th.stopped = map[stack.Time]bool{}
		}
		th.stopped[v.Stopped] = true
		v.Call.Nr = -1
		if th.place(v.Stopped) == inCall {
			v.Call.Nr = 1
		}
	}
	return err
}

func (tr *clockEngine) Read(t Thread, v *View) (bool, error) {
	ok, err := tr.fakeEngine.Read(t, v)
	tr.fill(v)
	return ok, err
}

// clockThread is a fakeThread with a clock, which copies it exactly when it has run for a period, or at some of the ticks of
// a clock of all CPUs at which it runs.
type clockThread struct {
	*fakeThread
	waits func(stack.Time) bool // it waits for a CPU; nil: never
	deny  error                 // of StartClock
	later int                   // the first calls of StartClock that come too early
	cut   bool                  // its copies lack the stack
	cpus  bool                  // there is a clock of all CPUs
	flat  bool                  // that one copies next to nothing of the stack
	mute  int                   // the first clocks, which make no copies
	room  int                   // copies that the buffer holds; 0: no limit
	off   func(stack.Time) bool // interrupts are off: no copy; nil: never
	place func(stack.Time) int  // where it is, of inOwnCode, inCall and inFault; nil: its clock copies it wherever it is
	rnd   *rand.Rand            // of ticks of a clock of all CPUs

	on, ever bool
	starts   int
	stops    uint64
	stopped  map[stack.Time]bool // times of stops
	machine  bool
	tick     int64
	met      int64
	period   int64
	began    int64      // CPU time at the start
	next     int64      // CPU time of the next copy
	from     stack.Time // time of the last copy, or of the start
	regs     stack.Regs
}

func (t *clockThread) cpu(at stack.Time) int64 { c, _, _ := t.at(at); return c.CPU }

func (t *clockThread) StartClock(p ClockPlan) error {
	if t.deny != nil {
		return t.deny
	}
	if t.later > 0 {
		t.later--
		return ErrAsideLater
	}
	if t.machine = p.Tick > 0; t.machine && !t.cpus {
		return errors.New("no clock of all CPUs")
	}
	t.tick, t.met = p.Tick, 0
	if t.rnd == nil {
		t.rnd = rand.New(rand.NewPCG(3, 4))
	}
	t.on, t.ever, t.period, t.from, t.began = true, true, p.Every, t.tr.now, t.cpu(t.tr.now)
	t.next = t.began + p.Every
	if t.starts++; t.starts <= t.mute {
		t.next = math.MaxInt64
	}
	return nil
}

func (t *clockThread) SetClock(period int64) (ran int64, err error) {
	switch {
	case t.machine:
		t.period = period
	case t.next != math.MaxInt64:
		t.period, t.next = period, t.cpu(t.tr.now)+period
	}
	return t.cpu(t.tr.now) - t.began, nil
}

func (t *clockThread) StopClock()        { t.on = false }
func (t *clockThread) MetByClock() int64 { return t.met }
func (t *clockThread) Clocks() ClockLimits {
	machine := 60 << 10
	if t.flat {
		machine = 64
	}
	return ClockLimits{Own: 60 << 10, Machine: machine, OwnCode: t.place != nil, Copy: 12_000, Tick: func() int64 { return 3_000 }, Delay: func() int64 { return 0 }}
}

func (t *clockThread) NextCopy(v *View) (x ClockCopy, ok bool) {
	if t.machine {
		for t.from <= t.tr.now {
			at := t.from
			t.from += stack.Time(float64(t.tick) * (.5 + t.rnd.Float64()))
			if _, on, _ := t.at(at); !on || t.waits(at) || t.off != nil && t.off(at) {
				continue
			}
			t.met += t.tick
			if t.rnd.Float64()*float64(t.period) < float64(t.tick) {
				t.copy(v, at)
				return x, true
			}
		}
		return x, false
	}
	now := t.cpu(t.tr.now)
	for t.place != nil && now >= t.next && t.place(t.when(t.next)) != inOwnCode {
		t.next += t.period
	}
	for t.room > 0 && (now-t.next)/t.period >= int64(t.room) {
		t.next += t.period
		x.Lost++
	}
	if now < t.next {
		return x, false
	}
	t.from = t.when(t.next)
	t.copy(v, t.from)
	x.Ran = t.next - t.began
	t.next += t.period
	return x, true
}

// when returns the moment since the last copy at which its CPU time was cpu.
func (t *clockThread) when(cpu int64) stack.Time {
	lo, hi := t.from, t.tr.now
	for lo < hi {
		if mid := (lo + hi) / 2; t.cpu(mid) < cpu {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// copy fills v with the thread as it is at at.
func (t *clockThread) copy(v *View, at stack.Time) {
	t.regs = clockRegs()
	v.Regs, v.Call, v.Found = &t.regs, stack.Call{Nr: -1}, ActivityOnCPU
	v.Asked, v.Stopped, v.Resumed = at, at, at
	v.Mem.Blocks = []unwind.Block{{Addr: fakeStack + 0x100, Data: clockStack()}}
	if t.cut {
		v.Mem.Blocks = nil
	}
}

// worker runs for burst ns, then waits for a CPU for queue ns, then sleeps for nap ns, again and again.
func worker(burst, queue, nap int64) *clockThread {
	all := burst + queue + nap
	t := &clockThread{fakeThread: &fakeThread{tid: 1, cost: 25_000}}
	t.waits = func(now stack.Time) bool { at := int64(now) % all; return at >= burst && at < burst+queue }
	t.at = func(now stack.Time) (Counters, bool, stack.State) {
		turns, at := int64(now)/all, int64(now)%all
		switches := uint64(2 * turns)
		if nap > 0 {
			switches += uint64(turns)
		}
		c := Counters{CPU: turns*burst + min(at, burst), Delay: turns*queue + min(max(at-burst, 0), queue), Switches: switches + 1}
		st := stack.StateRunning
		if at >= burst+queue {
			st = stack.StateBlocked
		}
		return c, at < burst+queue, st
	}
	return t
}

// clockSample samples one worker for a virtual time.
func clockSample(t *testing.T, th *clockThread, cfg Config, d time.Duration) (*memorySink, stack.ThreadStats) {
	t.Helper()
	f := &fakeTarget{threads: []*fakeThread{th.fakeThread}, until: stack.Time(d), open: func(stack.TID) Thread { return th }}
	_, sinks, acc := sampleTarget(t, f, &clockTarget{f, clockSpace()}, cfg)
	return sinks[1], acc[1]
}

// TestClockShares: with a clock, the samples of each state have the share of its time, and hardly
// any running thread is stopped. The limit is 4.5 standard deviations: a verdict is wrong by chance
// in less than 1 of 100,000 runs.
func TestClockShares(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct {
		name              string
		burst, queue, nap int64
	}{
		{"always on a CPU", 10 * ms, 0, 0},
		{"half asleep", 3 * ms, 0, 3 * ms},
		{"mostly asleep", 2 * ms, 0, 11 * ms},
		{"long turns", 700 * ms, 0, 300 * ms},
		{"waits for a CPU", 4 * ms, 4 * ms, 0},
		{"all three", 4 * ms, 2 * ms, 5 * ms},
		{"switches often", ms / 10, 0, ms / 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			const d = 60 * time.Second
			sum := float64(c.burst + c.queue + c.nap)
			th := worker(c.burst, c.queue, c.nap)
			th.cpus = true
			sink, acc := clockSample(t, th, Config{Interval: 10 * time.Millisecond, Jitter: .5, Clock: true}, d)
			if !th.ever || th.machine != (sum < 1e9/clockSwitches) {
				t.Fatalf("a clock was started: %v, of all CPUs: %v", th.ever, th.machine)
			}
			n := map[stack.State]float64{}
			made := 0.0
			last := stack.Sample{}
			for _, s := range sink.samples {
				if s.Time < last.Time || s.CPU < last.CPU {
					t.Fatalf("%v, %d ns of CPU time after %v, %d", s.Time, s.CPU, last.Time, last.CPU)
				}
				if s.Way == stack.WayClock && s.State == stack.StateRunning {
					switch _, on, _ := th.at(s.Time - 1); {
					case on && !th.waits(s.Time-1):
					case th.machine && !th.waits(s.Time-1):
						made++
					default:
						t.Fatalf("a copy at %v, where it does not run", s.Time)
					}
				}
				last = s
				n[s.State]++
			}
			if most := .03 * n[stack.StateRunning]; made > most {
				t.Errorf("%.0f samples of the call that sleeps, want at most %.0f", made, most)
			}
			all := float64(len(sink.samples))
			ticks := float64(d / (10 * time.Millisecond))
			for _, x := range []struct {
				st   stack.State
				want float64
			}{{stack.StateRunnable, float64(c.queue) / sum}, {stack.StateBlocked, float64(c.nap) / sum}} {
				got := n[x.st] / ticks
				if limit := .02 + 4.5*math.Sqrt(x.want*(1-x.want)/ticks); math.Abs(got-x.want) > limit {
					t.Errorf("%.1f%% of %.0f ticks are %v, want %.1f%%", 100*got, ticks, x.st, 100*x.want)
				}
			}
			// A thread that runs little has more copies, up to one for each two intervals of time.
			least := float64(c.burst) / sum
			most := least / min(1, 2*least)
			if got := n[stack.StateRunning] / ticks; got < least-.02-4.5*math.Sqrt(least/ticks) || got > most+.02+4.5*math.Sqrt(most/ticks) {
				t.Errorf("%.1f%% of %.0f intervals have a copy, want %.1f%% to %.1f%%", 100*got, ticks, 100*least, 100*most)
			}
			// Stops before the clock started, and of threads that woke and wait for a CPU.
			if limit := uint64(all*.08) + 40; acc.Stopped() > limit {
				t.Errorf("%d stops, want at most %d", acc.Stopped(), limit)
			}
		})
	}
}

// TestOwedCalls: the CPU time around switches, in which a clock of all CPUs makes no copies, is that of
// the call in which the thread blocks, up to a time for each switch. The limits are 4.5 standard
// deviations of the number of ticks that meet the thread, and the half of one that is left open.
func TestOwedCalls(t *testing.T) {
	const us = 1000
	for _, c := range []struct {
		name  string
		off   int64 // ns at both ends of each burst of 100 us, at three switches
		least float64
		most  float64 // of the CPU time
	}{
		{"never off", 0, 0, .02},
		{"2 us at both ends", 2 * us, .04, .06},
		{"6 us at both ends", 6 * us, .12, .14},
		{"20 us: more than switches take", 20 * us, .36, .361},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := worker(100*us, 0, 125*us)
			th.cpus = true
			th.off = func(at stack.Time) bool {
				in := int64(at) % (225 * us)
				return in < c.off || in >= 100*us-c.off && in < 100*us
			}
			sink, _ := clockSample(t, th, Config{Interval: 10 * time.Millisecond, Jitter: .5, Clock: true}, 240*time.Second)
			if !th.machine {
				t.Fatal("no clock of all CPUs")
			}
			made, last := 0.0, int64(0)
			for _, s := range sink.samples {
				if _, on, _ := th.at(s.Time - 1); s.Way == stack.WayClock && s.State == stack.StateRunning && !on {
					made++
				}
				if s.CPU < last {
					t.Fatalf("at %v: %d ns of CPU time after %d", s.Time, s.CPU, last)
				}
				last = s.CPU
			}
			share := made / (240.0 * 50) // of a copy each 20 ms
			slack := 5 * math.Sqrt((1-100.0/225)/(240.0*100/225*1000))
			if c.off == 0 {
				slack = 0
			}
			if share < c.least-slack || share > c.most+slack {
				t.Errorf("%.1f%% of the CPU time is that of the call, want %.1f%% to %.1f%%", 100*share, 100*(c.least-slack), 100*(c.most+slack))
			}
		})
	}
}

// TestOwedByChance: chance hardly changes how many samples replace missing copies of a clock of all CPUs.
// In 120 recordings they are 1.1 % of all, where the program's 2,500 switches a second were expected to take 12 % of its
// CPU time with interrupts off, and take none; the standard deviation is 0.1, and the limit is 4.5 of these away.
func TestOwedByChance(t *testing.T) {
	const us = 1000
	made, copies := 0, 0
	for seed := range uint64(120) {
		th := worker(40*us, 0, 360*us)
		th.cpus = true
		th.rnd = rand.New(rand.NewPCG(2, seed))
		sink, _ := clockSample(t, th, Config{Interval: 10 * time.Millisecond, Jitter: .5, Clock: true}, 20*time.Second)
		for _, s := range sink.samples {
			if s.Way == stack.WayClock && s.State == stack.StateRunning {
				if _, on, _ := th.at(s.Time); on {
					copies++
				} else {
					made++
				}
			}
		}
	}
	share := float64(made) / float64(made+copies)
	t.Logf("%d copies, %d samples made up: %.1f%%", copies, made, 100*share)
	if copies < 120*450 || share > .016 {
		t.Errorf("%d copies, and %.1f%% of the CPU time is that of the call", copies, 100*share)
	}
}

// TestClockSoon: a thread whose switches so far are few for its CPU time gets a clock after a few stops. One that
// switched more often before gets it when its switches were counted for clockLook.
func TestClockSoon(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct {
		before      uint64
		least, most uint64
	}{{0, 1, 5}, {1_000_000, 10, 30}} {
		th := worker(10*ms, 0, 0)
		at := th.at
		th.at = func(now stack.Time) (Counters, bool, stack.State) {
			counts, on, st := at(now)
			counts.Switches += c.before
			return counts, on, st
		}
		_, acc := clockSample(t, th, Config{Interval: 10 * time.Millisecond, Jitter: .5, Clock: true}, 4*time.Second)
		if acc.Stops < c.least || acc.Stops > c.most || acc.Clocked < 200 {
			t.Errorf("after %d switches: %d stops and %d copies, want %d to %d stops", c.before, acc.Stops, acc.Clocked, c.least, c.most)
		}
	}
}

// TestClockOfDeepStack: a thread that switches too often for a clock of its own gets one of all CPUs, and its own all the
// same if the other one cannot copy its stack.
func TestClockOfDeepStack(t *testing.T) {
	for _, c := range []struct {
		burst int64
		flat  bool
	}{{600_000, false}, {600_000, true}, {250_000, false}, {250_000, true}} {
		flat := c.flat
		th := worker(c.burst, 0, 3*c.burst)
		th.cpus, th.flat = true, flat
		_, acc := clockSample(t, th, Config{Interval: time.Millisecond, Jitter: .5, Clock: true}, 4*time.Second)
		if th.machine == flat || acc.Clocked < 500 {
			t.Errorf("bursts of %d ns, flat %v: a clock of all CPUs: %v; %d copies, %d stops", c.burst, flat, th.machine, acc.Clocked, acc.Stops)
		}
	}
}

// TestStopsAreNotSwitches: a thread that switches seldom gets a clock of its own, however often it is
// stopped.
func TestStopsAreNotSwitches(t *testing.T) {
	const ms = 1_000_000
	th := worker(5*ms, 0, 2*ms)
	th.cpus = true
	at := th.at
	th.at = func(now stack.Time) (Counters, bool, stack.State) {
		c, on, st := at(now)
		c.Switches += 1_000_000 + th.stops // those before the recording do not give it a clock at once
		return c, on, st
	}
	clockSample(t, th, Config{Interval: 500 * time.Microsecond, Jitter: .5, Clock: true}, 2*time.Second)
	if th.stops < 200 {
		t.Fatalf("%d stops before the clock: too few to count", th.stops)
	}
	if !th.ever || th.machine {
		t.Errorf("a clock was started: %v, of all CPUs: %v, want one of its own", th.ever, th.machine)
	}
}

// TestClockEnds: clocks that do not serve are not used any more, and the thread is stopped instead.
func TestClockEnds(t *testing.T) {
	const ms = 1_000_000
	cfg := Config{Interval: 10 * time.Millisecond, Jitter: .5, Clock: true}
	for _, c := range []struct {
		name     string
		set      func(th *clockThread, cfg *Config)
		ever, on bool
	}{
		{"serves", func(*clockThread, *Config) {}, true, true},
		{"not wanted", func(_ *clockThread, cfg *Config) { cfg.Clock = false }, false, false},
		{"refused", func(th *clockThread, _ *Config) { th.deny = errors.New("no") }, false, false},
		{"is not ready at once", func(th *clockThread, _ *Config) { th.later = 5 }, true, true},
		{"stacks are cut", func(th *clockThread, _ *Config) { th.cut = true }, true, false},
		{"the first two make no copies", func(th *clockThread, _ *Config) { th.mute = 2 }, true, true},
		{"makes no copies", func(th *clockThread, _ *Config) { th.mute = math.MaxInt }, true, false},
		{"exceeds the bound", func(_ *clockThread, cfg *Config) { cfg.MaxOverhead = .0005 }, false, false},
		{"within the bound", func(_ *clockThread, cfg *Config) { cfg.MaxOverhead = .01 }, true, true},
		{"switches too often, and no clock of all CPUs", func(th *clockThread, _ *Config) { *th = *worker(ms/8, 0, ms/8) }, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			th, cfg := worker(3*ms, 0, ms), cfg
			c.set(th, &cfg)
			_, acc := clockSample(t, th, cfg, 10*time.Second)
			if th.ever != c.ever {
				t.Errorf("started: %v, want %v", th.ever, c.ever)
			}
			if many := acc.Clocked > acc.Samples/2; many != c.on {
				t.Errorf("%d of %d samples by the clock, want many: %v", acc.Clocked, acc.Samples, c.on)
			}
			if !c.on && acc.Stops < 100 {
				t.Errorf("%d stops", acc.Stops)
			}
		})
	}
}

// TestClockLost: copies that the full buffer has no room for count as late.
func TestClockLost(t *testing.T) {
	th := worker(10_000_000, 0, 0)
	th.room = 2
	f := &fakeTarget{threads: []*fakeThread{th.fakeThread}, until: 20_000_000_000, open: func(stack.TID) Thread { return th }}
	slow := 0
	f.late = func(due stack.Time) stack.Time { // each 50th tick comes 100 ms late
		if slow++; slow%50 == 0 {
			return 100_000_000
		}
		return 0
	}
	_, sinks, acc := sampleTarget(t, f, &clockTarget{f, clockSpace()}, Config{Interval: 10 * time.Millisecond, Jitter: .5, Clock: true})
	if acc[1].Late < 100 || sinks[1].gaps[stack.WhyLate] == 0 {
		t.Errorf("%d late, gaps %v", acc[1].Late, sinks[1].gaps)
	}
	if !slices.IsSortedFunc(sinks[1].samples, func(a, b stack.Sample) int { return int(a.Time - b.Time) }) {
		t.Error("samples out of order")
	}
}

// TestClockDense: of the copies of a thread that runs little, the bound of the interval counts as many as there would be
// with one an interval.
func TestClockDense(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct{ every, interval, want int64 }{
		{10 * ms, 10 * ms, 0}, {15 * ms, 10 * ms, 0}, {5 * ms, 10 * ms, 6000}, {ms, 10 * ms, 10_800}, {ms, 40 * ms, 11_700},
	} {
		k := clock{every: c.every, copy: 12_000}
		if got := k.dense(c.interval); got != c.want {
			t.Errorf("a copy each %d ns of CPU time, interval %d: %d ns, want %d", c.every, c.interval, got, c.want)
		}
	}
}

// TestClockEvery: threads that run little are copied more often, as far as the bound, the number of clocks and the
// buffers allow, also where the interval is stretched.
func TestClockEvery(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct {
		name         string
		chosen, tick int64
		share        float64
		clocks       int32
		machine      bool
		factor       float64 // of a limit for all processes; 0: there is none
		want         int64
	}{
		{"runs much", 10 * ms, 10 * ms, .6, 1, false, 0, 10 * ms},
		{"runs little", 10 * ms, 10 * ms, .05, 1, false, 0, 2.5 * ms},
		{"runs a little more", 10 * ms, 10 * ms, .3, 1, false, 0, 6 * ms},
		{"stretched, runs little: the buffer", 10 * ms, 40 * ms, .05, 1, false, 0, 5 * ms},
		{"stretched, runs much", 10 * ms, 40 * ms, .6, 1, false, 0, 40 * ms},
		{"one of eight clocks", 10 * ms, 10 * ms, .1, 8, false, 0, 8 * ms},
		{"one of forty clocks", 10 * ms, 10 * ms, .05, 40, false, 0, 10 * ms},
		{"1 ms", ms, ms, .05, 1, false, 0, .25 * ms},
		{"1 ms: the bound", ms, ms, .2, 1, false, 0, .96 * ms},
		{"of all CPUs", 10 * ms, 10 * ms, .05, 1, true, 0, ms},
		{"of all CPUs, runs more", 10 * ms, 10 * ms, .2, 1, true, 0, 4 * ms},
		{"of all CPUs, runs much", 10 * ms, 10 * ms, .5, 1, true, 0, 10 * ms},
		{"of all CPUs, 1 ms: the bound", ms, ms, .05, 1, true, 0, .6 * ms},
		{"a limit for all processes", 10 * ms, 40 * ms, .05, 1, false, 4, 40 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Sampler{cfg: Config{MaxOverhead: .01}}
			if c.factor > 0 {
				s.cfg.Limit = NewLimit(Bounds{Share: .1, From: 1})
				s.cfg.Limit.v.stretch.Store(math.Float64bits(c.factor))
			}
			s.ctl.ivl.Store(c.chosen)
			s.clocks.all.Store(c.clocks)
			g := &group{s: s}
			g.tick.every = c.tick
			th := &thread{file: &clockThread{}}
			th.usage.lately, th.clock.copy = c.share, 12_000
			if c.machine {
				th.clock.cpus.tick = g.clockTick(th)
			}
			if got := g.clockEvery(th); math.Abs(float64(got-c.want)) > 1 {
				t.Errorf("%d ns, want %d", got, c.want)
			}
		})
	}
}
