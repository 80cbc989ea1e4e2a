package sampler

import (
	"math"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Most of the cost of a sample is waking this program. While the threads of a group keep doing
// the same (running ones run, sleeping ones sleep), an Engine can run several ticks on its own,
// and the group then processes several samples at once. Anything unexpected ends such a run; the
// rest of that tick is sampled in the ordinary way.

// Ahead is a plan for several ticks, and its result.
type Ahead struct {
	Due   []stack.Time // when each tick is due, in ascending order
	End   []stack.Time // when each of these ticks ends
	Items []Foreseen   // the threads to look at, in this order
	// ByClock reads the CPU time of the whole process instead of visiting Items. While it does
	// not change, no thread has run, except one that started to run less than blindFor ago.
	ByClock bool
	Fresh   int64 // ns for which another group's reading of that clock is recent enough
	Pause   int64 // ns that all stops together may take
	Long    int64 // ns; a stop that takes longer ends the run
	Slept   int64 // ns that a thread to be stopped may have slept since its last look; 0: no limit

	// The result.
	At    []stack.Time // when each tick started
	Ticks int          // completed
	Done  int          // completed items of the next tick
	Stops int          // number of stops made
	// Asleep: the next item should have been stopped, but was blocked.
	Asleep bool
	Left   bool       // it was on a CPU right before
	Stood  stack.Time // last time at which the process's clock had not advanced
	Err    error      // of the item after the completed ones; nil: not tried
}

// Foreseen is a thread of an Ahead and its expected state.
type Foreseen struct {
	Thread   Thread
	Runs     bool       // expected to run: stop it
	Counters Counters   // of a sleeping thread, or, for Slept, at the last look
	At       stack.Time // time of Counters

	// What to copy of a running thread: see View.
	Spans               []stack.Span
	StackLow, StackHigh uint64
	StackDefault        int
	Deadline            int64
}

const (
	steadyFor  = 2           // alike samples in a row before the next ones are planned ahead
	aheadTicks = 128         // per run, at most
	aheadStops = 8           // stops per run, at most
	aheadSpan  = 50_000_000  // ns; maximum age of samples with stops when they are processed
	sleepSpan  = 250_000_000 // ns; the same if all threads sleep
	// fewSleep is the number of sleeping threads that are checked one by one. Each check costs
	// some µs, so with more of them the process's clock is read instead.
	fewSleep = 16
	// blindFor, in ns, is how long a thread may run before the process's clock shows it: a
	// scheduler tick of at most 10 ms, plus a margin.
	blindFor = 11_000_000
	// leastBudget is the least time, in ns, that stops must be allowed to take.
	leastBudget = 200_000
	// mostRest limits for how many rounds nothing is planned after runs that ended at once. The
	// pause is one round after the first such run and doubles each time.
	mostRest = 16
	// noClocks is ahead.clocked if no thread is left out.
	noClocks = math.MaxInt64
)

// ahead is a group's state for running ticks ahead.
type ahead struct {
	plan  Ahead
	order []*thread // of the items
	rest  int       // rounds for which nothing is planned
	// clocked is for how many ticks threads may be left out of the plan, since their clocks take their
	// samples. passed is for how many ticks they were, since the last round.
	clocked, passed int64
	ticks           int64 // of the plan
	failed          int   // length of that pause after the last failure; 0: the last run succeeded
	// blind are the ticks in which only the process's clock was read. They count for a thread
	// once it is known not to have run since: see confirm.
	blind []stack.Time
	stood stack.Time // last time at which that clock had not advanced
}

// threadAhead is what decides whether a thread is planned ahead, and how.
type threadAhead struct {
	steady int // samples in a row that were taken like the one before
	way    stack.Way
	mayRun bool // if it runs, the Engine stops it
}

// steadily counts how many samples of the thread in a row were taken in the same way.
func (th *thread) steadily(s *stack.Sample) {
	if s.Way == th.ahead.way && s.Reason == stack.ReasonNone && th.seen.state != stack.StateStopped &&
		(s.Way == stack.WayStop && !th.late.slow || s.Way == stack.WayUnrun) {
		th.ahead.steady++
	} else {
		th.ahead.steady = 0
	}
	th.ahead.way = s.Way
}

// foresee plans the coming ticks and reports whether it could.
func (g *group) foresee(now stack.Time) bool {
	if !g.mayForesee() {
		return false
	}
	runs, ok := g.foreseeThreads(now)
	if !ok || g.waits.busy() {
		return false
	}
	f := &g.ahead
	a := &f.plan
	a.ByClock, a.Fresh = len(g.threads)-runs > fewSleep, int64(g.dozeFresh())
	if (runs > 0 || f.clocked < noClocks || g.s.doze.taking.Load()) && a.ByClock || a.Pause < leastBudget {
		return false
	}
	n := g.ticksAhead(runs)
	if n < 1 || runs == 0 && n < 2 {
		return false
	}
	a.Long, a.Slept = longStop, 0
	if g.s.cfg.Delays != nil { // see mayLeave
		a.Slept = longCall
	}
	return g.foreseeItems() && g.foreseeTicks(n)
}

// mayForesee reports whether the Engine can run ticks ahead, and nothing waits for the group.
func (g *group) mayForesee() bool {
	return g.can.Ahead && g.ahead.rest <= 0 && !g.s.cfg.Yield &&
		g.s.target.Space().Runtimes() == g.image.runtimes && g.s.ctl.execs.Load() == g.image.execs
}

// foreseeThreads decides for each thread whether the Engine stops it or expects it asleep, and
// bounds the time of the stops. It returns how many are stopped; ok is false if a thread needs
// an ordinary round.
func (g *group) foreseeThreads(now stack.Time) (runs int, ok bool) {
	f := &g.ahead
	f.clocked = noClocks
	f.plan.Pause = math.MaxInt64
	for _, th := range g.threads {
		if th.life.traced || th.pend.is != settled || th.life.dropped.Load() {
			return 0, false // of naps it is not known whether they lasted until now
		}
		if th.clock.on && th.life.active {
			n := th.leaveOut()
			if n < 2 {
				return 0, false // a round takes its copies, or finds it asleep
			}
			th.ahead.mayRun, f.clocked = false, min(f.clocked, n)
			continue
		}
		steady := th.ahead.steady >= steadyFor || th.sleep.doze.on && th.seen.blocked
		th.ahead.mayRun = steady && th.life.active || !th.clock.on && g.atOnce(th)
		if !th.ahead.mayRun {
			if !steady {
				return 0, false
			}
			continue
		}
		if th.leave.early.samples > 0 || !g.affords(th, now) { // an Ahead has no early counters (eve.go)
			return 0, false
		}
		runs++
	}
	return runs, true
}

// affords reports whether th may be stopped at each tick, and limits the plan to what its budget
// allows.
func (g *group) affords(th *thread, now stack.Time) bool {
	limit := g.s.cfg.MaxOverhead
	if limit <= 0 {
		return true
	}
	th.budget.refill(now, limit)
	if th.budget.thinning(limit, g.tick.every) > 1 {
		return false
	}
	g.ahead.plan.Pause = min(g.ahead.plan.Pause, int64(th.budget.left))
	return true
}

// ticksAhead returns how many ticks may be planned with stops of that many threads.
func (g *group) ticksAhead(runs int) int64 {
	n := sleepSpan / g.tick.every
	if g.ahead.plan.ByClock { // all threads are looked at afterwards
		n = g.dozeSpan() / g.tick.every
	}
	if runs > 0 {
		n = min(max(aheadSpan/g.tick.every, 1), int64(aheadStops/runs))
	}
	if clocked := g.ahead.clocked; clocked < noClocks {
		n = min(n, aheadSpan/g.tick.every, clocked)
	}
	return min(n, aheadTicks)
}

// foreseeTicks plans the times of the next n ticks, or of fewer if sampling ends before. It
// reports whether there are any. In ticks without items the Engine only watches the list of threads, so
// it leaves out all but some that are as far apart as the follower's checks, and the last one.
func (g *group) foreseeTicks(n int64) bool {
	a, t := &g.ahead.plan, &g.tick
	due := func(i int64) stack.Time {
		if i == 0 {
			return t.due
		}
		return t.dueOf(t.k + i)
	}
	for end := stack.Time(g.s.run.end.Load()); end > 0 && n > 0 && due(n-1) >= end; {
		n--
	}
	each := int64(1)
	if a.watches() {
		each = max(1, int64(g.s.followEvery())/t.every)
	}
	a.Due, a.End = a.Due[:0], a.End[:0]
	for i := max(n-1, 0) % each; i < n; i += each {
		a.Due = append(a.Due, due(i))
		a.End = append(a.End, due(i+1))
	}
	g.ahead.ticks = n
	return n > 0
}

// foreseeItems plans the visits to the threads, first to those that may run. There are none if
// the process's clock is read.
func (g *group) foreseeItems() bool {
	f := &g.ahead
	a := &f.plan
	f.order, a.Items = f.order[:0], a.Items[:0]
	if a.ByClock {
		return true
	}
	for _, runs := range []bool{true, false} {
		for _, th := range g.threads {
			if th.ahead.mayRun == runs && !(th.clock.on && th.life.active) && !g.expect(th) {
				return false
			}
		}
	}
	return true
}

// atOnce reports whether the Engine decides at the next tick whether th runs: th uses CPUs and did
// not sleep through the last tick. The later that decision, the more the start of each burst of work
// is missed. Threads that may be leaving a call with a timeout are excluded (mayLeave).
func (g *group) atOnce(th *thread) bool {
	return th.life.started && !th.seen.stale && th.ahead.way != stack.WayUnrun && th.usage.share >= busyShare && th.late.stops == 0 &&
		!(th.seen.blocked && g.s.cfg.Delays != nil && th.file.TimesOut(&th.seen.call))
}

// expect adds th to the plan. ok is false if th runs, and the end of its stack is unknown or a stop has to read
// more than its stack.
func (g *group) expect(th *thread) (ok bool) {
	a := &g.ahead.plan
	g.ahead.order = append(g.ahead.order, th)
	var it Foreseen
	if len(a.Items) < cap(a.Items) {
		it = a.Items[:len(a.Items)+1][len(a.Items)] // reuses its memory
	}
	it.Thread, it.Runs, it.Counters, it.At, it.Spans = th.file, th.ahead.mayRun, th.seen.counters, stack.Time(th.acc.to.Load()), it.Spans[:0]
	if th.ahead.mayRun {
		v := &g.view
		if g.plan(th); v.StackHigh == 0 || v.Ask {
			return false
		}
		it.Spans = append(it.Spans, v.Spans...)
		it.StackLow, it.StackHigh, it.StackDefault, it.Deadline = v.StackLow, v.StackHigh, v.StackDefault, g.patience()
	}
	a.Items = append(a.Items, it)
	return true
}

// goAhead lets the Engine run the planned ticks and processes the results. A tick that was
// started and not completed is finished in the ordinary way. ok is false if no tick was started.
func (g *group) goAhead() (ok bool) {
	f := &g.ahead
	a := &f.plan
	g.s.list.away.Add(1)
	ok = g.engine.GoAhead(a)
	g.s.list.away.Add(-1)
	now := g.engine.Now()
	if ok && a.watches() {
		g.passClocked(now)
		return true
	}
	if !ok || a.Ticks == 0 && a.Done == 0 && a.Err == nil && !a.Asleep && now >= g.tick.due {
		f.failed = min(max(2*f.failed, 1), mostRest)
		f.rest = f.failed
		return false
	}
	if a.Ticks > 0 {
		f.failed = 0
	}
	if f.clocked < noClocks {
		f.rest = 1 // the next round takes the copies
		f.passed += int64(a.Ticks)
	}
	if a.ByClock {
		f.blind, f.stood = append(f.blind[:0], a.At[:a.Ticks]...), a.Stood
		g.dozing.on = false
		for _, th := range g.threads {
			if a.Ticks > 0 {
				th.pend.to(byClock)
			}
		}
	} else {
		g.takeAhead(a)
	}
	g.tick.k += int64(a.Ticks)
	if a.Ticks < len(a.Due) {
		g.tick.due = a.Due[a.Ticks]
	} else {
		g.tick.due = g.tick.dueOf(g.tick.k)
	}
	if a.Asleep {
		th := g.ahead.order[a.Done]
		th.round.asleep, th.round.left = true, a.Left
	}
	if a.Done > 0 || a.Err != nil || a.Asleep {
		g.round(now)
	}
	return true
}

// watches reports whether a run looks at no thread: the Engine only watches the list of threads.
func (a *Ahead) watches() bool { return len(a.Items) == 0 && !a.ByClock }

// passClocked leaves out the ticks of a run in which only clocks took samples, except the last one, whose
// round takes the copies.
func (g *group) passClocked(now stack.Time) {
	f := &g.ahead
	f.rest = 1
	if n := min(g.tick.at(now)-g.tick.k, f.ticks-1); n > 0 {
		f.passed += n
		g.tick.k += n
		g.tick.due = g.tick.dueOf(g.tick.k)
	}
}

// takeAhead processes the results of a run.
func (g *group) takeAhead(a *Ahead) {
	replaced := a.Stops > 0 && (g.s.replaced() || g.s.ctl.execs.Load() != g.image.execs)
	stop := 0
	for tick, at := range a.At {
		n := len(a.Items)
		if tick == a.Ticks {
			n = a.Done
		}
		for i, th := range g.ahead.order[:n] {
			if tick == a.Ticks {
				th.round.done = true
			}
			if !a.Items[i].Runs {
				g.unrunAt(th, at)
				th.budget.ticked(false)
				continue
			}
			th.budget.ticked(true)
			if stop >= a.Stops || replaced {
				// At the time of an exec it is unknown which program the stop belongs to.
				g.miss(th, at, 1)
			} else {
				g.engine.Taken(stop, &g.view)
				g.takeStop(th, stop == a.Stops-1)
			}
			stop++
		}
	}
	if a.Err != nil {
		th := g.ahead.order[a.Done]
		th.round.done = true
		g.failed(th, a.Err)
	}
}

// takeStop records the sample of a planned stop. now: it was the last one, so another copy still
// shows the thread as of this tick.
func (g *group) takeStop(th *thread, now bool) {
	th.usage.add(&g.view.Counters, g.view.Asked)
	c := g.walkTaken(th, g.view.Stopped)
	for try := 1; th.again(g.sample.Reason, try); try++ {
		th.ahead.steady = 0
		if !now || g.stopOnce(th, &c, true) != nil {
			break
		}
		g.walkStop(th, &c, nil, try+1)
	}
	g.stopped(th, c)
	g.wind(th, &c, g.view.Asked)
}

// walkTaken walks a stop that stopOnce did not make, and charges it the same way.
func (g *group) walkTaken(th *thread, stopped stack.Time) (c Counters) {
	v := &g.view
	g.cur.thread = th
	if limit := g.s.cfg.MaxOverhead; limit > 0 {
		th.budget.refill(v.Asked, limit)
	}
	c = v.Counters
	g.charge(th, &c, stopped)
	g.walkStop(th, &c, nil, 1)
	return c
}

// unrunAt records the sample of a thread that still slept at a past time.
func (g *group) unrunAt(th *thread, at stack.Time) {
	g.unrunSample(th, th.seen.counters, at)
	g.write(th)
}

// unrunMany records the samples of n ticks of a thread that kept sleeping, the last of them at
// at.
func (g *group) unrunMany(th *thread, at stack.Time, n int) {
	for n > 0 {
		some := min(n, event.MaxSeen)
		g.unrunSample(th, th.seen.counters, at)
		g.sample.Again = some - 1
		g.write(th)
		n -= some
	}
}

// confirm records the samples of the ticks in which only the process's clock was read. same: the
// thread is known to have slept until now. Otherwise the ticks within blindFor before the clock
// advanced are uncertain and count as missed.
func (g *group) confirm(th *thread, same bool) {
	if th.pend.is != blind {
		return
	}
	th.pend.to(resolved)
	if n := len(g.ahead.blind); same && n > 0 && len(th.gaps.behind) == 0 {
		g.unrunMany(th, g.ahead.blind[n-1], n)
		return
	}
	for _, at := range g.ahead.blind {
		g.catchUpTo(th, at)
		if same || g.ahead.stood-at >= blindFor {
			g.unrunAt(th, at)
		} else {
			g.miss(th, at, 1)
		}
	}
	g.catchUp(th)
}

// catchUp records the missed ticks that were held back while earlier ones were unconfirmed or
// pending.
func (g *group) catchUp(th *thread) {
	g.catchUpTo(th, math.MaxInt64)
}

// catchUpTo records those up to at. The order matters: a reader must find the gap where the
// samples are missing.
func (g *group) catchUpTo(th *thread, at stack.Time) {
	n := 0
	for n < len(th.gaps.behind) && th.gaps.behind[n].at <= at {
		g.leftOut(th, th.gaps.behind[n])
		n++
	}
	th.gaps.behind = slices.Delete(th.gaps.behind, 0, n)
}

// settleAll resolves everything pending; it is called if no look at the threads follows.
func (g *group) settleAll() {
	g.passNaps(g.engine.Now())
	g.pass.napTo = 0
	g.dozing.on = false
	g.extra.again = 0
	for _, th := range g.threads {
		g.giveUp(th)
		g.sure(th)
		g.letIn(th, g.engine.Now())
		if th.pend.is == blind || th.pend.is == napping {
			var c Counters
			same := th.file.Counters(&c) == nil && th.unrun(&c)
			g.awake(th, same)
			g.confirm(th, same)
		}
		g.lastCopies(th)
	}
}

// missed is a number of ticks that were left out, the last of them at at.
type missed struct {
	at stack.Time
	n  int64
	ns int64 // from the due time of the first of them to that of the next tick
}

// gaps are a thread's ticks that were left out.
type gaps struct {
	behind []missed   // not recorded yet, in order: earlier ticks are unconfirmed or pending
	last   stack.Time // of the last recorded gap
	held   int64      // ticks left out because the sink is full, not recorded yet
}

// miss records n missed ticks, the last of them at at. If earlier ticks of the thread are
// unconfirmed or pending, they are recorded after those.
func (g *group) miss(th *thread, at stack.Time, n int64) {
	g.missFor(th, at, n, n*g.tick.every)
}

// missFor is miss with a known duration of these ticks.
func (g *group) missFor(th *thread, at stack.Time, n, ns int64) {
	if th.pend.is != blind && th.pend.is != awaited {
		g.leftOut(th, missed{at, n, ns})
		return
	}
	// Consecutive ones make one gap.
	if last := len(th.gaps.behind) - 1; last >= 0 && th.pend.is == awaited && th.pend.ticks[len(th.pend.ticks)-1] <= th.gaps.behind[last].at {
		th.gaps.behind[last] = missed{at, th.gaps.behind[last].n + n, th.gaps.behind[last].ns + ns}
		return
	}
	th.gaps.behind = append(th.gaps.behind, missed{at, n, ns})
}

func (g *group) leftOut(th *thread, m missed) {
	th.acc.late.Add(uint64(m.n))
	th.gap(m.at, stack.WhyLate, m.ns)
}

// gap writes that samples are missing before t.
func (th *thread) gap(t stack.Time, why stack.Why, ns int64) {
	th.gaps.last = t
	th.sink.Gap(t, why, ns)
}

// replaced reports whether the target may be another program than the one whose maps are known.
// If so, it requests a check.
func (s *Sampler) replaced() bool {
	im, err := s.target.Image()
	s.roll.mu.Lock()
	same := err == nil && im == s.roll.image
	s.roll.mu.Unlock()
	if !same {
		s.look()
	}
	return !same
}
