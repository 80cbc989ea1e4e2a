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
	if th := t.(*clockThread); th.waits != nil && th.waits(v.Asked) {
		v.Found = ActivityQueued
	}
	return err
}

func (tr *clockEngine) Read(t Thread, v *View) (bool, error) {
	ok, err := tr.fakeEngine.Read(t, v)
	tr.fill(v)
	return ok, err
}

// clockThread is a fakeThread with a clock, which copies it exactly when it has run for a period.
type clockThread struct {
	*fakeThread
	waits func(stack.Time) bool // it waits for a CPU; nil: never
	deny  error                 // of StartClock
	cut   bool                  // its copies lack the stack
	cpus  bool                  // there is a clock of all CPUs
	mute  int                   // the first clocks, which make no copies
	room  int                   // copies that the buffer holds; 0: no limit
	off   func(stack.Time) bool // interrupts are off: no copy; nil: never
	gaps  func() stack.Time     // between ticks of a clock of all CPUs, which copies the thread if it runs; nil: copies are exact

	on, ever bool
	starts   int
	stops    uint64
	machine  bool
	period   int64
	began    int64      // CPU time at the start
	next     int64      // CPU time of the next copy
	from     stack.Time // time of the last copy, or of the start
	regs     stack.Regs
}

func (t *clockThread) cpu(at stack.Time) int64 { c, _, _ := t.at(at); return c.CPU }

func (t *clockThread) StartClock(period int64, n int, machine bool) error {
	if t.deny != nil {
		return t.deny
	}
	if machine && !t.cpus {
		return errors.New("no clock of all CPUs")
	}
	t.machine = machine
	t.on, t.ever, t.period, t.from, t.began = true, true, period, t.tr.now, t.cpu(t.tr.now)
	t.next = t.began + period
	if t.starts++; t.starts <= t.mute {
		t.next = math.MaxInt64
	}
	return nil
}

func (t *clockThread) SetClock(period int64) error {
	if !t.machine && t.next != math.MaxInt64 {
		t.period, t.next = period, t.cpu(t.tr.now)+period
	}
	return nil
}

func (t *clockThread) StopClock()             { t.on = false }
func (t *clockThread) MaxClockStack(bool) int { return 60 << 10 }

func (t *clockThread) NextCopy(v *View) (ran int64, lost uint64, ok bool) {
	if t.gaps != nil {
		for t.from += t.gaps(); t.from <= t.tr.now; t.from += t.gaps() {
			if _, on, _ := t.at(t.from); on {
				t.copy(v, t.from)
				return 0, 0, true
			}
		}
		t.from = t.tr.now // the rest of the gap is left out, and each gap is drawn by itself
		return 0, 0, false
	}
	now := t.cpu(t.tr.now)
	for t.room > 0 && (now-t.next)/t.period >= int64(t.room) {
		t.next += t.period
		lost++
	}
	if now < t.next {
		return 0, lost, false
	}
	lo, hi := t.from, t.tr.now // the moment at which its CPU time was next
	for lo < hi {
		if mid := (lo + hi) / 2; t.cpu(mid) < t.next {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if t.off != nil && t.off(lo) {
		t.from, t.next = lo, t.next+t.period
		return t.NextCopy(v)
	}
	t.from = lo
	t.copy(v, lo)
	if ran = t.next - t.began; t.machine {
		ran = 0
	}
	t.next += t.period
	return ran, lost, true
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
			last := stack.Sample{}
			for _, s := range sink.samples {
				if s.Time < last.Time || s.CPU < last.CPU {
					t.Fatalf("%v, %d ns of CPU time after %v, %d", s.Time, s.CPU, last.Time, last.CPU)
				}
				if s.Way == stack.WayClock && s.State == stack.StateRunning {
					if _, on, _ := th.at(s.Time - 1); !on || th.waits(s.Time-1) {
						t.Fatalf("a copy at %v, where it does not run", s.Time)
					}
				}
				last = s
				n[s.State]++
			}
			all := float64(len(sink.samples))
			for _, x := range []struct {
				st   stack.State
				want float64
			}{{stack.StateRunning, float64(c.burst) / sum}, {stack.StateRunnable, float64(c.queue) / sum}, {stack.StateBlocked, float64(c.nap) / sum}} {
				got := n[x.st] / all
				if limit := .015 + 4.5*math.Sqrt(x.want*(1-x.want)/all); math.Abs(got-x.want) > limit {
					t.Errorf("%.1f%% of %.0f samples are %v, want %.1f%%", 100*got, all, x.st, 100*x.want)
				}
			}
			// Stops before the clock started, and of threads that woke and wait for a CPU.
			if most := uint64(all*.08) + 40; acc.Stopped() > most {
				t.Errorf("%d stops, want at most %d", acc.Stopped(), most)
			}
			ticks := float64(d / (10 * time.Millisecond))
			if all < .93*ticks || all > 1.05*ticks {
				t.Errorf("%.0f samples in %.0f intervals", all, ticks)
			}
		})
	}
}

// TestOwedCalls: the CPU time around switches, in which a clock of all CPUs makes no copies, is that of
// the call in which the thread blocks, up to a time for each switch. The limits are 4.5 standard
// deviations of the number of copies.
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
		{"20 us: more than switches take", 20 * us, .30, .301},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := worker(100*us, 0, 125*us)
			th.cpus = true
			// The period is a multiple of a burst's length here: chance instead of a place in it.
			rnd := rand.New(rand.NewPCG(1, uint64(c.off)))
			th.off = func(stack.Time) bool { return rnd.Int64N(100*us) < 2*c.off }
			sink, _ := clockSample(t, th, Config{Interval: 10 * time.Millisecond, Jitter: .5, Clock: true}, 60*time.Second)
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
			copies := 60.0 * 100 / 225 * 100
			share := made / copies
			slack := 4.5 * math.Sqrt(c.most*(1-c.most)/copies)
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
// In 120 recordings they are 0.8 % of all, with a standard deviation of 0.26: the limit is 4.5 of these away. If chance
// were no reason, they would be 4 %.
func TestOwedByChance(t *testing.T) {
	const us = 1000
	made, copies := 0, 0
	for seed := range uint64(120) {
		th := worker(40*us, 0, 360*us)
		th.cpus = true
		rnd := rand.New(rand.NewPCG(2, seed))
		th.gaps = func() stack.Time { return stack.Time(rnd.ExpFloat64() * 10e6) }
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
	if copies < 120*120 || share > .02 {
		t.Errorf("%d copies, and %.1f%% of the CPU time is that of the call", copies, 100*share)
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
		c.Switches += th.stops
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
		{"stacks are cut", func(th *clockThread, _ *Config) { th.cut = true }, true, false},
		{"the first two make no copies", func(th *clockThread, _ *Config) { th.mute = 2 }, true, true},
		{"makes no copies", func(th *clockThread, _ *Config) { th.mute = math.MaxInt }, true, false},
		{"exceeds the bound", func(_ *clockThread, cfg *Config) { cfg.MaxOverhead = .001 }, false, false},
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

// TestClockEvery: a stretched interval stretches the period of clocks only where their copies would cost something.
func TestClockEvery(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct {
		name         string
		chosen, tick int64
		share        float64
		machine, on  bool
		limited      bool
		want         int64
	}{
		{"not stretched", 10 * ms, 10 * ms, .05, false, false, false, 10 * ms},
		{"runs little", 10 * ms, 40 * ms, .05, false, false, false, 10 * ms},
		{"runs much", 10 * ms, 40 * ms, .2, false, false, false, 40 * ms},
		{"runs more since its clock began", 10 * ms, 40 * ms, .2, false, true, false, 10 * ms},
		{"of all CPUs", 10 * ms, 40 * ms, 1, true, false, false, 10 * ms},
		{"copies at that interval cost too much", ms, 4 * ms, .05, false, false, false, 4 * ms},
		{"a limit for all processes", 10 * ms, 40 * ms, .05, false, false, true, 40 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Sampler{cfg: Config{MaxOverhead: .01}}
			if c.limited {
				s.cfg.Limit = NewLimit(Bounds{Share: .1, From: 1})
				s.cfg.Limit.v.stretch.Store(math.Float64bits(4))
			}
			s.ctl.ivl.Store(c.chosen)
			g := &group{s: s}
			g.tick.every = c.tick
			th := &thread{}
			th.usage.lately, th.clock.on, th.clock.every = c.share, c.on, c.chosen
			if got := g.clockEvery(th, c.machine); got != c.want {
				t.Errorf("%d ns, want %d", got, c.want)
			}
		})
	}
}
