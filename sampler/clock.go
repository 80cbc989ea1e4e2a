package sampler

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// A thread that uses a CPU for a while gets a clock of the kernel (Thread.StartClock), which copies its
// registers and stack each time that it has run for an interval. Its samples on a CPU then come
// from there, in proportion to its CPU time, and ticks that find it running need no stop. Ticks
// that find it blocked are sampled as those of other threads; those that find it waiting for a CPU
// show the place of its last copy. So each state has samples in proportion to its time.
//
// A stop takes effect at the end of a system call or some µs after the request: it never meets the
// first µs of a burst of work. A copy has no such delay.

const (
	// clockBusy is the least share of CPU time, over a second or so, for which a thread gets a clock; below
	// clockIdle it loses it. For the clock of all CPUs, which interrupts other threads too, both are machineBusy times
	// as much.
	clockBusy, clockIdle, machineBusy = 1.0 / 64, 1.0 / 256, 2
	// A clock has up to clockDense copies an interval of CPU time, so that a thread that runs little has enough samples on
	// a CPU: see clockEvery. These take at most clockPart of the overhead bound, and the ticks of a clock of all CPUs
	// tickPart of it. clockFew is the least share of a CPU for which the period is the interval.
	clockDense, clockFew = 4, 1.0 / 2
	clockPart, tickPart  = .25, .5
	// tickDense is how many ticks of a clock of all CPUs there are an interval. They are at least leastTick ns apart.
	tickDense, leastTick = 10, 250_000
	// clockShared is how many clocks have that many copies; with more of them, each has fewer.
	clockShared = 2
	// clockRoom is how many copies a buffer is sure to hold: a thread may run for the whole of a tick.
	clockRoom = 8
	// clockKeep is by what factor the best period may differ from that of a clock before this one is changed.
	clockKeep = 1.5
	// At most fewClocks threads have clocks of their own, each with a buffer, while they use less than clockSure of a CPU.
	fewClocks, clockSure = 64, 1.0 / 16
	// Threads that use less than that of a CPU each, but poolShare of one together, take turns, as those of a pool
	// do. Each that uses poolLeast or more is in the clock of all CPUs, which costs the same for any number of
	// threads: most ticks meet such threads asleep, and naps leave out most of the others.
	poolShare, poolLeast = 1.0 / 8, 1.0 / 4096
	// clockSwitches is the most switches a second for which it gets one of its own, as the kernel
	// starts and ends a timer at each; above twice as many it loses it, and with more it uses a
	// clock of all CPUs. They are counted over clockLook ns.
	// For tickSwitches see mostSwitches. clockTax is the most that those timers, at timerCost ns a switch, may take of its CPU time.
	clockSwitches = 1500
	tickSwitches  = 6
	clockLook     = 200_000_000
	clockTax      = 1.0 / 32
	timerCost     = 9_000
	// leastSwitches is how many switches a second are never too many: few cannot be counted well.
	leastSwitches = 20
	// clockFirst is the CPU time, in ns, of which the switches count if they were not yet counted over clockLook.
	clockFirst = 10_000_000
	// clockSteady is the least share of the last second or so that a thread with a clock used a CPU or waited for
	// one, for which ticks leave it out: at most clockTicks in a row, fewer than copies fit into its
	// buffer. With a clock of all CPUs, it is the share of CPU time.
	clockSteady = .97
	clockTicks  = 6
	// clockDraw is after how many copies a new period is drawn, so that no program keeps in step
	// with it. The period varies by clockVary.
	clockDraw, clockVary = 8, .5
	// A clock that makes no copies is ended, and another one is started after a time that is clockPause,
	// in ns, at first and doubles each time; after clockSilent such clocks in a row, none is.
	clockPause, clockSilent = 250_000_000, 8
	// clockBad is how many incomplete stacks, more than an eighth of all, end the use of a
	// thread's clock.
	clockBad = 8
	// mostTorn is how many copies in a row are left out since they met the thread between two frames of its runtime.
	mostTorn = 3
	// leastClockStack is the least stack to copy, leastListStack that of threads whose interpreter has a list of frames: a
	// recursion in it takes much of the C stack.
	leastClockStack, leastListStack = 8 << 10, 32 << 10
	// offMean is the CPU time, in ns, that a switch takes with interrupts off, offSpread its standard deviation between
	// machines and calls, and offMost the most that is believed: see unmet. On a virtual machine it is 2 to 4 us in
	// pipes and futexes, and 5 to 8 where the thread sleeps by a timer of its own.
	offMean, offSpread, offMost = 4_000, 2_500, 12_000
	// mostOwed is how many samples of a call are made up at once, and leftOpen how many standard deviations of
	// the time that was not met are left out.
	mostOwed = 3
	leftOpen = .5
)

// clock is a thread's state for that.
type clock struct {
	on      bool
	aside   bool          // its copies have memory beside the stack
	refused bool          // no clock any more
	every   int64         // ns; mean period
	depth   uint64        // bytes of the stack of the last stop; 0: unknown
	least   uint64        // bytes of stack that a copy lacked
	since   stack.Time    // copies before that are not of interest
	from    int64         // CPU time when it was started
	at      int64         // CPU time at the last copy
	drawn   int           // copies since the period was drawn
	stack   []stack.Frame // of the last sample, if that was a copy and whole; else empty
	copy    int64         // ns that a copy costs
	made    madeCopies

	silent int        // clocks in a row that made no copies
	pauses int        // clocks that ended for frames that the kernel cannot copy
	again  stack.Time // no new clock before

	rate  switchRate
	cpus  allCPUs
	calls callTime
}

// madeCopies are numbers of copies.
type madeCopies struct {
	whole int // with a complete stack
	cut   int // others
	torn  int // in a row that were left out
}

// allCPUs is the state of a clock of all CPUs.
type allCPUs struct {
	tick  int64  // ns; its period. 0: the thread's clock is its own
	delay int64  // ns after which a tick takes effect
	owed  int64  // CPU time of owedCalls
	turns uint64 // switches when it was started
	pool  bool   // the thread is in it since it is of a pool
	crowd crowdTime
}

// switchRate is how often a thread is switched to.
type switchRate struct {
	at        stack.Time // time of the last count; 0: none yet
	switches  uint64     // at that time
	stops     uint64     // at that time
	perSecond float64    // switches a second that no stop made; below 0: unknown
}

// ErrClockBusy: the clock of all CPUs is in use with another period, or a shared one by as many threads as can.
var ErrClockBusy = errors.New("the clock of all CPUs has another period")

// errClocked: the thread runs, and its clock takes its samples.
var errClocked = errors.New("the thread's clock takes its samples")

// wind starts or stops the thread's clock.
func (g *group) wind(th *thread, c *Counters, at stack.Time) {
	k := &th.clock
	if !g.s.cfg.Clock || k.refused {
		return
	}
	if stops := th.acc.stops.Load(); k.rate.at == 0 {
		k.rate.at, k.rate.switches, k.rate.stops, k.rate.perSecond = at, c.Switches, stops, -1
	} else if since := at - k.rate.at; since >= clockLook {
		own := max(0, float64(c.Switches-k.rate.switches)-float64(stops-k.rate.stops)) // a stop is a switch
		k.rate.perSecond = own * 1e9 / float64(since)
		k.rate.at, k.rate.switches, k.rate.stops = at, c.Switches, stops
	}
	switch {
	case k.on:
		switch {
		case th.usage.lately < k.idle(), k.cpus.pool && !g.pools(th, c, at), k.rate.perSecond > 2*g.mostSwitches(th) && !k.machine(), k.machine() && k.cpus.tick != g.clockTick(th):
			g.unwind(th)
		case c.CPU-k.at > k.patience():
			g.unwind(th)
			k.silent++
			k.again, k.refused = at+clockPause<<k.silent, k.silent == clockSilent
		default:
			every := g.clockEvery(th)
			changed := float64(every) > clockKeep*float64(k.every) || float64(every)*clockKeep < float64(k.every)
			if changed {
				k.every = every
			}
			if changed || k.calls.silent(c.CPU) {
				g.drawClock(th)
			}
		}
	case !th.life.started || at < k.again:
	case th.usage.lately >= clockBusy && (k.rate.perSecond >= 0 || g.seldomSwitched(th, c)), th.usage.lately < clockBusy && g.pools(th, c, at):
		g.startClock(th, c, at)
	}
}

// seldomSwitched reports whether all switches to the thread so far, for its CPU time, are few enough to keep a clock of
// its own. If so, it gets one before its switches were counted for clockLook: the compilers of a build do not live long.
func (g *group) seldomSwitched(th *thread, c *Counters) bool {
	own := float64(c.Switches) - float64(th.acc.stops.Load())
	return c.CPU >= clockFirst && own*1e9 <= 2*g.mostSwitches(th)*float64(c.CPU)
}

func (g *group) startClock(th *thread, c *Counters, at stack.Time) {
	k := &th.clock
	limits := th.file.Clocks()
	if limits.Own == 0 && limits.Machine == 0 {
		k.refused = true
		return
	}
	machine, refusal, most := k.rate.perSecond > g.mostSwitches(th), &g.s.clocks.refused, uint64(limits.Own)
	pool := th.usage.lately < clockBusy || machine && th.usage.lately < machineBusy*clockBusy
	crowd := pool && g.s.clocks.machineRefused.Load()
	if pool && !g.pools(th, c, at) || crowd && machine || !crowd && pool && limits.Machine == 0 {
		return
	}
	if limit := g.s.cfg.MaxOverhead; k.depth == 0 && !pool || limit > 0 && float64(limits.Copy)*th.usage.lately > limit*float64(g.tick.every) {
		return
	}
	var aside *unwind.Aside
	if !g.walker.StackSuffices(&th.walk) {
		x, ok := g.walker.Aside(&th.walk)
		if !ok || g.s.clocks.asideRefused.Load() {
			return
		}
		aside = &x
	}
	switch machine = machine || pool && !crowd; {
	case machine:
		refusal, most = &g.s.clocks.machineRefused, uint64(limits.Machine)
	case crowd && aside != nil:
		return
	case crowd:
		refusal, most = &g.s.clocks.crowdRefused, uint64(limits.Crowd)
	case th.usage.lately < clockSure && g.s.clocks.own.Load() >= fewClocks:
		return
	}
	if refusal.Load() || !k.fits(most) {
		return
	}
	k.copy, k.cpus.tick, k.cpus.pool = limits.Copy, 0, pool
	if machine {
		k.cpus.tick, k.cpus.delay = g.clockTick(th), limits.Delay()
	}
	least := uint64(leastClockStack)
	if aside != nil && aside.List.Head.Len > 0 {
		least = leastListStack
	}
	plan := ClockPlan{Every: g.clockEvery(th), Stack: int(min(max(2*k.depth, 2*k.least, least), most)), Tick: k.cpus.tick, Crowd: crowd, Aside: aside}
	if err := th.file.StartClock(plan); err != nil {
		k.cpus.pool = false
		g.noClock(err, refusal)
		return
	}
	if !pool {
		g.s.clocks.all.Add(1)
	}
	if !machine && !crowd {
		g.s.clocks.own.Add(1)
	}
	k.on, k.every, k.since, k.from, k.at, k.drawn = true, plan.Every, at, c.CPU, c.CPU, 0
	k.aside = aside != nil
	k.cpus.owed, k.cpus.turns = 0, c.Switches
	k.cpus.crowd = crowdTime{on: crowd, ownCode: limits.OwnCode, cpu: c.CPU}
	if k.calls.start(limits.OwnCode && !machine && !crowd, c.CPU, k.every); k.calls.on {
		g.drawClock(th)
	}
}

// noClock notes an error of StartClock, and sets refusal if the kernel refuses all such clocks.
func (g *group) noClock(err error, refusal *atomic.Bool) {
	switch {
	case errors.Is(err, ErrAside):
		g.s.clocks.asideRefused.Store(true)
	case errors.Is(err, ErrGone), errors.Is(err, ErrFiles), errors.Is(err, ErrClockBusy), errors.Is(err, ErrAsideLater):
	default:
		refusal.Store(true)
	}
}

// clockStack returns how many bytes of stack the clock of the thread can copy.
func (g *group) clockStack(th *thread) uint64 {
	limits := th.file.Clocks()
	switch {
	case th.clock.machine():
		return uint64(limits.Machine)
	case th.clock.cpus.crowd.on:
		return uint64(limits.Crowd)
	}
	return uint64(limits.Own)
}

// clockTick returns the time between two ticks of a clock of all CPUs. It is the same for all threads.
func (g *group) clockTick(th *thread) int64 {
	tick := max(g.s.ctl.ivl.Load()/tickDense, leastTick)
	if limit := g.s.cfg.MaxOverhead; limit > 0 {
		tick = max(tick, int64(float64(th.file.Clocks().Tick())/(limit*tickPart)))
	}
	return tick
}

// clockEvery returns the mean period of a clock of the thread. Where the overhead bound stretches the interval, that is
// mostly due to looks at sleeping threads. Copies of a thread that runs little cost next to nothing, and with a period of
// one interval it would have few samples on a CPU, and a large error: below clockFew of a CPU, the period is chosen for one
// copy in two intervals of time.
func (g *group) clockEvery(th *thread) int64 {
	k, chosen, limit, share := &th.clock, g.s.ctl.ivl.Load(), g.s.cfg.MaxOverhead, th.usage.lately
	every := g.tick.every
	if k.cpus.pool { // each thread has few samples
		every = int64(float64(chosen/clockDense) * max(1, g.s.cfg.Limit.factor()))
		if limit > 0 {
			every = max(every, int64(float64(k.copy)*g.s.poolShare()/(limit*clockPart)))
		}
		return max(every, k.cpus.tick)
	}
	if dense := share / clockFew * max(1, float64(g.s.clocks.all.Load())/clockShared); dense < 1 && g.s.cfg.Limit.factor() <= 1 {
		if every = int64(dense * float64(chosen)); k.cpus.tick == 0 { // the buffers of the clock of all CPUs are emptied in time
			every = max(every, chosen/clockDense, g.tick.every/clockRoom)
		}
		if limit > 0 {
			every = max(every, int64(float64(k.copy)*share/(limit*clockPart)))
		}
	}
	return max(min(every, g.tick.every), k.cpus.tick)
}

// dense returns the part of a copy's cost, in ns, that is due to copies beyond one an interval: see clockUse.
func (k *clock) dense(interval int64) int64 {
	return k.copy - int64(float64(k.copy)*min(1, float64(k.every)/float64(max(interval, 1))))
}

// drawClock draws a period around the mean.
func (g *group) drawClock(th *thread) {
	k := &th.clock
	period := float64(k.every)
	if !k.machine() && !k.cpus.crowd.on { // which vary by themselves
		period *= 1 + clockVary*(2*rand.Float64()-1)
	}
	k.drawn = 0
	if ran, err := th.file.SetClock(int64(period)); err == nil { // else the period stays
		k.calls.draw(k.from+ran, int64(period))
	}
}

// machine reports whether the clock, which is on, is one of all CPUs.
func (k *clock) machine() bool { return k.cpus.tick > 0 }

// patience returns after how much CPU time without a copy, in ns, the clock counts as one that makes none.
func (k *clock) patience() int64 {
	if k.calls.on { // it may be in calls all the time
		return 64*k.every + clockLook
	}
	return 8*k.every + clockLook
}

// idle returns the share of CPU time below which the thread loses its clock.
func (k *clock) idle() float64 {
	switch {
	case k.cpus.pool:
		return 0 // pools decides
	case k.machine():
		return machineBusy * clockIdle
	}
	return clockIdle
}

// fits reports whether a clock that copies most bytes at once copies all of the stack that the thread needs.
func (k *clock) fits(most uint64) bool { return max(k.depth, k.least) <= most*3/4 }

// mostSwitches returns how many switches a second a thread may have for a clock of its own: more, if it can have no other.
// A thread whose stack the clock of all CPUs does not copy would be stopped at each tick, which costs as much as the timers
// of tickSwitches switches. On a CPU that others want, too, it is often preempted.
func (g *group) mostSwitches(th *thread) float64 {
	if !th.clock.fits(uint64(th.file.Clocks().Machine)) {
		return max(clockSwitches, tickSwitches*1e9/float64(g.tick.every))
	}
	if g.s.clocks.machineRefused.Load() && th.usage.lately >= clockBusy {
		return clockSwitches
	}
	return min(clockSwitches, max(th.usage.lately*1e9*clockTax/timerCost, leastSwitches))
}

// unwind stops the thread's clock. Copies that were not taken are lost, at most one interval's.
func (g *group) unwind(th *thread) {
	if th.clock.on {
		th.clock.on = false
		th.file.StopClock()
		if !th.clock.cpus.pool {
			g.s.clocks.all.Add(-1)
		}
		if !th.clock.machine() && !th.clock.cpus.crowd.on {
			g.s.clocks.own.Add(-1)
		}
		th.clock.cpus.pool, th.clock.cpus.crowd = false, crowdTime{}
	}
}

// clockEnd says what becomes of a clock after a copy, each stronger than the one before it.
type clockEnd uint8

const (
	clockGoes     clockEnd = iota
	clockRestarts          // the next clock copies other memory
	clockRests             // the kernel cannot copy the thread's frames at the moment: each time it takes longer until the next clock
	clockEnds              // no clock any more
)

// takeCopies records the copies of the thread's clock. c is its counters after them.
func (g *group) takeCopies(th *thread, c *Counters) {
	k := &th.clock
	gone, end, taken := uint64(0), clockGoes, 0
	g.ranInPool(th, c)
	for k.on {
		x, ok := th.file.NextCopy(&g.view)
		gone += x.Lost
		if !ok {
			break
		}
		taken++
		k.calls.copied(k.from+x.Ran, x.Lost)
		if k.cpus.crowd.on {
			g.tally.pool.times.copied += float64(k.every)
		}
		if at := g.view.Stopped; at <= max(k.since, stack.Time(th.acc.to.Load()), th.gaps.last) {
			continue
		}
		last := th.lastCPU()
		ran := k.from + x.Ran
		if x.Ran == 0 {
			ran = last + k.every
		}
		k.at = min(max(ran, last), c.CPU)
		end = max(end, g.takeCopy(th, max(k.at-k.calls.owes(ran), last), x.Kernel)) // what it owes is the CPU time of samples to come
	}
	k.calls.full = k.calls.full || taken >= clockRoom
	if k.on && k.aside {
		if x, ok := g.walker.Aside(&th.walk); !ok {
			end = max(end, clockRests)
		} else {
			_ = th.file.SetAside(&x) // else copies lack it, which their walks show
		}
	}
	if end > clockGoes { // only now that all copies were taken: the next sample would have the CPU time of the others
		g.unwind(th)
	}
	switch end {
	case clockRests:
		k.again = g.engine.Now() + clockPause<<k.pauses
		k.pauses = min(k.pauses+1, clockSilent)
	case clockEnds:
		k.refused = true
	}
	if gone > 0 {
		g.leftOut(th, missed{g.engine.Now(), int64(gone), int64(gone) * k.every})
	}
	if k.on && !k.machine() && !k.cpus.crowd.on && k.drawn >= clockDraw {
		g.drawClock(th)
	}
}

// takeCopy records the copy in the view. cpu is the thread's CPU time at that moment, kernel the frames of the kernel.
func (g *group) takeCopy(th *thread, cpu int64, kernel []stack.Frame) (end clockEnd) {
	k, s, v := &th.clock, &g.sample, &g.view
	g.cur.thread = th
	*s = stack.Sample{Time: v.Stopped, Way: stack.WayClock, CPU: cpu, Delay: th.seen.counters.Delay, Switches: th.seen.counters.Switches,
		State: stack.StateRunning, Call: stack.Call{Nr: -1}, Kernel: kernel}
	v.Mem.Past = true
	g.walkView(th, s)
	v.Mem.Past = false
	k.silent = 0
	k.drawn++
	gap := k.aside && s.Reason == stack.ReasonNone && th.walk.Gaps()
	short := s.Reason == stack.ReasonShort && !g.walker.Crossed() || s.Reason == stack.ReasonMemory && th.walk.Wiser()
	if short {
		g.needStack(th)
		end = clockRestarts
	}
	switch { // the next sample has the CPU time of a copy that is left out
	case short && k.aside: // without its outer C frames, the frames of its runtime have no place
		return clockRestarts
	case gap && !th.walk.Torn(): // it has more frames than the kernel copies
		return clockRests
	case gap && k.made.torn < mostTorn:
		k.made.torn++
		return clockGoes
	}
	k.made.torn = 0
	if k.stack = k.stack[:0]; s.Reason == stack.ReasonNone && !gap {
		k.made.whole++
		k.calls.copiedAt(s.Stack)
		k.stack = append(k.stack, s.Stack...)
		if !k.aside && th.walk.Gaps() && !g.walker.StackSuffices(&th.walk) { // its runtime began after the clock did
			end = clockRestarts
		}
	} else if k.made.cut++; !short && k.made.cut > clockBad && k.made.cut > k.made.whole/8 {
		end = clockEnds
	}
	g.s.clocks.cost.Add(k.copy)
	g.s.clocks.dense.Add(k.dense(g.tick.every))
	th.life.active, th.seen.blocked, th.reuse.kept.ok = true, false, false
	th.seen.state, th.seen.call = s.State, s.Call
	th.ahead.steady = 0
	g.put(th)
	return end
}

// needStack makes the next clock of the thread copy more of the stack than the one of the view.
func (g *group) needStack(th *thread) {
	k, blocks := &th.clock, g.view.Mem.Blocks
	copied, limit := uint64(len(blocks[len(blocks)-1].Data)), g.clockStack(th)*3/4
	k.least = max(k.least, copied, 2*k.depth, leastClockStack)
	if copied < limit { // the longest copy was not tried yet
		k.least = min(k.least, limit)
	}
}

// lastCopies records what the clock of a thread that ended, or is not looked at for a while, has
// copied.
func (g *group) lastCopies(th *thread) {
	if !th.clock.on || g.ctl.held != 0 { // nothing is sampled during a pause
		return
	}
	c := Counters{CPU: math.MaxInt64}
	_ = th.file.Counters(&c) // it may be gone
	g.takeCopies(th, &c)
}

// clocked handles a tick that finds the thread running, with counters c, while its clock is on. It
// reports whether the tick needs no stop. A tick that is to count as waiting for a CPU shows the
// thread where it was last seen on one: to stop, it would have to get a CPU first.
func (g *group) clocked(th *thread, c *Counters) (done bool) {
	k := &th.clock
	queued := th.life.started && th.stood(c, 1, g.ahead.passed+1)
	th.life.active, th.seen.blocked, th.reuse.kept.ok = true, false, false
	th.seen.counters = *c
	g.cur.inCalls = (!queued || k.calls.owesMuch(c.CPU)) && g.owesCalls(th, c)
	switch {
	case g.cur.inCalls, queued && len(k.stack) == 0:
		return false
	case !queued: // its clock takes the samples, but for those of calls
		return true
	}
	s := &g.sample
	*s = stack.Sample{Time: g.engine.Now(), Way: stack.WayClock, CPU: th.lastCPU(), Delay: c.Delay, Switches: c.Switches,
		State: stack.StateRunnable, GIL: th.seen.gil, Call: stack.Call{Nr: -1}, Stack: k.stack}
	th.seen.state, th.seen.call = s.State, s.Call
	g.put(th)
	s.Stack = nil // the group's own memory comes with the next walk
	return true
}

// leaveOut returns for how many ticks in a row a thread with a clock need not be looked at, since it was
// hardly asleep recently. A look accounts for one tick that met the thread waiting for a CPU, so there is
// not more than one of those in that time.
func (th *thread) leaveOut() int64 {
	u := &th.usage
	if u.lately < clockSteady && (u.awake < clockSteady || th.clock.machine()) {
		return 0
	}
	most := clockTicks
	if th.clock.calls.much() {
		most = callTicks
	}
	return int64(min(1/(1-min(u.lately, clockSteady)), float64(most)))
}
