package sampler

import (
	"math"
	"slices"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// Most of what a sample costs is that this program wakes up for it. While the
// threads of a group go on doing what they did, those that ran run and those that
// slept sleep, a Tracer can go through ticks by itself, and the group looks at
// several samples at once. What comes otherwise ends that, and is looked at in the
// ordinary way, in the same tick.

// AheadTracer is what a Tracer may be besides.
type AheadTracer interface {
	// GoAhead goes through the ticks of a, and reports whether that could be begun.
	// A Wake ends it.
	GoAhead(a *Ahead) bool
	// Taken has the view show stop n of those that came of it.
	Taken(n int, v *View)
}

// Ahead is some ticks that are to be as foreseen.
type Ahead struct {
	Due   []stack.Time // when to look, rising
	End   []stack.Time // when each of these ticks is over
	Items []Foreseen   // what to look at, in this order
	// ByClock has the CPU time of the whole process looked at in place of Items: as
	// long as it stays none of its threads has run, but for one that began to less
	// than blindFor ago.
	ByClock bool
	Fresh   int64 // ns for which another group's look at that clock will do
	Pause   int64 // ns that all stops together may take
	Long    int64 // a stop that takes longer, in ns, is the last one
	Slept   int64 // ns that one that is to be stopped may have slept since it was looked at last; 0: any

	// What came of it.
	At    []stack.Time // when each tick was begun
	Ticks int          // that are done
	Done  int          // items of the next one that are done
	Stops int          // that were taken
	// Asleep: the next item should have been stopped, but was blocked.
	Asleep bool
	Left   bool       // a moment before, it was on a CPU
	Stood  stack.Time // when the process's clock was last seen not to have moved
	Err    error      // of the item after those; nil: it was not tried
}

// Foreseen is a thread of an Ahead.
type Foreseen struct {
	Thread   Thread
	Runs     bool       // it is to be stopped
	Counters Counters   // of one that sleeps, or, for Slept, at the last look
	At       stack.Time // when that was

	// What to copy of one that runs: see View.
	Spans               []stack.Span
	StackLow, StackHigh uint64
	StackDefault        int
	Deadline            int64
}

const (
	steadyFor  = 2           // samples alike, after which the next ones are foreseen
	aheadTicks = 128         // at most
	aheadStops = 8           // of them all
	aheadSpan  = 50_000_000  // ns that samples with stops may be old when they are looked at
	sleepSpan  = 250_000_000 // ns of those of threads that all sleep
	// fewSleep is how many threads that sleep are looked at one by one: as each costs
	// some µs, of more of them the process's clock is asked.
	fewSleep = 16
	// blindFor is how long, in ns, a thread may run before the process's clock tells:
	// a scheduler's tick, at most 10 ms, and then some.
	blindFor = 11_000_000
	// leastPurse is what stops must be able to take at least, in ns.
	leastPurse = 200_000
	// mostRest is for how many rounds nothing is foreseen after something else came at
	// once, again and again: one after the first time, then twice as many each time.
	mostRest = 16
)

// ahead is what a group needs for that.
type ahead struct {
	tracer AheadTracer // nil: there is none
	plan   Ahead
	order  []*thread // of the items
	rest   int       // rounds for which nothing is foreseen
	failed int       // for how many that was after the last failure; 0: it went well
	// blind are the ticks in which only the process's clock was looked at. They count
	// for a thread when it is seen not to have run since: see confirm.
	blind []stack.Time
	stood stack.Time // when that was last seen to stand
}

// steadily notes how often in a row the thread's samples were had alike.
func (th *thread) steadily(s *stack.Sample) {
	if s.Way == th.way && s.Reason == stack.ReasonNone && th.state != stack.StateStopped &&
		(s.Way == stack.WayStop && !th.slow || s.Way == stack.WayUnrun) {
		th.steady++
	} else {
		th.steady = 0
	}
	th.way = s.Way
}

// foresee plans the ticks to come, and reports whether they can be foreseen.
func (g *group) foresee(now stack.Time) bool {
	f := &g.ahead
	if f.tracer == nil || f.rest > 0 || g.s.target.Space().Runtimes() != g.runtimes || g.s.cfg.Yield || g.s.execs.Load() != g.execs || g.waits != nil && g.waits.Busy() {
		return false
	}
	a := &f.plan
	runs, naps := 0, false
	a.Pause = math.MaxInt64
	for _, th := range g.threads {
		if th.traced || th.blind || len(th.coming) > 0 || th.dropped.Load() {
			return false
		}
		naps = naps || th.nap.skips > 0
		steady := th.steady >= steadyFor
		th.mayRun = steady && th.active || g.atOnce(th)
		if !th.mayRun && !steady || th.mayRun && th.wary > 0 { // the stopper knows nothing of eve.go
			return false
		}
		if !th.mayRun {
			continue
		}
		runs++
		if limit := g.s.cfg.MaxOverhead; limit > 0 {
			th.broke(now, limit)
			a.Pause = min(a.Pause, int64(th.purse))
		}
	}
	a.ByClock, a.Fresh = len(g.threads)-runs > fewSleep, g.tick.every*2/3
	if naps {
		return false // it is not known that they have slept until now
	}
	n := sleepSpan / g.tick.every
	if runs > 0 {
		n = min(max(aheadSpan/g.tick.every, 1), int64(aheadStops/runs))
	}
	if n = min(n, aheadTicks); n < 1 || runs == 0 && n < 2 || a.Pause < leastPurse || runs > 0 && a.ByClock {
		return false
	}
	a.Long, a.Slept = longStop, 0
	if g.s.cfg.Delays != nil { // see mayLeave
		a.Slept = longCall
	}
	a.Due, a.End = a.Due[:0], a.End[:0]
	end := g.s.end.Load()
	for i := range n {
		due := g.tick.due
		if i > 0 {
			due = g.tick.dueOf(g.tick.k + i)
		}
		if end > 0 && int64(due) >= end {
			if i == 0 {
				return false
			}
			break
		}
		a.Due = append(a.Due, due)
		a.End = append(a.End, g.tick.dueOf(g.tick.k+i+1))
	}
	f.order, a.Items = f.order[:0], a.Items[:0]
	if a.ByClock {
		return true
	}
	for _, runs := range []bool{true, false} {
		for _, th := range g.threads {
			if th.mayRun == runs && !g.expect(th) {
				return false
			}
		}
	}
	return true
}

// atOnce reports whether the stopper decides at the next tick whether th runs: th uses CPUs and did
// not sleep through the last tick. The later that decision, the more the start of each burst of work
// is missed. Threads that may be leaving a call with a timeout are excluded (mayLeave).
func (g *group) atOnce(th *thread) bool {
	return th.started && !th.stale && th.way != stack.WayUnrun && th.busy >= busyShare && th.lates == 0 &&
		!(th.blocked && g.s.cfg.Delays != nil && th.file.TimesOut(&th.call))
}

// expect adds what is foreseen of a thread. Not ok: where the stack of one that runs
// ends is not known.
func (g *group) expect(th *thread) (ok bool) {
	a := &g.ahead.plan
	g.ahead.order = append(g.ahead.order, th)
	var it Foreseen
	if len(a.Items) < cap(a.Items) {
		it = a.Items[:len(a.Items)+1][len(a.Items)] // its memory
	}
	it.Thread, it.Runs, it.Counters, it.At, it.Spans = th.file, th.mayRun, th.counters, stack.Time(th.acc.to.Load()), it.Spans[:0]
	if th.mayRun {
		v := &g.view
		if g.plan(th); v.StackHigh == 0 {
			return false
		}
		it.Spans = append(it.Spans, v.Spans...)
		it.StackLow, it.StackHigh, it.StackDefault, it.Deadline = v.StackLow, v.StackHigh, v.StackDefault, g.patience()
	}
	a.Items = append(a.Items, it)
	return true
}

// goAhead has the ticks that were planned, and takes what came of them. The rest of
// a tick that was begun is had in the ordinary way. Not ok: none was begun.
func (g *group) goAhead() (ok bool) {
	f := &g.ahead
	a := &f.plan
	g.s.away.Add(1)
	ok = f.tracer.GoAhead(a)
	g.s.away.Add(-1)
	now := g.tracer.Now()
	if !ok || a.Ticks == 0 && a.Done == 0 && a.Err == nil && !a.Asleep && now >= g.tick.due {
		f.failed = min(max(2*f.failed, 1), mostRest)
		f.rest = f.failed
		return false
	}
	if a.Ticks > 0 {
		f.failed = 0
	}
	if a.ByClock {
		f.blind, f.stood = append(f.blind[:0], a.At[:a.Ticks]...), a.Stood
		g.dozing.on = false
		for _, th := range g.threads {
			th.blind = a.Ticks > 0
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
		th.asleep, th.left = true, a.Left
	}
	if a.Done > 0 || a.Err != nil || a.Asleep {
		g.round(now)
	}
	return true
}

// takeAhead looks at what came of the ticks.
func (g *group) takeAhead(a *Ahead) {
	replaced := a.Stops > 0 && (g.s.replaced() || g.s.execs.Load() != g.execs)
	stop := 0
	for tick, at := range a.At {
		n := len(a.Items)
		if tick == a.Ticks {
			n = a.Done
		}
		for i, th := range g.ahead.order[:n] {
			if tick == a.Ticks {
				th.done = true
			}
			if !a.Items[i].Runs {
				g.unrunAt(th, at)
				continue
			}
			if stop >= a.Stops || replaced {
				// Of which program a stop was that came about the time of an exec is not known.
				g.miss(th, at, 1)
			} else {
				g.ahead.tracer.Taken(stop, &g.view)
				g.takeStop(th, stop == a.Stops-1)
			}
			stop++
		}
	}
	if a.Err != nil {
		th := g.ahead.order[a.Done]
		th.done = true
		g.failed(th, a.Err)
	}
}

// takeStop has the sample of a thread that was stopped as foreseen. now: that was the
// last one, so that another copy shows the thread as it is at this tick.
func (g *group) takeStop(th *thread, now bool) {
	th.uses(&g.view.Counters, g.view.Asked)
	c := g.walkTaken(th, g.view.Stopped)
	for try := 1; th.again(g.sample.Reason, try); try++ {
		th.steady = 0
		if !now || g.stopOnce(th, &c, true) != nil {
			break
		}
		g.walkStop(th, &c, nil, try+1)
	}
	g.stopped(th, c)
}

// walkTaken walks a stop that came otherwise than by stopOnce, and is charged as that is.
func (g *group) walkTaken(th *thread, stopped stack.Time) (c Counters) {
	v := &g.view
	g.now = th
	th.broke(v.Asked, g.s.cfg.MaxOverhead)
	c = v.Counters
	g.charge(th, &c, stopped)
	g.walkStop(th, &c, nil, 1)
	return c
}

// unrunAt has the sample of a thread that slept on at a time that is over.
func (g *group) unrunAt(th *thread, at stack.Time) {
	g.unrunSample(th, th.counters, at)
	g.write(th)
}

// unrunMany records the samples of n ticks of a thread that slept on, the last of them at a time.
func (g *group) unrunMany(th *thread, at stack.Time, n int) {
	for n > 0 {
		some := min(n, event.MaxSeen)
		g.unrunSample(th, th.counters, at)
		g.sample.Again = some - 1
		g.write(th)
		n -= some
	}
}

// confirm has the samples of the ticks in which only the process's clock was looked
// at, now that the thread is known to have slept until now (same) or not: then those
// of the last blindFor before that clock moved are not known to be true, and are left out.
func (g *group) confirm(th *thread, same bool) {
	if !th.blind {
		return
	}
	th.blind = false
	if n := len(g.ahead.blind); same && n > 0 && len(th.behind) == 0 {
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

// catchUp notes the ticks that were left out since others were to be confirmed, or to
// come.
func (g *group) catchUp(th *thread) {
	g.catchUpTo(th, math.MaxInt64)
}

// catchUpTo notes those of them that were over at a time. What comes after is of a later one:
// a reader is to find the gap where the samples are missing.
func (g *group) catchUpTo(th *thread, at stack.Time) {
	n := 0
	for n < len(th.behind) && th.behind[n].at <= at {
		g.leftOut(th, th.behind[n])
		n++
	}
	th.behind = slices.Delete(th.behind, 0, n)
}

// settleAll is for where no look at the threads comes after it.
func (g *group) settleAll() {
	g.dozing.on = false
	g.again = 0
	for _, th := range g.threads {
		g.giveUp(th)
		g.sure(th)
		g.letIn(th, g.tracer.Now())
		if th.blind || th.nap.skips > 0 {
			var c Counters
			same := th.file.Counters(&c) == nil && th.unrun(&c)
			g.awake(th, same)
			g.confirm(th, same)
		}
	}
}

// missed are ticks that were left out, the last of them at a time.
type missed struct {
	at stack.Time
	n  int64
	ns int64 // from when the first of them was due until it was the turn of the next one
}

// miss has n ticks left out, the last of them at a time. If earlier ones of the thread
// are to be confirmed, or to come, these are noted when that is done.
func (g *group) miss(th *thread, at stack.Time, n int64) {
	g.missFor(th, at, n, n*g.tick.every)
}

// missFor is miss where the time of these ticks is known.
func (g *group) missFor(th *thread, at stack.Time, n, ns int64) {
	if !th.blind && len(th.coming) == 0 {
		g.leftOut(th, missed{at, n, ns})
		return
	}
	// Of those that follow each other there is one gap.
	if last := len(th.behind) - 1; last >= 0 && !th.blind && th.coming[len(th.coming)-1] <= th.behind[last].at {
		th.behind[last] = missed{at, th.behind[last].n + n, th.behind[last].ns + ns}
		return
	}
	th.behind = append(th.behind, missed{at, n, ns})
}

func (g *group) leftOut(th *thread, m missed) {
	th.acc.late.Add(uint64(m.n))
	th.gap(m.at, stack.WhyLate, m.ns)
}

// gap writes that samples are missing before t.
func (th *thread) gap(t stack.Time, why stack.Why, ns int64) {
	th.told = t
	th.sink.Gap(t, why, ns)
}

// replaced reports whether the target may be another program than the one whose
// maps are known, and if so has that looked at soon.
func (s *Sampler) replaced() bool {
	im, err := s.target.Image()
	s.mu.Lock()
	same := err == nil && im == s.image
	s.mu.Unlock()
	if !same {
		s.look()
	}
	return !same
}
