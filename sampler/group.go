package sampler

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// group is some threads and the goroutine that looks at them.
type group struct {
	s          *Sampler
	index      int  // of the Sampler's groups
	main       bool // it has the main thread to itself
	tracer     Tracer
	walker     *unwind.Walker
	view       View
	now        *thread // that the view is of
	queued     int64   // ns of that stop for which the thread waited for a CPU
	sample     stack.Sample
	word       func(uint64) (uint64, bool) // Sample.Word
	here       func(*stack.Frame) bool     // Sample.Here
	pauses     map[string]*Histogram       // by role, guarded by s.mu
	waits      Waits                       // nil: nobody asks
	glance     Glance
	waited     int64 // ns that waits took in this round
	missed     int   // rounds for which the thread that waits longest was left out for that, by this round and by the one before
	behind     int
	left       int // threads that were left alone in this round, having no CPU, and in the one before
	leftBefore int
	woke       bool       // the thread that is looked at was blocked at first
	spent      bool       // the thread that is looked at has used up its share of stops
	again      stack.Time // when threads are looked at again for this tick; 0: none is
	unasked    stack.Time // since when threads are to be asked to stop; 0: there are none
	vain       int64      // ns for which threads were waited for in this round that did not stop

	spentAll atomic.Int64  // CPU time as last read, see breath
	asleep   atomic.Uint64 // looks at threads that slept at the last look
	awakes   atomic.Uint64 // looks at the others
	size     atomic.Int32
	stopping atomic.Bool
	ready    atomic.Bool
	mu       sync.Mutex
	incoming []*thread // guarded by mu

	threads []*thread
	execs   uint64
	// runtimes is the Space's Runtimes: a thread's stack from before that number changed is stale.
	runtimes uint32
	tick     tick
	rested   stack.Time // when the last round ended
	breath   breath
	calls    halted
	first    int        // index of the thread that comes first of those that ran
	turn     int        // the same of those that sleep
	held     stack.Time // since when Pause holds, 0: it does not
	ahead    ahead
	dozing   dozing
	eves     int        // threads whose counters are to be read before the tick
	eveOf    stack.Time // the tick before which they were
	asked    int        // reads that More made in the stop that is under way
	late     LateTracer // nil: there is none
	batches  uint64     // of samples that came late, so far
	hosted   *hosted    // nil: it has an OS thread to itself
}

func (g *group) init() (err error) {
	if g.tracer, err = g.s.target.Tracer(g.s.cfg.MaxStack); err != nil {
		return err
	}
	g.walker = unwind.NewWalker(g.s.target.Space())
	g.view.More = func(regs *stack.Regs, mem *unwind.Copy) []stack.Span {
		spans, reads := g.walker.More(&g.now.walk, regs, mem)
		g.asked += reads
		return spans
	}
	g.ahead.tracer, _ = g.tracer.(AheadTracer)
	g.late, _ = g.tracer.(LateTracer)
	g.breath.tracer, _ = g.tracer.(SpentTracer)
	if g.s.cfg.Waits != nil {
		g.waits = g.s.cfg.Waits(g.wake)
	}
	if g.s.target.Space().Arch() == rule.AMD64 {
		g.word = g.view.Mem.Word
	}
	g.here = g.walker.Here
	g.ready.Store(true)
	g.s.working.Add(1)
	return nil
}

func (g *group) add(th *thread) {
	g.mu.Lock()
	g.incoming = append(g.incoming, th)
	g.mu.Unlock()
	g.grow(1)
	g.wake()
}

func (g *group) wake() {
	h := g.hosted
	if h == nil {
		if g.ready.Load() {
			g.tracer.Wake()
		}
		return
	}
	h.woken.Store(true)
	if x := h.host.Load(); x != nil {
		x.wake()
	}
}

func (g *group) stop() {
	g.stopping.Store(true)
	g.wake()
}

// over reports whether the group has nothing more to do: stop was called, or the time
// for that has come. The group checks its clock itself: where all CPUs are taken, the goroutine
// that calls stop may have to wait for one.
func (g *group) over() bool {
	if g.stopping.Load() {
		return true
	}
	end := g.s.end.Load()
	return end > 0 && g.hosted == nil && int64(g.tracer.Now()) >= end
}

// idle is how long a group without threads sleeps; a wake ends it.
const idle = 60_000_000_000

// reapEvery is how often a group looks for threads that stop after their
// deadline, so that none of them stands still for long.
const reapEvery = 200_000

// run samples until it is told to stop; free says that nothing is held.
func (g *group) run() (free bool) {
	defer func() { free = g.end() }() // on a panic too
	for !g.over() {
		if until := g.step(); until > 0 {
			if end := stack.Time(g.s.end.Load()); end > 0 {
				until = min(until, end)
			}
			g.tracer.SleepUntil(until)
		}
	}
	return
}

// step does what is due, and says until when there is nothing to do; 0: it is not
// known.
func (g *group) step() (until stack.Time) {
	g.takeIncoming()
	now := g.tracer.Now()
	pending := g.tracer.Reap()
	g.arrivals()
	if g.every() != g.tick.every {
		g.setRate(now)
	}
	if len(g.threads) == 0 || g.s.paused.Load() {
		return g.rest(now, pending)
	}
	if g.held != 0 {
		g.resumed(now)
		g.rested = now
	}
	if g.waits != nil {
		g.waits.Late(g.rested, now+stack.Time(g.tick.every/waitShare))
		now = g.tracer.Now()
	}
	if pending == 0 && g.again == 0 && g.alone() && g.foresee(now) && g.goAhead() {
		g.rested = g.tracer.Now()
		g.s.peek(g.rested)
		return 0
	}
	now = g.tracer.Now()
	if now < g.tick.due {
		until := min(g.eve(now), g.lookAgain(now))
		if pending > 0 && (g.late == nil || !g.late.Free()) {
			until = min(until, now+reapEvery)
		}
		return until
	}
	g.skip(now)
	g.round(now)
	g.rested = g.tracer.Now()
	g.s.peek(now)
	if g.alone() || g.late == nil || !g.late.Free() {
		return 0
	}
	return g.lookAgain(g.rested)
}

// rest is while there is nothing to look at; the clock begins anew after it.
func (g *group) rest(now stack.Time, pending int) (until stack.Time) {
	until = now + idle
	if pending > 0 {
		until = now + reapEvery
	} else if len(g.threads) > 0 {
		until = now + 50_000_000 // paused: Resume does not wake
	}
	if g.s.paused.Load() && g.held == 0 {
		g.settleAll()
		g.held = now
	}
	g.tick.every = 0
	return until
}

// resumed tells of the time that Pause held.
func (g *group) resumed(now stack.Time) {
	for _, th := range g.threads {
		if from := max(g.held, stack.Time(th.acc.from.Load())); now > from {
			th.sink.Gap(now, stack.WhyStopped, int64(now-from))
		}
		th.blocked = false
	}
	g.held = 0
}

func (g *group) every() int64 {
	return int64(float64(g.s.ivl.Load()) * g.s.gov.factor())
}

// setRate starts the clock anew at now.
func (g *group) setRate(now stack.Time) {
	g.settleAll()
	changed := g.tick.every != 0
	g.tick = tick{every: g.every(), jitter: g.s.cfg.Jitter, seed: rand.Uint64()}
	if g.hosted != nil { // guests of one host have their ticks together
		g.tick.seed = g.hosted.host.Load().seed
		g.tick.join(now)
	} else { // without jitter the groups take turns
		g.tick.begin(now, float64(g.index)/float64(len(g.s.groups)))
	}
	g.rested = now
	if changed {
		for _, th := range g.threads {
			th.sink.Event(now, event.Rate, uint64(g.tick.every<<th.nap.level))
			if g.s.gov.factor() > 1 {
				th.sink.Event(now, event.Mark, uint64(stack.WhyBudget))
			}
		}
	}
}

func (g *group) takeIncoming() {
	g.mu.Lock()
	in := g.incoming
	g.incoming = nil
	g.mu.Unlock()
	if len(in) == 0 {
		return
	}
	if len(g.threads) == 0 {
		g.tick.every = 0 // the first one's first sample comes at once
	}
	now := g.tracer.Now()
	g.s.begins(now)
	for _, th := range in {
		th.acc.from.Store(int64(now))
		th.acc.to.Store(int64(now))
		th.sink.Event(now, event.Rate, uint64(g.every()))
		if missed := int64(g.s.wall().Sub(th.added)) / g.every(); missed > 0 {
			th.acc.late.Add(uint64(missed))
			th.sink.Gap(now, stack.WhyLate, missed*g.every())
		}
		g.threads = append(g.threads, th)
	}
}

// dropIncoming closes what came when the group had ended.
func (g *group) dropIncoming() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, th := range g.incoming {
		g.s.doze.drop(th)
		th.file.Close()
	}
	g.incoming = nil
}

// round looks at every thread of the group once. Those that were running come
// first, so that many sleeping ones do not make them late.
func (g *group) round(now stack.Time) {
	if n := g.s.execs.Load(); n != g.execs {
		g.execs = n
		g.walker = unwind.NewWalker(g.s.target.Space())
		if g.waits != nil {
			g.waits.Forget(0)
		}
		g.settleAll()
		for _, th := range g.threads {
			th.sink.End(now, stack.WhyExec)
			th.reset()
		}
	}
	if n := g.s.target.Space().Runtimes(); n != g.runtimes {
		g.runtimes, g.dozing.on = n, false
		for _, th := range g.threads {
			th.stale = true
		}
	}
	g.ahead.rest = max(g.ahead.rest-1, 0)
	g.again = 0 // all are looked at now
	g.calls.read = false
	g.waited, g.vain = 0, 0
	g.leftBefore, g.left = g.left, 0
	g.behind, g.missed = g.missed, 0
	end := max(g.tick.dueOf(g.tick.k+1), g.tick.due+stack.Time(g.tick.every))
	g.first = g.visitAll(true, g.first, end)
	g.ask()
	slept := g.tracer.Now()
	byClock := g.dozeOn(slept)
	var was dozed
	known := false
	if g.dozing.whole = !byClock && g.dozing.rest == 0 && len(g.threads) > fewSleep; g.dozing.whole { // else nobody is to doze
		was, known = g.s.doze.read(slept, slept-stack.Time(g.tick.every*2/3))
	}
	// Those that sleep come in turn: the round goes on where time was up in the
	// one before.
	until := min(end, g.tracer.Now()+stack.Time(g.tick.every/sleepShare))
	g.turn = g.visitAll(false, g.turn, until)
	g.ask()
	if !byClock {
		g.dozeAgain(was, known)
	}
	g.dozing.tried(g.threads)
	kept := g.threads[:0]
	for _, th := range g.threads {
		th.done = false
		if th.ended {
			g.s.doze.drop(th)
			th.file.Close()
			g.grow(-1)
			g.s.gone(th)
			continue
		}
		kept = append(kept, th)
	}
	clear(g.threads[len(kept):])
	g.threads = kept
	g.next()
}

// sleepShare of a tick, as its divisor, may go to threads that slept at the last
// look: a group that does nothing else is late for those that run.
const sleepShare = 2

// visitAll visits the threads that were active at the last look, or those that
// were not, beginning with the one of an index. It returns which was the first that
// it had no time for.
func (g *group) visitAll(active bool, from int, until stack.Time) (next int) {
	n := len(g.threads)
	late := false
	looks := uint64(0)
	defer func() {
		if active {
			g.awakes.Add(looks)
		} else {
			g.asleep.Add(looks)
		}
	}()
	for i := range n {
		at := (from + i) % n
		th := g.threads[at]
		if th.active != active || th.done || th.ended || active && g.sleeps(th) {
			continue
		}
		if !active && g.naps(th) {
			th.done = true
			continue
		}
		if g.over() {
			break
		}
		th.done, th.looks = true, 0
		looks++
		if !late && g.tracer.Now() >= until {
			late, next = true, at
		}
		g.visit(th, late)
		g.askSoon()
		g.breathe()
	}
	return next
}

// sleeps tells, of a thread that was never looked at, whether it is one of those that
// sleep: of many that are new, those that run are not to wait for all others.
func (g *group) sleeps(th *thread) bool {
	if th.started || th.firstAt != 0 || len(g.threads) <= fewSleep {
		return false
	}
	var call stack.Call
	running, err := th.file.Call(&call)
	th.active = err != nil || running
	return !th.active
}

// skip leaves out ticks that were over before their round could begin, and counts them.
func (g *group) skip(now stack.Time) {
	n := g.tick.at(now) - g.tick.k
	if n <= 0 {
		return
	}
	due := g.tick.due
	g.tick.k += n
	g.tick.due = g.tick.dueOf(g.tick.k)
	for _, th := range g.threads {
		g.missFor(th, now, n, int64(g.tick.due-due))
	}
}

// next sets the clock to the next tick. Ticks that have passed whole meanwhile
// are left out and counted: they are never made up for in a burst.
func (g *group) next() {
	now := g.tracer.Now()
	k := max(g.tick.at(now), g.tick.k+1)
	missed, due, after := k-g.tick.k-1, g.tick.dueOf(k), g.tick.dueOf(g.tick.k+1)
	for _, th := range g.threads {
		n, ns := missed, int64(due-after)
		if th.tardy { // one gap for all of them: two that end at one time would hide each other
			th.tardy = false
			n, ns = n+1, int64(due-g.tick.due)
		}
		if n > 0 {
			g.missFor(th, now, n, ns)
		}
	}
	g.tick.k = k
	g.tick.due = g.tick.dueOf(g.tick.k)
}

// visit has one thread's tick: a look, or the reason why there is none, as that
// the tick is over.
func (g *group) visit(th *thread, late bool) {
	now := g.tracer.Now()
	g.sure(th)
	if th.dropped.Load() {
		g.awake(th, false)
		g.confirm(th, false)
		g.giveUp(th)
		g.endThread(th, stack.WhyStopped)
		return
	}
	if g.later(th, now) || g.holdBack(th, now) {
		return
	}
	if late {
		// The others of the group took so long that this tick is over, or the group came
		// so late itself: next counts it with those that are over as well.
		th.tardy = true
		return
	}
	g.spent = th.broke(now, g.s.cfg.MaxOverhead)
	err := g.look(th)
	g.spent = false
	if err != nil {
		g.failed(th, err)
		return
	}
	if g.sample.Way != stack.WayUnrun {
		th.stale = false
		g.wakes(th)
	}
	g.heldBy(th, th.state == stack.StateTraced)
	th.steadily(&g.sample)
}

// failed notes why there is no sample of a thread.
func (g *group) failed(th *thread, err error) {
	th.steady = 0
	switch {
	case errors.Is(err, ErrGone):
		g.endThread(th, stack.WhyGone)
		return
	}
	g.wakes(th)
	switch {
	case errors.Is(err, errSpent):
		g.stretch(th, g.tracer.Now())
		return
	case errors.Is(err, ErrUnsure):
		if now := g.tracer.Now(); !g.unsure(th, now) {
			g.miss(th, now, 1)
		}
		return
	case errors.Is(err, ErrLater) && g.late != nil:
		g.leftAlone(th, g.tracer.Now())
		return
	case errors.Is(err, ErrTimeout):
		th.acc.timedOut.Add(1)
		th.gap(g.tracer.Now(), stack.WhyTimeout, g.tick.every)
	case errors.Is(err, ErrTraced):
		th.acc.denied.Add(1)
		if g.s.cfg.Yield {
			g.s.yielded.Store(true)
		}
		g.heldBy(th, true)
		th.gap(g.tracer.Now(), stack.WhyTraced, g.tick.every)
	default:
		th.acc.denied.Add(1)
		th.gap(g.tracer.Now(), stack.WhyDenied, g.tick.every)
	}
	th.blocked = false // whatever was known of it is old
}

// heldBy marks the moment when another tracer is seen to hold a thread.
func (g *group) heldBy(th *thread, other bool) {
	if other && !th.traced {
		th.sink.Event(g.tracer.Now(), event.Mark, uint64(stack.WhyTraced))
	}
	th.traced = other
}

func (g *group) endThread(th *thread, why stack.Why) {
	if why == stack.WhyGone {
		g.lastWords(th)
	}
	now := g.tracer.Now()
	th.sink.End(now, why)
	th.acc.to.Store(int64(now))
	th.ended = true
	if g.waits != nil {
		g.waits.Forget(th.info.TID)
	}
}

// end lets go of everything; free says that it could.
func (g *group) end() (free bool) {
	// A thread that has not stopped yet cannot be let go of: wait a little, also for
	// its sample, then leave it to the kernel, which does so when this OS thread ends.
	for limit := g.tracer.Now() + lingers; g.tracer.Reap() > 0 && g.tracer.Now() < limit; {
		g.arrivals()
		g.tracer.SleepUntil(g.tracer.Now() + reapEvery)
	}
	g.finish()
	free = g.tracer.Reap() == 0
	g.tracer.Close()
	return free
}

// finish is the end of all but the Tracer.
func (g *group) finish() {
	for now := int64(g.tracer.Now()); ; {
		if last := g.s.ended.Load(); now <= last || g.s.ended.CompareAndSwap(last, now) {
			break
		}
	}
	g.arrivals()
	g.settleAll()
	for _, th := range g.threads {
		g.lastWords(th) // the target may have ended
		th.sink.Flush()
	}
	g.ready.Store(false)
	g.s.working.Add(-1)
	if g.waits != nil {
		g.waits.Close()
	}
	g.takeIncoming()
	for _, th := range g.threads {
		g.s.doze.drop(th)
		th.file.Close()
		g.grow(-1)
	}
}

// grow notes that it has n threads more.
func (g *group) grow(n int32) {
	g.size.Add(n)
	if g.hosted != nil {
		g.hosted.host.Load().size.Add(n)
	}
}

// load is how many threads whoever looks at g looks at.
func (g *group) load() int32 {
	if g.hosted != nil {
		return g.hosted.host.Load().size.Load()
	}
	return g.size.Load()
}
