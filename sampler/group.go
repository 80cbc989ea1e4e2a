package sampler

import (
	"errors"
	"math/rand/v2"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// group is a set of threads and the goroutine that samples them.
type group struct {
	s      *Sampler
	index  int     // in the Sampler's groups; the first one samples the main thread
	hosted *hosted // nil: it has its own OS thread
	engine Engine
	can    Abilities // of the engine
	walker *unwind.Walker
	view   View
	sample stack.Sample

	threads []*thread
	ctl     groupControl
	tick    tick
	image   imageSeen
	pass    pass
	cur     current
	waits   waiting
	extra   extraLooks
	ahead   ahead
	dozing  dozing
	breath  breath
	tally   tally
}

// main reports whether the group samples the main thread.
func (g *group) main() bool { return g.index == 0 }

func (g *group) init() (err error) {
	if g.engine, err = g.s.target.Engine(g.s.cfg.MaxStack); err != nil {
		return err
	}
	g.walker = unwind.NewWalker(g.s.target.Space())
	g.view.More = func(regs *stack.Regs, mem *unwind.Copy) []stack.Span {
		spans, reads := g.walker.More(&g.cur.thread.walk, regs, mem)
		g.cur.asked += reads
		return spans
	}
	g.can = g.engine.Can()
	if g.s.cfg.Waits != nil {
		g.waits.of = g.s.cfg.Waits(g.wake)
	}
	if g.s.target.Space().Arch() == rule.AMD64 {
		g.cur.word = g.view.Mem.Word
	}
	g.cur.here = g.walker.Here
	g.exclude()
	g.ctl.ready.Store(true)
	g.s.run.working.Add(1)
	return nil
}

// add hands a thread to the group, which takes it when it wakes.
func (g *group) add(th *thread) {
	g.ctl.mu.Lock()
	g.ctl.incoming = append(g.ctl.incoming, th)
	g.ctl.mu.Unlock()
	g.grow(1)
}

func (g *group) wake() {
	h := g.hosted
	if h == nil {
		if g.ctl.ready.Load() {
			g.engine.Wake()
		}
		return
	}
	h.woken.Store(true)
	if x := h.host.Load(); x != nil {
		x.wake()
	}
}

func (g *group) stop() {
	g.ctl.stopping.Store(true)
	g.wake()
}

// over reports whether the group has nothing more to do: stop was called, or the end time has
// passed. The group checks its own clock, because with all CPUs busy the goroutine that calls
// stop may have to wait for one.
func (g *group) over() bool {
	if g.ctl.stopping.Load() {
		return true
	}
	end := g.s.run.end.Load()
	return end > 0 && g.hosted == nil && int64(g.engine.Now()) >= end
}

// idle is how long, in ns, a group without threads sleeps; a wake ends it.
const idle = 60_000_000_000

// reapEvery is how often, in ns, a group looks for threads that stopped after their deadline, so
// that none of them stays stopped for long.
const reapEvery = 200_000

// run samples until the group is stopped. free reports that no thread is held.
func (g *group) run() (free bool) {
	defer func() { free = g.end() }() // on a panic too
	for !g.over() {
		if until := g.step(); until > 0 {
			if end := stack.Time(g.s.run.end.Load()); end > 0 {
				until = min(until, end)
			}
			g.engine.SleepUntil(until)
		}
	}
	return
}

// step does the work that is due and returns until when there is none; 0: unknown.
func (g *group) step() (until stack.Time) {
	g.takeIncoming()
	now := g.engine.Now()
	pending := g.engine.Reap()
	g.arrivals()
	g.retakes()
	if g.every() != g.tick.every {
		g.setRate(now)
	}
	if len(g.threads) == 0 || g.s.ctl.paused.Load() {
		return g.rest(now, pending)
	}
	if g.ctl.held != 0 {
		g.resumed(now)
		g.pass.rested = now
	}
	if g.waits.of != nil {
		g.waits.of.Late(g.pass.rested, now+stack.Time(g.tick.every/waitShare))
		now = g.engine.Now()
	}
	if until, ok := g.allNap(now); ok && pending == 0 {
		return until
	}
	if pending == 0 && g.extra.again == 0 && g.alone() && g.foresee(now) && g.goAhead() {
		g.pass.rested = g.engine.Now()
		g.s.peek(g.pass.rested)
		return 0
	}
	now = g.engine.Now()
	if now < g.tick.due {
		until := min(g.eve(now), g.lookAgain(now))
		if pending > 0 && !g.engine.Free() {
			until = min(until, now+reapEvery)
		}
		return until
	}
	g.skip(now)
	g.round(now)
	g.pass.rested = g.engine.Now()
	g.s.peek(now)
	if g.alone() || !g.engine.Free() {
		return 0
	}
	if until, ok := g.allNap(g.pass.rested); ok {
		return until
	}
	return g.lookAgain(g.pass.rested)
}

// rest handles a group with nothing to sample; the clock restarts after it.
func (g *group) rest(now stack.Time, pending int) (until stack.Time) {
	until = now + idle
	if pending > 0 {
		until = now + reapEvery
	} else if len(g.threads) > 0 {
		until = now + 50_000_000 // paused: Resume does not wake
	}
	if g.s.ctl.paused.Load() && g.ctl.held == 0 {
		g.settleAll()
		g.ctl.held = now
	}
	g.tick.every = 0
	return until
}

// resumed records the time for which sampling was paused.
func (g *group) resumed(now stack.Time) {
	for _, th := range g.threads {
		if from := max(g.ctl.held, stack.Time(th.acc.from.Load())); now > from {
			th.sink.Gap(now, stack.WhyStopped, int64(now-from))
		}
		th.seen.blocked = false
		th.clock.since = now
	}
	g.ctl.held = 0
}

func (g *group) every() int64 {
	return int64(float64(g.s.ctl.ivl.Load()) * g.s.factor())
}

// setRate restarts the clock at now.
func (g *group) setRate(now stack.Time) {
	g.settleAll()
	changed := g.tick.every != 0
	g.tick = tick{every: g.every(), jitter: g.s.cfg.Jitter, seed: rand.Uint64()}
	if g.hosted != nil { // guests of one host share their ticks
		g.tick.seed = g.hosted.host.Load().seed
		g.tick.join(now)
	} else { // without jitter, the groups take turns
		g.tick.begin(now, float64(g.index)/float64(len(g.s.groups)))
	}
	g.pass.rested = now
	if changed {
		for _, th := range g.threads {
			th.sink.Event(now, event.Rate, uint64(g.tick.every<<th.sleep.nap.level))
			if g.s.factor() > 1 {
				th.sink.Event(now, event.Mark, uint64(stack.WhyBudget))
			}
		}
	}
}

func (g *group) takeIncoming() {
	g.ctl.mu.Lock()
	in := g.ctl.incoming
	g.ctl.incoming = nil
	g.ctl.mu.Unlock()
	if len(in) == 0 {
		return
	}
	if len(g.threads) == 0 {
		g.tick.every = 0 // sample the first one at once
	}
	now := g.engine.Now()
	g.passNaps(now)
	g.pass.napTo = 0
	g.s.begins(now)
	for _, th := range in {
		th.acc.from.Store(int64(now))
		th.acc.to.Store(int64(now))
		th.sink.Event(now, event.Rate, uint64(g.every()))
		if missed := int64(g.s.hooks.wall().Sub(th.life.added)) / g.every(); missed > 0 {
			th.acc.late.Add(uint64(missed))
			th.sink.Gap(now, stack.WhyLate, missed*g.every())
		}
		g.threads = append(g.threads, th)
	}
}

// dropIncoming closes threads that arrived after the group had ended.
func (g *group) dropIncoming() {
	g.ctl.mu.Lock()
	defer g.ctl.mu.Unlock()
	for _, th := range g.ctl.incoming {
		g.s.doze.drop(th)
		th.file.Close()
	}
	g.ctl.incoming = nil
}

// round looks at every thread of the group once. Threads that were running come first, so that
// many sleeping ones do not delay them.
func (g *group) round(now stack.Time) {
	if n := g.s.ctl.execs.Load(); n != g.image.execs {
		g.image.execs = n
		g.walker = unwind.NewWalker(g.s.target.Space())
		if g.waits.of != nil {
			g.waits.of.Forget(0)
		}
		g.settleAll()
		for _, th := range g.threads {
			th.sink.End(now, stack.WhyExec)
			th.reset()
			th.clock.since = now
		}
	}
	if n := g.s.target.Space().Runtimes(); n != g.image.runtimes {
		g.image.runtimes, g.dozing.on = n, false
		for _, th := range g.threads {
			th.seen.stale = true
		}
	}
	g.ahead.rest = max(g.ahead.rest-1, 0)
	g.extra.again = 0 // all are looked at now
	g.pass.calls.read = false
	g.waits.took, g.pass.vain = 0, 0
	g.pass.leftBefore, g.pass.left = g.pass.left, 0
	g.waits.behind, g.waits.missed = g.waits.missed, 0
	end := max(g.tick.dueOf(g.tick.k+1), g.tick.due+stack.Time(g.tick.every))
	g.pass.first = g.visitAll(true, g.pass.first, end)
	g.ask()
	slept := g.engine.Now()
	byClock := g.dozeOn(slept)
	var was dozed
	known := false
	if g.dozing.whole = !byClock && g.dozesWhole(); g.dozing.whole { // otherwise no thread may doze
		was, known = g.s.doze.read(slept, slept-g.dozeFresh())
	}
	// Sleeping threads take turns: the round continues where the one before ran out of time.
	until := min(end, g.engine.Now()+stack.Time(g.tick.every/sleepShare))
	g.pass.turn = g.visitAll(false, g.pass.turn, until)
	g.ask()
	if !byClock {
		g.dozeAgain(was, known)
	}
	g.dozing.tried(g.threads)
	g.ahead.passed = 0
	kept := g.threads[:0]
	for _, th := range g.threads {
		th.round.done = false
		if th.life.ended {
			g.s.doze.drop(th)
			g.unwind(th)
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
	g.planNaps()
}

// sleepShare is the divisor of a tick that threads asleep at the last look may use. A group that
// spent all its time on them would delay the running ones.
const sleepShare = 2

// visitAll visits the threads that were active at the last look, or those that were not, starting
// at index from. It returns the index of the first thread that it had no time for.
func (g *group) visitAll(active bool, from int, until stack.Time) (next int) {
	n := len(g.threads)
	late := false
	looks := uint64(0)
	defer func() {
		if active {
			g.tally.awakes.Add(looks)
		} else {
			g.tally.asleep.Add(looks)
		}
	}()
	for i := range n {
		at := (from + i) % n
		th := g.threads[at]
		if th.life.active != active || th.round.done || th.life.ended || active && g.sleeps(th) {
			continue
		}
		if !active && g.naps(th) {
			th.round.done = true
			continue
		}
		if g.over() {
			break
		}
		th.round.done, th.pend.looks = true, 0
		looks++
		if !late && g.engine.Now() >= until {
			late, next = true, at
		}
		first := !th.life.started
		g.visit(th, late)
		g.askSoon()
		if first {
			g.exclude()
		}
		g.breathe()
	}
	return next
}

// sleeps reports whether a thread that was never looked at is asleep. Among many new threads, the
// running ones must not wait for all the others.
func (g *group) sleeps(th *thread) bool {
	if th.life.started || th.seen.firstAt != 0 || len(g.threads) <= fewSleep {
		return false
	}
	var call stack.Call
	running, err := th.file.Call(&call)
	th.life.active = err != nil || running
	return !th.life.active
}

// skip counts as missed all ticks that ended before their round could begin.
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

// next advances the clock to the next tick. Ticks that have passed entirely are counted as
// missed; they are never made up for in a burst.
func (g *group) next() {
	now := g.engine.Now()
	k := max(g.tick.at(now), g.tick.k+1)
	missed, due, after := k-g.tick.k-1, g.tick.dueOf(k), g.tick.dueOf(g.tick.k+1)
	for _, th := range g.threads {
		n, ns := missed, int64(due-after)
		if th.round.late { // one gap for all of them: two with the same end would hide each other
			th.round.late = false
			n, ns = n+1, int64(due-g.tick.due)
		}
		if n > 0 {
			g.missFor(th, now, n, ns)
		}
	}
	g.tick.k = k
	g.tick.due = g.tick.dueOf(g.tick.k)
}

// visit handles one thread's tick: it takes a sample or records why there is none, for example
// that the tick is over.
func (g *group) visit(th *thread, late bool) {
	now := g.engine.Now()
	g.sure(th)
	if th.life.dropped.Load() {
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
		// The group's other threads took until this tick ended, or the group itself came late.
		// next counts this tick together with those that passed entirely.
		th.round.late = true
		return
	}
	g.lookNow(th)
}

// lookNow takes a sample of a thread or records why there is none.
func (g *group) lookNow(th *thread) {
	g.cur.spent = th.budget.spent(g.engine.Now(), g.s.cfg.MaxOverhead, g.tick.every)
	err := g.look(th)
	stopped := g.cur.inCalls
	g.cur.spent, g.cur.inCalls = false, false
	if errors.Is(err, errClocked) {
		th.budget.ticked(stopped)
		g.heldBy(th, false)
		th.ahead.steady = 0
		return
	}
	th.budget.ticked(errors.Is(err, errSpent) || err == nil && g.sample.Way == stack.WayStop)
	if err != nil {
		g.failed(th, err)
		return
	}
	if g.sample.Way != stack.WayUnrun {
		th.seen.stale = false
		g.wakes(th)
	}
	g.heldBy(th, th.seen.state == stack.StateTraced)
	th.steadily(&g.sample)
}

// failed records why a thread has no sample for this tick.
func (g *group) failed(th *thread, err error) {
	th.ahead.steady = 0
	switch {
	case errors.Is(err, ErrGone):
		g.lastCopies(th)
		g.endThread(th, stack.WhyGone)
		return
	}
	g.wakes(th)
	switch {
	case errors.Is(err, errSpent):
		g.stretch(th, g.engine.Now())
		return
	case errors.Is(err, ErrUnsure):
		if now := g.engine.Now(); !g.unsure(th, now) {
			g.miss(th, now, 1)
		}
		return
	case errors.Is(err, ErrLater) && g.can.Late:
		g.leftAlone(th, g.engine.Now())
		return
	case errors.Is(err, ErrTimeout):
		th.acc.timedOut.Add(1)
		th.gap(g.engine.Now(), stack.WhyTimeout, g.tick.every)
	case errors.Is(err, ErrTraced):
		th.acc.denied.Add(1)
		if g.s.cfg.Yield {
			g.s.ctl.yielded.Store(true)
		}
		g.heldBy(th, true)
		th.gap(g.engine.Now(), stack.WhyTraced, g.tick.every)
	default:
		th.acc.denied.Add(1)
		th.gap(g.engine.Now(), stack.WhyDenied, g.tick.every)
	}
	th.seen.blocked = false // the known state is outdated
}

// heldBy marks the moment at which another tracer is first seen to hold a thread.
func (g *group) heldBy(th *thread, other bool) {
	if other && !th.life.traced {
		th.sink.Event(g.engine.Now(), event.Mark, uint64(stack.WhyTraced))
	}
	th.life.traced = other
}

func (g *group) endThread(th *thread, why stack.Why) {
	if why == stack.WhyGone {
		g.lastWords(th)
	}
	now := g.engine.Now()
	th.sink.End(now, why)
	th.acc.to.Store(int64(now))
	th.life.ended = true
	if g.waits.of != nil {
		g.waits.of.Forget(th.info.TID)
	}
}

// end releases everything; free reports that it could.
func (g *group) end() (free bool) {
	// A thread that has not stopped yet cannot be released. Wait briefly, also for its sample,
	// then leave it to the kernel, which releases it when this OS thread ends.
	for limit := g.engine.Now() + lingers; g.engine.Reap() > 0 && g.engine.Now() < limit; {
		g.arrivals()
		g.engine.SleepUntil(g.engine.Now() + reapEvery)
	}
	g.finish()
	free = g.engine.Reap() == 0
	g.engine.Close()
	return free
}

// finish ends everything except the Engine.
func (g *group) finish() {
	for now := int64(g.engine.Now()); ; {
		if last := g.s.run.ended.Load(); now <= last || g.s.run.ended.CompareAndSwap(last, now) {
			break
		}
	}
	g.arrivals()
	g.settleAll()
	g.lastLooks()
	for _, th := range g.threads {
		g.lastWords(th) // the target may have ended
		th.sink.Flush()
	}
	g.ctl.ready.Store(false)
	g.s.run.working.Add(-1)
	if g.waits.of != nil {
		g.waits.of.Close()
	}
	g.takeIncoming()
	for _, th := range g.threads {
		g.s.doze.drop(th)
		g.unwind(th)
		th.file.Close()
		g.grow(-1)
	}
}

// grow changes the number of the group's threads by n.
func (g *group) grow(n int32) {
	g.tally.size.Add(n)
	if g.hosted != nil {
		g.hosted.host.Load().size.Add(n)
	}
}

// load returns the number of threads that g's OS thread samples.
func (g *group) load() int32 {
	if g.hosted != nil {
		return g.hosted.host.Load().size.Load()
	}
	return g.tally.size.Load()
}
