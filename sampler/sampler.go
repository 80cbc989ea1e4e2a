// Package sampler decides when to look at which thread and whether that needs a stop. It keeps
// the accounts of samples that were taken, late or lost. It drives a Target (package live
// implements one for a real process), unwinds the copied data, and passes samples to one Sink per
// thread.
//
// Each group of threads has its own goroutine, locked to an OS thread because an Engine may belong to one.
// Within a group, the threads are looked at in turn at each tick. Only Engine.Stop costs the
// target time; unwinding and the sink follow after the thread runs again.
package sampler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/stack"
)

// Config configures a Sampler. Zero values select the defaults given here.
type Config struct {
	Interval  time.Duration // between two samples of a thread; 10 ms
	Jitter    float64       // variation of the time between two ticks, as a share of the interval: 0 … 0.5
	Groups    int           // goroutines for the threads other than main; 5
	Together  int           // number of threads that one goroutine samples, main among them, before other goroutines take part
	Hosts     *Hosts        // samples main's group together with those of other Samplers; nil: the group has its own OS thread
	Selection *Selection    // nil: all
	Stop      StopPolicy
	// Yield leaves the whole process to another tracer as soon as one holds any of its threads:
	// no thread is stopped until that tracer is gone.
	Yield       bool
	MaxOverhead float64 // share of a thread's time that stops may take; 0: no bound
	// OverheadOfCPU makes MaxOverhead a share of the thread's CPU time, not of all time: many
	// threads that share few CPUs are then sampled less often. The caller then bounds this
	// program's own work.
	OverheadOfCPU bool
	// Limit bounds this program's work for samples, together with other Samplers; nil: it has no bound but
	// MaxOverhead.
	Limit *Limit
	// Clock samples threads that use CPUs by clocks of the kernel where it allows that: see
	// Thread.StartClock.
	Clock    bool
	MaxStack int // most bytes of stack to copy; 8 MiB
	// Harmless reports whether a thread blocked in this call may be stopped without changing the
	// call's outcome. sp is its stack pointer. nil: never.
	Harmless func(c *stack.Call, sp uint64) bool
	// Delays reports whether the only effect of a stop on a thread blocked in this call is that
	// its timeout restarts. nil: false for every call.
	Delays func(c *stack.Call, sp uint64) bool
	// Sleeps reports whether the sleep of a thread blocked in this call can be interrupted by
	// signals. nil: unknown.
	Sleeps func(c *stack.Call) bool
	// Start is called for each thread that is taken up and returns its sink.
	Start func(stack.ThreadInfo) Sink
	// Waits returns one for each group; it may be nil, and may return nil. wake makes the group
	// call Waits.Late soon. Any goroutine may call wake until Waits.Close returns.
	Waits func(wake func()) Waits
	// Renamed is called when a thread's name was seen to have changed, with the time of that; may be
	// nil.
	Renamed func(in stack.ThreadInfo, at stack.Time)
	// Exec is called when the target has become another program; may be nil.
	Exec func(t stack.Time)
}

// Bounds of an interval.
const (
	MinInterval = 100 * time.Microsecond
	MaxInterval = 10 * time.Minute
)

// Sampler samples one process. Create it with New and call Run once.
type Sampler struct {
	cfg    Config
	target Target
	groups []*group
	cpus   int // of the machine

	roll    roll
	run     runState
	list    listWatch
	ctl     controls
	clocks  clockUse
	doze    doze
	refused refusals
	gov     governor
	hooks   hooks
}

// roll lists the target's threads; mu guards it.
type roll struct {
	mu      sync.Mutex
	threads map[stack.TID]*thread
	names   map[stack.TID]named
	renamed []renamed
	all     []*thread // every thread ever taken up, for the accounts
	roles   map[string]bool
	past    map[string]*RoleAccount // of threads that Forget dropped
	image   uint64
}

// runState is when sampling began and ends.
type runState struct {
	first   atomic.Int64 // time of the first sample
	began   atomic.Int64 // first tick of the first thread
	lasts   atomic.Int64 // ns from then until all groups stop on their own; 0: they do not
	end     atomic.Int64 // time of that stop; 0: unknown
	ending  atomic.Bool  // the context of Run has ended
	working atomic.Int32 // groups that have begun and not ended
	ended   atomic.Int64 // last look of the last group
	untaken atomic.Int64 // selected threads that were not taken up when Run ended
}

// listWatch is the state that groups share to watch the list of threads: see peek.
type listWatch struct {
	poke   chan struct{}
	peeked atomic.Int64 // time of the last peek
	peeks  atomic.Int64 // number of peeks
	away   atomic.Int32 // groups whose Engine watches for changes
	stamp  atomic.Uint64
	// reported says that Look is called for each exec and end, and Changed for threads.
	reported atomic.Bool
	soon     atomic.Bool  // Changed will call look
	named    atomic.Bool  // a thread has a new name
	looked   atomic.Int64 // time of the last list
}

// controls are what a user or the target changes while groups sample.
type controls struct {
	started atomic.Bool
	paused  atomic.Bool
	chosen  atomic.Pointer[Selection]
	ivl     atomic.Int64
	execs   atomic.Uint64
	yielded atomic.Bool // another tracer has the process
}

// clockUse is what the clocks of all threads share.
type clockUse struct {
	refused        atomic.Bool  // the kernel refuses clocks of threads
	asideRefused   atomic.Bool  // the kernel copies no memory beside stacks
	machineRefused atomic.Bool  // … and one of all CPUs
	crowdRefused   atomic.Bool  // … and those of a pool's threads
	all, own       atomic.Int32 // threads that have one, and that have one of their own
	cost           atomic.Int64 // ns that copies of clocks are assumed to have cost
	// dense is the part of cost that no longer interval saves, since a thread runs little and has more than one copy an
	// interval of CPU time. clockEvery bounds it.
	dense atomic.Int64
}

// hooks are what tests replace.
type hooks struct {
	begin     func(*group) error // starts a group; set by Run and used by its goroutine
	groupInit func(*group) error // group.init, except in tests
	wall      func() time.Time   // time.Now, except in tests
	// now and wait are the clock of follow: time.Now and waitPoked, except in tests.
	now  func() time.Time
	wait func(ctx context.Context, poke <-chan struct{}, wait time.Duration) (poked, ok bool)
}

// New checks cfg and returns a Sampler.
func New(t Target, cfg Config) (*Sampler, error) {
	if cfg.Interval == 0 {
		cfg.Interval = 10 * time.Millisecond
	}
	if cfg.Interval < MinInterval || cfg.Interval > MaxInterval {
		return nil, fmt.Errorf("interval: %v is out of range; use %v to %v", cfg.Interval, MinInterval, MaxInterval)
	}
	if cfg.Jitter < 0 || cfg.Jitter > .5 {
		return nil, fmt.Errorf("jitter: %.0f%% is out of range; use 0%% to 50%%", cfg.Jitter*100)
	}
	if cfg.Groups == 0 {
		cfg.Groups = 5
	}
	if cfg.Groups < 1 || cfg.Groups > 256 {
		return nil, fmt.Errorf("groups: %d is out of range; use 1 to 256", cfg.Groups)
	}
	if cfg.MaxStack == 0 {
		cfg.MaxStack = 8 << 20
	}
	if cfg.MaxOverhead < 0 || cfg.MaxOverhead >= 1 {
		return nil, fmt.Errorf("max-overhead: %.3g is out of range; use 0 (no bound) to 99%%", cfg.MaxOverhead)
	}
	if cfg.Start == nil {
		return nil, errors.New("sampler: no sink")
	}
	if cfg.Selection == nil {
		cfg.Selection, _ = ParseSelection("all")
	}
	s := &Sampler{cfg: cfg, target: t, cpus: runtime.NumCPU()}
	s.roll.image, _ = t.Image() // an exec before Run is reported, too
	s.roll.threads, s.roll.names, s.roll.roles = map[stack.TID]*thread{}, map[stack.TID]named{}, map[string]bool{}
	s.list.poke = make(chan struct{}, 1)
	s.ctl.ivl.Store(int64(cfg.Interval))
	s.ctl.chosen.Store(cfg.Selection)
	s.doze.target = t
	s.hooks.groupInit, s.hooks.wall = (*group).init, time.Now
	s.hooks.now, s.hooks.wait = time.Now, waitPoked
	for i := range cfg.Groups + 1 {
		g := &group{s: s, index: i}
		g.tally.pauses = map[string]*Histogram{}
		s.groups = append(s.groups, g)
	}
	if cfg.Hosts != nil {
		s.groups[0].hosted = &hosted{}
	}
	return s, nil
}

// ErrNoThreads reports that the selection matches no thread of the target.
var ErrNoThreads = errors.New("no thread is selected")

// Check returns ErrNoThreads if the selection currently matches no thread.
func (s *Sampler) Check() error {
	if s.ctl.chosen.Load().All() { // names need not be read
		tids, err := s.target.Threads(nil)
		if err == nil && len(tids) == 0 {
			err = ErrNoThreads
		}
		return err
	}
	picked, err := s.pick()
	if err == nil && len(picked) == 0 {
		err = ErrNoThreads
	}
	return err
}

func (s *Sampler) pick() ([]stack.ThreadInfo, error) {
	tids, err := s.target.Threads(nil)
	if err != nil {
		return nil, err
	}
	return s.ctl.chosen.Load().Pick(new(roster).list(s.target, tids, true, s.over)), nil
}

// Run samples until ctx ends or the target does; it returns nil in both cases. On every return,
// no thread is held.
func (s *Sampler) Run(ctx context.Context) error {
	if s.ctl.started.Swap(true) {
		return errors.New("sampler: Run called twice")
	}
	if im, err := s.target.Image(); err != nil {
		return err
	} else if s.roll.image == 0 {
		s.roll.image = im
	}
	var wg sync.WaitGroup
	// Groups start with their first thread, because most programs have few.
	s.hooks.begin = func(g *group) error {
		ready := make(chan error, 1)
		wg.Add(1)
		if g.main() && s.cfg.Hosts != nil {
			s.cfg.Hosts.take(g, func() { ready <- nil }, func(err error) {
				if err != nil {
					ready <- err
				}
				wg.Done()
			})
		} else {
			background.Go(func() (again bool) {
				defer wg.Done()
				err := s.hooks.groupInit(g)
				if ready <- err; err != nil {
					return false
				}
				// When the OS thread ends, the kernel releases the threads that it still traces.
				return g.run()
			})
		}
		return <-ready
	}
	// Groups stop as soon as ctx ends, whatever follow is doing.
	stop := func() {
		s.run.ending.Store(true)
		for _, g := range s.groups {
			g.stop()
		}
	}
	defer context.AfterFunc(ctx, stop)()
	s.cfg.Limit.join(s)
	defer s.cfg.Limit.leave(s)
	if err := s.hooks.begin(s.groups[0]); err != nil {
		wg.Wait()
		return err
	}
	defer func() {
		stop()
		wg.Wait()
		for _, g := range s.groups {
			g.dropIncoming()
		}
		s.tellNames()
	}()
	return s.follow(ctx)
}

// Ended returns the end of the last look at a thread, once Run has returned.
func (s *Sampler) Ended() stack.Time { return stack.Time(s.run.ended.Load()) }

// over reports whether Run is ending and takes up no more threads.
func (s *Sampler) over() bool { return s.run.ending.Load() }

// release drops threads that a new selection does not include.
func (s *Sampler) release(picked []stack.ThreadInfo) {
	if s.ctl.chosen.Load() == s.cfg.Selection {
		return // the first selection: threads stay taken up even if renamed
	}
	keep := make(map[stack.TID]bool, len(picked))
	for i := range picked {
		keep[picked[i].TID] = true
	}
	s.roll.mu.Lock()
	defer s.roll.mu.Unlock()
	for tid, th := range s.roll.threads {
		if !keep[tid] {
			th.life.dropped.Store(true)
			delete(s.roll.threads, tid)
		}
	}
}

func (s *Sampler) add(in stack.ThreadInfo) *group {
	t, err := s.target.Open(&in)
	if s.refused.note(in.TID, err); err != nil {
		return nil
	}
	at := s.hooks.wall()
	th := newThread(in, t, s.cfg.Start(in))
	s.doze.add(th)
	th.life.added = at // the recording lacks the time until the first look
	g := s.groups[0]
	if !in.Main && int(g.load()) >= s.cfg.Together {
		g = s.other(&in)
	}
	s.roll.mu.Lock()
	s.roll.threads[in.TID] = th
	s.roll.all = append(s.roll.all, th)
	s.assign(th, g)
	s.roll.mu.Unlock()
	g.add(th)
	return g
}

// fillEach is the time of an interval, in ns, that a group has for each of its threads before
// another group starts: much more than a sample takes.
const fillEach = 1_000_000

// other returns the group for a thread outside main's group: the smallest one that has begun,
// another one if those are full, or main's group if no other can begin. A wake-up of a group costs much
// more than a look at a thread that sleeps, so some that hardly ran in their lives begin no other one.
func (s *Sampler) other(in *stack.ThreadInfo) *group {
	full := int32(s.Interval() / fillEach)
	if hardlyRan(&Counters{CPU: in.CPU}, int64(s.target.Now()-in.Born)) {
		full = max(full, fewSleep)
	}
	var g *group
	for _, x := range s.groups[1:] {
		n := x.tally.size.Load()
		if !x.ctl.ready.Load() && g != nil && g.tally.size.Load() < full {
			continue
		}
		if g == nil || n < g.tally.size.Load() {
			g = x
		}
	}
	if s.hooks.begin != nil && !g.ctl.ready.Load() && s.hooks.begin(g) != nil {
		return s.groups[0]
	}
	return g
}

// gone is called by a group when a thread has ended.
func (s *Sampler) gone(th *thread) {
	s.roll.mu.Lock()
	if s.roll.threads[th.info.TID] == th {
		delete(s.roll.threads, th.info.TID)
		delete(s.roll.names, th.info.TID)
	}
	last := len(s.roll.threads) == 0
	th.acc.over.Store(true)
	s.roll.mu.Unlock()
	if last { // the process may have ended, with no group left to peek
		s.look()
	}
}

// checkExec reports whether the target has become another program since the last call.
func (s *Sampler) checkExec() bool {
	im, err := s.target.Image()
	if err != nil || im == 0 {
		return false
	}
	s.roll.mu.Lock()
	changed := im != s.roll.image
	s.roll.image = im
	s.roll.mu.Unlock()
	if !changed {
		return false
	}
	s.target.Remap(true)
	s.ctl.execs.Add(1)
	for _, g := range s.groups {
		g.wake()
	}
	if s.cfg.Exec != nil {
		s.cfg.Exec(s.target.Now())
	}
	return true
}

// Threads returns the number of threads that are sampled now.
func (s *Sampler) Threads() int {
	s.roll.mu.Lock()
	defer s.roll.mu.Unlock()
	return len(s.roll.threads)
}

// Accounts returns the accounts so far of every thread ever taken up, in the order in which they
// were, and the distribution of pauses.
func (s *Sampler) Accounts() ([]stack.ThreadStats, stack.Pauses) {
	s.roll.mu.Lock()
	all := append([]*thread(nil), s.roll.all...)
	var hs []*Histogram
	for _, g := range s.groups {
		for _, h := range g.tally.pauses {
			hs = append(hs, h)
		}
	}
	s.roll.mu.Unlock()
	out := make([]stack.ThreadStats, len(all))
	for i, th := range all {
		out[i] = th.acc.snapshot(th.info.TID)
	}
	return out, pauses(hs)
}
