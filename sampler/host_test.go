package sampler

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// realSleeper sleeps by the machine's clock, and counts sleeps.
type realSleeper struct {
	sleeps *atomic.Int64
	woken  chan struct{}
	begun  time.Time
}

func (s *realSleeper) Now() stack.Time { return stack.Time(time.Since(s.begun)) + 1 }

func (s *realSleeper) SleepUntil(t stack.Time) {
	s.sleeps.Add(1)
	select {
	case <-s.woken:
	case <-time.After(time.Duration(t - s.Now())):
	}
}

func (s *realSleeper) Wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

func (s *realSleeper) Close() {}

// guestEngine is a guest's Engine.
type guestEngine struct {
	fakeEngine
	*realSleeper
	pending atomic.Int32 // threads that have not stopped
	closed  atomic.Bool
}

func (g *guestEngine) Now() stack.Time         { return g.realSleeper.Now() }
func (g *guestEngine) SleepUntil(t stack.Time) { g.realSleeper.SleepUntil(t) }
func (g *guestEngine) Wake()                   { g.realSleeper.Wake() }
func (g *guestEngine) Reap() int               { return int(g.pending.Load()) }
func (g *guestEngine) Close()                  { g.closed.Store(true) }
func (g *guestEngine) Read(t Thread, v *View) (bool, error) {
	v.Regs, v.Stopped, v.Call = &g.regs, g.Now(), stack.Call{Nr: 7}
	return true, t.Counters(&v.Counters)
}

// guestThread changes from one wait to the next.
type guestThread struct {
	fakeThread
	now func() stack.Time
}

func (t *guestThread) Counters(c *Counters) error {
	now := t.now()
	*c = Counters{CPU: int64(now), Switches: uint64(now)}
	return nil
}

func (t *guestThread) Call(c *stack.Call) (bool, error) {
	*c = stack.Call{Nr: 7}
	return false, nil
}

func (t *guestThread) State() (stack.State, error) { return stack.StateBlocked, nil }

type guestTarget struct {
	fakeTarget
	tr   *guestEngine
	fail error
}

func (f *guestTarget) Engine(int) (Engine, error) { return f.tr, f.fail }

func (f *guestTarget) Open(in *stack.ThreadInfo) (Thread, error) {
	return &guestThread{fakeThread{tid: in.TID}, f.tr.Now}, nil
}

// guest is a Sampler of a process with one thread.
type guest struct {
	*guestTarget
	s     *Sampler
	stop  context.CancelFunc
	ended chan error
}

func (g *guest) samples() uint64 {
	all, _ := g.s.Accounts()
	if len(all) == 0 {
		return 0
	}
	return all[0].Samples
}

type countingSink struct{ memorySink }

func (c *countingSink) Sample(*stack.Sample) {}

func newGuest(t *testing.T, hosts *Hosts, begun time.Time, ownSleeps *atomic.Int64) *guest {
	t.Helper()
	f := &guestTarget{fakeTarget: fakeTarget{threads: []*fakeThread{{tid: 1}}},
		tr: &guestEngine{realSleeper: &realSleeper{sleeps: ownSleeps, woken: make(chan struct{}, 1), begun: begun}}}
	s, err := New(f, Config{Interval: 2 * time.Millisecond, Jitter: .2, Groups: 1, Together: 1, Hosts: hosts,
		Start: func(in stack.ThreadInfo) Sink { return &countingSink{} }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &guest{f, s, cancel, make(chan error, 1)}
	go func() { g.ended <- s.Run(ctx) }()
	return g
}

func (g *guest) end(t *testing.T) {
	t.Helper()
	g.stop()
	if err := <-g.ended; err != nil {
		t.Error(err)
	}
}

func waitUntil(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); !cond(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("it waits in vain for %s", what)
		}
	}
}

// Many Samplers with one thread each use the fewest OS threads that have room for them, and each
// OS thread wakes up once for all of its Samplers. Samplers come and go; one that cannot release
// a thread does not delay the others.
func TestHosts(t *testing.T) {
	var sleeps, own, made atomic.Int64
	begun := time.Now()
	hosts := NewHosts(6, func() (Sleeper, error) {
		made.Add(1)
		return &realSleeper{&sleeps, make(chan struct{}, 1), begun}, nil
	})
	var guests []*guest
	for range 12 {
		guests = append(guests, newGuest(t, hosts, begun, &own))
	}
	total := func() (sum uint64) {
		for _, g := range guests {
			sum += g.samples()
		}
		return sum
	}
	all := func(n uint64) func() bool {
		return func() bool {
			for _, g := range guests {
				if g.samples() < n {
					return false
				}
			}
			return true
		}
	}
	waitUntil(t, "first samples", all(5))
	if n := made.Load(); n != 2 {
		t.Errorf("%d OS threads for two times six", n)
	}
	slept, had, alone := sleeps.Load(), total(), own.Load()
	waitUntil(t, "samples", func() bool { return total() > had+1200 })
	slept, had, alone = sleeps.Load()-slept, total()-had, own.Load()-alone
	if uint64(slept)*3 > had || alone != 0 {
		t.Errorf("they slept %d times for %d samples, and guests %d times", slept, had, alone)
	}

	// One ends while a thread does not stop.
	g := guests[0]
	g.tr.pending.Store(1)
	g.end(t)
	if g.tr.closed.Load() {
		t.Error("what holds a thread was closed")
	}
	guests = guests[1:]
	waitUntil(t, "samples of the others", all(guests[0].samples()+50))
	g.tr.pending.Store(0)
	waitUntil(t, "its end", g.tr.closed.Load)

	// All end, and new ones begin.
	for _, g := range guests {
		g.end(t)
		waitUntil(t, "its end", g.tr.closed.Load)
	}
	g = newGuest(t, hosts, begun, &own)
	waitUntil(t, "samples of a new one", func() bool { return g.samples() > 5 })
	g.end(t)

	bad := &guestTarget{fakeTarget: fakeTarget{threads: []*fakeThread{{tid: 1}}}, fail: errors.New("no more files")}
	s, err := New(bad, Config{Groups: 1, Hosts: hosts, Start: func(stack.ThreadInfo) Sink { return &countingSink{} }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(context.Background()); err != bad.fail {
		t.Errorf("a target without an Engine: %v", err)
	}
	none := NewHosts(6, func() (Sleeper, error) { return nil, bad.fail })
	if s, err = New(&fakeTarget{threads: []*fakeThread{{tid: 1}}}, Config{Groups: 1, Hosts: none, Start: func(stack.ThreadInfo) Sink { return &countingSink{} }}); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(context.Background()); err != bad.fail {
		t.Errorf("a host that cannot sleep: %v", err)
	}
}
