// Package sampler decides when to look at which thread, whether a stop is
// needed for it, and keeps the accounts of every sample that was had, late or
// lost. It drives a Target (package live joins it to a real process), unwinds
// what was copied, and hands samples to a Sink of each thread.
//
// Each group of threads has a goroutine of its own, locked to an OS thread, as
// ptrace wants. Within a group the threads are looked at in turn at each tick.
// What a sample costs the target happens in Tracer.Stop alone; unwinding and
// the sink come after the thread runs again.
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

// Config of a Sampler. Zero values mean the defaults named.
type Config struct {
	Interval  time.Duration // between two samples of a thread; 10 ms
	Jitter    float64       // how much the time between two ticks varies, as a share of the interval: 0 … 0.5
	Groups    int           // goroutines for the threads other than main; 5
	Together  int           // so many threads are looked at by one goroutine, main with them, before others take part
	Hosts     *Hosts        // looks at main's group beside those of other Samplers; nil: it has an OS thread to itself
	Selection *Selection    // nil: all
	Stop      StopPolicy
	// Yield leaves the whole process to another tracer as soon as one holds any of
	// its threads, and until it is gone: nobody is stopped meanwhile.
	Yield       bool
	MaxOverhead float64 // share of a thread's time that may be taken; 0: no bound
	// OverheadOfCPU takes that share of the time that the thread ran, not of all:
	// many threads that share few CPUs are then looked at more rarely. What this program
	// itself takes is bounded by the caller then.
	OverheadOfCPU bool
	MaxStack      int // bytes of stack copied at most; 8 MiB
	// Harmless tells whether a thread blocked in this call, its stack pointer
	// where the number says, may be stopped without the call's outcome changing.
	// nil: never.
	Harmless func(c *stack.Call, sp uint64) bool
	// Delays tells whether all that a stop does to a thread blocked in this call
	// is to make its timeout start anew. nil: no call is of that kind.
	Delays func(c *stack.Call, sp uint64) bool
	// Sleeps reports whether the sleep of a thread blocked in this call is one that signals
	// interrupt. nil: it is not known of any.
	Sleeps func(c *stack.Call) bool
	// Start is called for each thread that is taken up and returns its sink.
	Start func(stack.ThreadInfo) Sink
	// Waits makes one for each group; may be nil, and may return nil. wake has the
	// group ask for what came late (Waits.Late) soon; any goroutine may call it, until
	// Waits.Close returns.
	Waits func(wake func()) Waits
	// Renamed is called when a thread's name changed; may be nil.
	Renamed func(stack.ThreadInfo)
	// Exec is called when the target became another program; may be nil.
	Exec func(t stack.Time)
}

// Bounds of an interval.
const (
	MinInterval = 100 * time.Microsecond
	MaxInterval = 10 * time.Minute
)

// Sampler samples one process. Make it with New, Run it once.
type Sampler struct {
	cfg    Config
	target Target
	groups []*group

	mu      sync.Mutex
	threads map[stack.TID]*thread
	names   map[stack.TID]string
	all     []*thread // every one ever taken up, for the accounts
	roles   map[string]bool
	past    map[string]*RoleAccount // of threads that Forget dropped
	image   uint64
	first   atomic.Int64 // time of the first sample
	began   atomic.Int64 // when the first thread had its first tick
	lasts   atomic.Int64 // ns from then on until all groups stop by themselves; 0: they do not
	end     atomic.Int64 // when they do; 0: not known
	ending  atomic.Bool  // the context of Run has ended
	working atomic.Int32 // groups that have begun and not ended
	ended   atomic.Int64 // when the last group stopped looking at threads
	untaken atomic.Int64 // selected threads that were not taken up when Run ended

	// What groups know of the list of threads: see peek.
	poke    chan struct{}
	peeked  atomic.Int64 // when
	peeks   atomic.Int64 // how often
	away    atomic.Int32 // groups whose Tracer looks out for that
	stamp   atomic.Uint64
	started atomic.Bool
	paused  atomic.Bool
	chosen  atomic.Pointer[Selection]
	ivl     atomic.Int64
	execs   atomic.Uint64
	yielded atomic.Bool // to another tracer
	doze    doze
	refused refusals
	gov     governor
	// napLeast is the least level of threads that sleep, for the bound of overhead.
	napLeast atomic.Int32

	begin     func(*group) error // has a group look at threads; Run's, for its goroutine
	groupInit func(*group) error // group.init, but in tests
	wall      func() time.Time   // time.Now, but in tests
	cpus      int                // of the machine
}

// New checks cfg.
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
	s := &Sampler{cfg: cfg, target: t, threads: map[stack.TID]*thread{}, names: map[stack.TID]string{}, roles: map[string]bool{}, poke: make(chan struct{}, 1)}
	s.ivl.Store(int64(cfg.Interval))
	s.chosen.Store(cfg.Selection)
	s.doze.target, _ = t.(DozeTarget)
	s.gov.target, _ = t.(CostTarget)
	s.groupInit, s.wall, s.cpus = (*group).init, time.Now, runtime.NumCPU()
	for i := range cfg.Groups + 1 {
		s.groups = append(s.groups, &group{s: s, index: i, main: i == 0, pauses: map[string]*Histogram{}})
	}
	if cfg.Hosts != nil {
		s.groups[0].hosted = &hosted{}
	}
	return s, nil
}

// ErrNoThreads says that the selection matches no thread of the target.
var ErrNoThreads = errors.New("no thread is selected")

// Check fails with ErrNoThreads when the selection matches nothing now.
func (s *Sampler) Check() error {
	if s.chosen.Load().All() { // their names need not be read
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
	return s.chosen.Load().Pick(new(roster).list(s.target, tids, true, s.over)), nil
}

// Run samples until ctx ends or the target does (then it returns nil too). On
// every way out no thread is held.
func (s *Sampler) Run(ctx context.Context) error {
	if s.started.Swap(true) {
		return errors.New("sampler: Run called twice")
	}
	var err error
	if s.image, err = s.target.Image(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	// Groups begin with their first thread: most programs have few.
	s.begin = func(g *group) error {
		ready := make(chan error, 1)
		wg.Add(1)
		if g.main && s.cfg.Hosts != nil {
			s.cfg.Hosts.take(g, func() { ready <- nil }, func(err error) {
				if err != nil {
					ready <- err
				}
				wg.Done()
			})
		} else {
			background.Go(func() (again bool) {
				defer wg.Done()
				err := s.groupInit(g)
				if ready <- err; err != nil {
					return false
				}
				// What the OS thread still traces, the kernel lets go of when it ends.
				return g.run()
			})
		}
		return <-ready
	}
	// Groups stop as soon as ctx ends, whatever follow is at.
	stop := func() {
		s.ending.Store(true)
		for _, g := range s.groups {
			g.stop()
		}
	}
	defer context.AfterFunc(ctx, stop)()
	if err := s.begin(s.groups[0]); err != nil {
		wg.Wait()
		return err
	}
	defer func() {
		stop()
		wg.Wait()
		for _, g := range s.groups {
			g.dropIncoming()
		}
	}()
	return s.follow(ctx)
}

// Ended is when the last look at a thread was over, once Run has returned.
func (s *Sampler) Ended() stack.Time { return stack.Time(s.ended.Load()) }

// over reports whether Run ends and takes up no more threads.
func (s *Sampler) over() bool { return s.ending.Load() }

// followEvery is how soon a new thread is seen: an interval, but not more
// often than every 20 ms nor more rarely than every 200 ms.
func (s *Sampler) followEvery() time.Duration {
	return min(max(s.Interval(), 20*time.Millisecond), mostFollow)
}

const mostFollow = 200 * time.Millisecond

// restFor is how many times followEvery the threads are left alone while the
// groups' own peeks say that nothing changed: then names, and what a peek may
// have missed, are looked at.
const restFor = 10

// follow takes up threads as they come until ctx or the target ends. It sleeps
// as long as a group that is awake anyway looks out for it.
func (s *Sampler) follow(ctx context.Context) error {
	var tids, before []stack.TID
	var was *Selection
	var known roster
	var whole time.Time // the last time that names were read
	for {
		every := s.followEvery()
		if stamp, err := s.target.Stamp(); err == nil {
			s.stamp.Store(stamp) // before the list: a change after this is seen
		}
		var err error
		tids, err = s.target.Threads(tids)
		if err != nil || len(tids) == 0 {
			return nil // gone
		}
		due := time.Since(whole) >= restFor*every
		// A process that is over has its first thread until its parent asks for it.
		if (due || len(tids) == 1) && !s.target.Alive() {
			return nil
		}
		if sel := s.chosen.Load(); due || sel != was || !sameTIDs(tids, before) {
			was = sel
			if due {
				whole = time.Now()
			}
			s.updateAll(&known, tids, due)
			before = append(before[:0], tids...)
		}
		s.checkExec()
		if s.cfg.Yield {
			s.yielded.Store(s.target.Traced())
		}
		if !s.rest(ctx, every) {
			return nil
		}
	}
}

// rest waits until it is time to look at the list of threads: when a peek says
// so, after restFor times every, or after every where nobody peeks. False: ctx
// has ended.
func (s *Sampler) rest(ctx context.Context, every time.Duration) bool {
	seen := s.peeks.Load()
	for n := range restFor {
		wait := every/4 + background.Until(every)
		if every == mostFollow { // the peeks are farther apart than a part of that
			wait += min(s.Interval(), time.Second)
		}
		if n > 0 {
			wait = (restFor-2)*every + background.Until(every) // somebody peeks
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-s.poke:
			t.Stop()
			return true
		case <-t.C:
		}
		if n > 0 || s.peeks.Load() == seen && s.away.Load() == 0 || s.cfg.Yield {
			return true
		}
	}
	return true
}

// peek is called by a group between two rounds: at times one of them looks
// whether the list of threads has to be read.
func (s *Sampler) peek(now stack.Time) {
	s.govern(now)
	last := s.peeked.Load()
	if int64(now)-last < int64(s.followEvery())*3/4 || !s.peeked.CompareAndSwap(last, int64(now)) {
		return
	}
	s.peeks.Add(1)
	if stamp, err := s.target.Stamp(); err != nil || stamp != s.stamp.Load() {
		s.look()
	}
}

// look has the list of threads read soon.
func (s *Sampler) look() {
	select {
	case s.poke <- struct{}{}:
	default: // somebody else said so
	}
}

func sameTIDs(a, b []stack.TID) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// update takes up selected threads that are new and notes new names.
func (s *Sampler) update(r *roster, tids []stack.TID, due bool) {
	r.refused = s.refused.note
	picked := s.chosen.Load().Pick(r.list(s.target, tids, due, s.over))
	if s.over() {
		s.leave(r, tids)
		return
	}
	s.release(picked)
	for _, in := range picked {
		if s.over() {
			s.leave(r, tids)
			return
		}
		s.mu.Lock()
		th := s.threads[in.TID]
		renamed := th != nil && s.names[in.TID] != in.Name
		s.names[in.TID] = in.Name
		s.mu.Unlock()
		if renamed && s.cfg.Renamed != nil {
			s.cfg.Renamed(in)
		}
		if th == nil && r.taken(s.target, &in) {
			s.add(in)
		}
	}
}

// updateEach is how many threads are read before those that are selected are taken up.
const updateEach = 256

// updateAll is update, in parts where very many threads are new and all are selected: reading
// thousands takes a while, on a busy machine seconds, in which the first ones can be sampled.
func (s *Sampler) updateAll(r *roster, tids []stack.TID, due bool) {
	s.refused.listed(tids)
	if s.chosen.Load().All() && len(tids) > updateEach && r.unread(tids) > updateEach {
		for n := updateEach; n < len(tids) && !s.over(); n += updateEach {
			s.update(r, tids[:n], false)
		}
	}
	s.update(r, tids, due)
}

// release lets go of threads that a new selection no longer has.
func (s *Sampler) release(picked []stack.ThreadInfo) {
	if s.chosen.Load() == s.cfg.Selection {
		return // the first one: what was taken up stays, whatever its name became
	}
	keep := make(map[stack.TID]bool, len(picked))
	for i := range picked {
		keep[picked[i].TID] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for tid, th := range s.threads {
		if !keep[tid] {
			th.dropped.Store(true)
			delete(s.threads, tid)
		}
	}
}

func (s *Sampler) add(in stack.ThreadInfo) {
	t, err := s.target.Open(in.TID)
	if s.refused.note(in.TID, err); err != nil {
		return
	}
	at := s.wall()
	th := newThread(in, t, s.cfg.Start(in))
	s.doze.add(th)
	th.added = at // what passes until the first look is missing in the recording
	g := s.groups[0]
	if !in.Main && int(g.load()) >= s.cfg.Together {
		g = s.other()
	}
	s.mu.Lock()
	s.threads[in.TID] = th
	s.all = append(s.all, th)
	s.assign(th, g)
	s.mu.Unlock()
	g.add(th)
}

// fillEach is how much of an interval, in ns, a group has for each of its threads before
// another group begins: much more than a sample takes.
const fillEach = 1_000_000

// other is the group for a thread that is not to be in main's: the one with the
// fewest of those that have begun, another one if they are full, or main's if no other
// can begin.
func (s *Sampler) other() *group {
	full := int32(s.Interval() / fillEach)
	var g *group
	for _, x := range s.groups[1:] {
		n := x.size.Load()
		if !x.ready.Load() && g != nil && g.size.Load() < full {
			continue
		}
		if g == nil || n < g.size.Load() {
			g = x
		}
	}
	if s.begin != nil && !g.ready.Load() && s.begin(g) != nil {
		return s.groups[0]
	}
	return g
}

// gone is told by a group that a thread has ended.
func (s *Sampler) gone(th *thread) {
	s.mu.Lock()
	if s.threads[th.info.TID] == th {
		delete(s.threads, th.info.TID)
		delete(s.names, th.info.TID)
	}
	last := len(s.threads) == 0
	th.over.Store(true)
	s.mu.Unlock()
	if last { // the process may be over, and nobody peeks
		s.look()
	}
}

// checkExec notices that the target became another program.
func (s *Sampler) checkExec() {
	im, err := s.target.Image()
	if err != nil {
		return
	}
	s.mu.Lock()
	changed := im != s.image
	s.image = im
	s.mu.Unlock()
	if !changed {
		return
	}
	s.target.Remap(true)
	s.execs.Add(1)
	for _, g := range s.groups {
		g.wake()
	}
	if s.cfg.Exec != nil {
		s.cfg.Exec(s.groups[0].tracer.Now())
	}
}

// Threads is how many threads are being sampled now.
func (s *Sampler) Threads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.threads)
}

// Accounts are the accounts so far of every thread ever taken up, in the
// order in which they were, and the distribution of pauses.
func (s *Sampler) Accounts() ([]stack.ThreadStats, stack.Pauses) {
	s.mu.Lock()
	all := append([]*thread(nil), s.all...)
	var hs []*Histogram
	for _, g := range s.groups {
		for _, h := range g.pauses {
			hs = append(hs, h)
		}
	}
	s.mu.Unlock()
	out := make([]stack.ThreadStats, len(all))
	for i, th := range all {
		out[i] = th.acc.snapshot(th.info.TID)
	}
	return out, pauses(hs)
}
