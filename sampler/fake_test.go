package sampler

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// fakeThread follows its script at each time of its group's clock.
type fakeThread struct {
	NoClock
	NoDeath
	tid stack.TID
	// at returns the thread's counters and state.
	at  func(now stack.Time) (c Counters, running bool, st stack.State)
	err func(now stack.Time) error // result of a stop; nil: success
	// cost of a stop in ns.
	cost   int64
	queued bool                   // when it does not run, it waits for a CPU
	stood  map[stack.Time]bool    // see the method of that name
	times  func(*stack.Call) bool // result of TimesOut; nil: true
	tr     *fakeEngine
	looks  int // readings of the counters
}

func (t *fakeThread) Counters(c *Counters) error {
	t.looks++
	*c, _, _ = t.at(t.tr.now)
	if c.CPU < 0 {
		return ErrGone
	}
	return nil
}

func (t *fakeThread) Call(c *stack.Call) (bool, error) {
	_, running, _ := t.at(t.tr.now)
	*c = stack.Call{Nr: 7}
	return running || t.queued, nil
}

func (t *fakeThread) NewName(stack.Time) (string, bool) { return "", false }

func (t *fakeThread) State() (stack.State, error) {
	_, _, st := t.at(t.tr.now)
	return st, nil
}

func (t *fakeThread) OnCPU() (bool, error)        { return true, nil }
func (t *fakeThread) TimesOut(c *stack.Call) bool { return t.times == nil || t.times(c) }

func (t *fakeThread) Close() error { return nil }

func (t *fakeThread) fake() *fakeThread { return t }

// fakeEngine uses its own clock, which jumps to the end of each sleep.
type fakeEngine struct {
	NoStops
	NoRegisters
	f     *fakeTarget
	now   stack.Time
	woken chan struct{}
	late  func(due stack.Time) stack.Time // delay at the end of a sleep
	regs  stack.Regs
	done  bool
	g     *group
	want  int // threads that the group must have before the clock runs
	all   bool
	// thread is the CPU time of the OS thread, which may serve several; nil: unknown.
	thread *int64
}

func (tr *fakeEngine) Stop(t Thread, v *View) error {
	th := t.(interface{ fake() *fakeThread }).fake()
	if v.Check && th.at != nil {
		if _, running, _ := th.at(tr.now); !running {
			return ErrAsleep
		}
	}
	if th.err != nil {
		if err := th.err(tr.now); err != nil {
			tr.now += stack.Time(v.Deadline)
			return err
		}
	}
	const stands = 25_000 // ns for which the thread is held; before that, it waits for a CPU
	v.Asked, v.Stopped = tr.now, tr.now+stack.Time(th.cost-min(th.cost/2, stands))
	tr.now += stack.Time(th.cost)
	v.Resumed, v.Regs = tr.now, &tr.regs
	v.Call = stack.Call{Nr: -1}
	return nil
}

func (tr *fakeEngine) Read(t Thread, v *View) (bool, error) {
	c, running, _ := t.(interface{ fake() *fakeThread }).fake().at(tr.now)
	v.Counters, v.Regs, v.Stopped, v.Call = c, &tr.regs, tr.now, stack.Call{Nr: 7}
	return !running, nil
}

func (tr *fakeEngine) Can() Abilities { return Abilities{Stops: true} }

func (tr *fakeEngine) Spent() (thread, helpers int64) {
	if tr.thread != nil {
		thread = *tr.thread
	}
	return thread, 0
}

func (tr *fakeEngine) SleepUntil(t stack.Time) {
	if tr.g != nil {
		for _, th := range tr.g.threads {
			if s := th.pend.check(); s != "" {
				panic(s)
			}
		}
	}
	if !tr.all && tr.want > 0 && int(tr.g.tally.size.Load()) >= tr.want {
		tr.all = true // the clock runs from the first round on
		return
	}
	if tr.now >= tr.f.until || !tr.all {
		if tr.all && !tr.done {
			tr.done = true
			tr.f.cancel()
		}
		<-tr.woken
		return
	}
	if tr.f.steer != nil {
		tr.f.steer(tr.g.s, tr.now)
	}
	if tr.late != nil {
		t += tr.late(t)
	}
	tr.now = max(tr.now, t)
	tr.f.now.Store(int64(tr.now))
}

func (tr *fakeEngine) Wake() {
	select {
	case tr.woken <- struct{}{}:
	default:
	}
}

func (tr *fakeEngine) Now() stack.Time   { return tr.now }
func (tr *fakeEngine) fake() *fakeEngine { return tr }
func (tr *fakeEngine) Close()            {}

type fakeTarget struct {
	NoCosts
	threads []*fakeThread
	until   stack.Time
	late    func(stack.Time) stack.Time
	name    func(stack.TID) string           // nil: all are t
	steer   func(s *Sampler, now stack.Time) // may control the sampler; nil: no control
	cancel  context.CancelFunc
	traced  atomic.Bool
	open    func(stack.TID) Thread // nil: a thread of threads
	ahead   bool                   // its engines can run ticks ahead
	queue   bool                   // its threads wait for CPUs
	doze    bool                   // it supports the clock for dozing threads
	asked   int                    // number of readings of that clock
	wrap    func(*memorySink) Sink // the sink of a thread; nil: the memorySink itself
	born    stack.Time             // of its threads
	cpu     int64                  // of each thread, in Info

	now atomic.Int64 // the engines' time, as of the last sleep

	mu    sync.Mutex
	taken []stack.TID
}

func (f *fakeTarget) Threads([]stack.TID) (out []stack.TID, err error) {
	for _, t := range f.threads {
		out = append(out, t.tid)
	}
	return out, nil
}

func (f *fakeTarget) Info(tid stack.TID) (stack.ThreadInfo, error) {
	in := stack.ThreadInfo{TID: tid, Name: "t", Main: tid == 1, Born: f.born, CPU: f.cpu}
	if f.name != nil {
		in.Name = f.name(tid)
	}
	return in, nil
}

func (f *fakeTarget) Open(in *stack.ThreadInfo) (Thread, error) {
	if f.open != nil {
		return f.open(in.TID), nil
	}
	for _, t := range f.threads {
		if t.tid == in.TID {
			return t, nil
		}
	}
	return nil, ErrGone
}

func (f *fakeTarget) Engine(int) (Engine, error) {
	tr := &fakeEngine{f: f, woken: make(chan struct{}, 1), late: f.late, now: 1000}
	if f.queue {
		return &queuer{fakeEngine: tr, coming: map[*fakeThread]View{}, free: true, r: rand.New(rand.NewPCG(7, 7))}, nil
	}
	if f.ahead {
		return &foreseer{fakeEngine: tr}, nil
	}
	return tr, nil
}
func (f *fakeTarget) Image() (uint64, error)               { return 1, nil }
func (f *fakeTarget) Stamp() (uint64, error)               { return uint64(len(f.threads)), nil }
func (f *fakeTarget) Space() *unwind.Space                 { return unwind.NewSpace(rule.AMD64, nil, nil) }
func (f *fakeTarget) Remap(bool) (bool, error)             { return false, nil }
func (f *fakeTarget) Replaced(stack.Time) (bool, error)    { return false, nil }
func (f *fakeTarget) Now() stack.Time                      { return stack.Time(f.now.Load()) }
func (f *fakeTarget) Traced() bool                         { return f.traced.Load() }
func (f *fakeTarget) Alive() bool                          { return true }
func (f *fakeTarget) sink(in stack.ThreadInfo) *memorySink { return &memorySink{tid: in.TID} }

type memorySink struct {
	tid     stack.TID
	samples []stack.Sample
	gaps    map[stack.Why]int64
	spans   [][2]stack.Time // of the gaps
	events  []event.Event
	ended   bool
}

func (m *memorySink) Sample(s *stack.Sample) {
	c := *s
	c.Stack = nil
	m.samples = append(m.samples, c)
}
func (m *memorySink) Gap(t stack.Time, why stack.Why, ns int64) {
	if m.gaps == nil {
		m.gaps = map[stack.Why]int64{}
	}
	m.gaps[why] += ns
	m.spans = append(m.spans, [2]stack.Time{t - stack.Time(ns), t})
}
func (m *memorySink) Event(t stack.Time, k event.Kind, p uint64) {
	m.events = append(m.events, event.Make(t, k, p))
}
func (m *memorySink) End(stack.Time, stack.Why) { m.ended = true }
func (m *memorySink) Flush()                    {}
func (m *memorySink) Full() bool                { return false }

// sample runs a sampler over threads for a virtual time and returns their sinks and accounts. All
// threads of a test are in one group.
func sample(t *testing.T, f *fakeTarget, cfg Config) (map[stack.TID]*memorySink, map[stack.TID]stack.ThreadStats) {
	t.Helper()
	_, sinks, acc := sampleAll(t, f, cfg)
	return sinks, acc
}

func sampleAll(t *testing.T, f *fakeTarget, cfg Config) (*Sampler, map[stack.TID]*memorySink, map[stack.TID]stack.ThreadStats) {
	t.Helper()
	return sampleTarget(t, f, f, cfg)
}

// sampleTarget is sampleAll with a target that adds to f.
func sampleTarget(t *testing.T, f *fakeTarget, target Target, cfg Config) (*Sampler, map[stack.TID]*memorySink, map[stack.TID]stack.ThreadStats) {
	t.Helper()
	sinks := map[stack.TID]*memorySink{}
	cfg.Groups = 1
	cfg.Start = func(in stack.ThreadInfo) Sink {
		f.mu.Lock()
		defer f.mu.Unlock()
		s := f.sink(in)
		if sinks[in.TID] == nil { // the fake lists a thread that has ended, and it may be taken up once more
			sinks[in.TID] = s
		}
		f.taken = append(f.taken, in.TID)
		if f.wrap != nil {
			return f.wrap(s)
		}
		return s
	}
	s, err := New(target, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f.cancel = cancel
	for _, g := range s.groups {
		// The fake's clock is that of the group that has the threads.
		if err := g.init(); err != nil {
			t.Fatal(err)
		}
		tr := g.engine.(interface{ fake() *fakeEngine }).fake()
		tr.g = g
		for _, th := range f.threads {
			if g.main() == (th.tid == 1) {
				th.tr = tr
				tr.want++
			}
		}
		g.ctl.ready.Store(false)
	}
	s.hooks.wall = func() time.Time { return time.Time{} }
	s.cpus = 64
	s.hooks.groupInit = func(g *group) error { g.ctl.ready.Store(true); return nil }
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	acc, _ := s.Accounts()
	by := map[stack.TID]stack.ThreadStats{}
	for _, a := range acc {
		if _, ok := by[a.TID]; !ok {
			by[a.TID] = a
		}
	}
	return s, sinks, by
}

func running(cost int64) *fakeThread {
	return &fakeThread{tid: 1, cost: cost, at: func(now stack.Time) (Counters, bool, stack.State) {
		return Counters{CPU: int64(now), Switches: 1}, true, stack.StateRunning
	}}
}

func blocked(tid stack.TID) *fakeThread {
	return &fakeThread{tid: tid, at: func(stack.Time) (Counters, bool, stack.State) {
		return Counters{CPU: 5, Switches: 3}, false, stack.StateBlocked
	}}
}
