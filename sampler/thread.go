package sampler

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// thread is one sampled thread. All fields except acc belong to its group.
type thread struct {
	// What a tick reads of a thread that naps comes first: few lines of memory.
	life  life
	round inRound
	pend  pending
	sleep sleep
	seen  seen
	gaps  gaps

	info stack.ThreadInfo
	file Thread
	sink Sink
	walk unwind.Thread
	acc  account
	task uint64 // last recorded payload of event.Task

	wait   pendingWait
	ahead  threadAhead
	late   late
	leave  leave
	reuse  reuse
	usage  usage
	budget budget
	clock  clock
}

// life is how far a thread's sampling has come.
type life struct {
	added   time.Time   // when the group received it
	started bool        // a sample of it was written
	active  bool        // it ran at the last look: it comes first in a round
	traced  bool        // another tracer held it at the last look
	dropped atomic.Bool // a new selection excludes it
	ended   bool
	lineage lineage
}

// sleep is how rarely a thread that sleeps is looked at.
type sleep struct {
	nap  nap
	doze threadDoze
}

// leave is what decides whether a thread may be leaving a call that a stop would restart.
type leave struct {
	early early
	// delayed: a stop restarted the timeout of a call; this is the thread's number of switches
	// before that stop. 0: none did.
	delayed uint64
}

// reuse is what a look may use again if the thread is where it was.
type reuse struct {
	kept kept
	stop lastStop
}

// inRound is a thread's state in the current round.
type inRound struct {
	done   bool // it was handled
	late   bool // it was reached too late
	asleep bool // the thread was blocked when this tick was due
	left   bool // the thread had been on a CPU right before that
}

// seen is what the last look found.
type seen struct {
	// blocked: the thread was blocked, with these counters. While they do not change, it has not
	// run and its stack is the same.
	blocked  bool
	counters Counters
	state    stack.State
	call     stack.Call
	gil      bool       // stack.Sample.GIL of the last walk
	stale    bool       // look at its stack even if it has not run: see unwind.Space.Runtimes
	firstAt  stack.Time // of the first look that found it running and took no sample
}

func newThread(in stack.ThreadInfo, f Thread, sink Sink) *thread {
	th := &thread{info: in, file: f, sink: sink, budget: budget{rate: 1}}
	th.life.active = true
	th.acc.before = in.Before
	th.walk.TID, th.walk.Main = in.TID, in.Main
	if in.NSTID > 0 {
		th.walk.TID = stack.TID(in.NSTID)
	}
	return th
}

// lastCPU returns the CPU time, in ns, of the thread's last sample.
func (th *thread) lastCPU() int64 { return th.info.CPU + th.acc.cpu.Load() }

// reset drops all state derived from the thread's memory: an exec replaced it.
func (th *thread) reset() {
	th.walk = unwind.Thread{TID: th.walk.TID, Main: th.walk.Main}
	th.seen.blocked, th.life.started, th.seen.firstAt, th.leave.early.at = false, false, 0, 0
	th.reuse.stop.hash, th.task = 0, 0
	th.reuse.kept.ok = false
	th.clock.stack, th.clock.calls.recent = nil, stopShares{}
	th.life.lineage.check = true
}

// busyShare is the least recent share of CPU time for which the Engine decides whether a thread
// runs. Below it the group decides, which is cheaper for a blocked thread.
const busyShare = 1.0 / 64

// decidesLate reports whether the Engine decides whether th, with counters c, runs. It does not
// if the thread may be leaving a call with a timeout (mayLeave), or if CPUs are short: then a
// the Engine does not check.
func (g *group) decidesLate(th *thread, c *Counters, at stack.Time) bool {
	return g.can.Stops && !g.cur.spent && th.usage.share >= busyShare && th.late.stops == 0 && g.pass.left+g.pass.leftBefore == 0 && !th.queues(c) && !g.mayLeave(th, c, at)
}

// usageFor is the time, in ns, that usage.lately is of: shares before it have lost two thirds of their weight.
const usageFor = 1_000_000_000

// usage is how much of a thread's time it spent on CPUs.
type usage struct {
	share  float64    // of the recent time, as of at
	lately float64    // of the last second or so, or since from
	awake  float64    // the same of the time that it used a CPU or waited for one
	from   stack.Time // of the first look
	cpu    int64      // CPU time at the last look
	delay  int64      // time of waiting for a CPU then
	at     stack.Time // of the last look
}

// add updates the share. It covers the past only, so that it does not depend on the position in
// the current burst of work.
func (u *usage) add(c *Counters, at stack.Time) {
	if u.at != 0 && at > u.at {
		// The kernel adds up the time of a thread that runs at its own ticks, some ms apart, so the time
		// since the last look may seem to be more than all of it. That evens out in the next looks, and
		// a bound here would leave too little.
		since := float64(at - u.at)
		cpu, awake := max(float64(c.CPU-u.cpu)/since, 0), max(float64(c.CPU-u.cpu+c.Delay-u.delay)/since, 0)
		part := since / float64(min(at-u.from, max(usageFor, at-u.at)))
		u.share += (min(cpu, 1) - u.share) / 8
		u.lately += (cpu - u.lately) * part
		u.awake += (awake - u.awake) * part
	} else if u.at == 0 {
		u.from = at
	}
	u.cpu, u.delay, u.at = c.CPU, c.Delay, at
}

// A thread that was woken by its call's timeout and has not left the kernel yet must not be
// stopped: the call would restart and take twice as long. If that is possible, the thread must be
// on a CPU now and a moment later.
const (
	leaveFor = 20_000     // ns from the wakeup to the return to its program, plus a margin
	longCall = 20_000_000 // ns; a shorter call may restart
)

// unrun reports whether the thread was blocked at the last look and has not run since.
func (th *thread) unrun(c *Counters) bool {
	return th.seen.blocked && th.life.started && c.Switches == th.seen.counters.Switches && c.CPU == th.seen.counters.CPU
}

// unrun records the sample of a thread that has not run since the last look.
func (g *group) unrun(th *thread, c Counters, at stack.Time) error {
	g.unrunSample(th, c, at)
	g.put(th)
	return nil
}

func (g *group) unrunSample(th *thread, c Counters, at stack.Time) {
	s := &g.sample
	*s = stack.Sample{Time: at, Way: stack.WayUnrun, CPU: c.CPU, Delay: c.Delay, Switches: c.Switches,
		State: th.seen.state, GIL: th.seen.gil, Call: th.seen.call, Stack: s.Stack[:0]}
	th.life.active = false
}

// stopAndWalk stops the thread for its sample. asleep is the call that it was blocked in right
// before; nil: it ran.
func (g *group) stopAndWalk(th *thread, c Counters, asleep *stack.Call) error {
	if g.cur.spent {
		return errSpent // it woke up while it was read
	}
	if !g.can.Stops {
		return ErrNoStops
	}
	if g.s.ctl.yielded.Load() {
		return ErrTraced
	}
	for try := 1; ; try++ {
		if err := g.stopOnce(th, &c, asleep != nil || try > 1); err != nil {
			return err
		}
		asleep = g.walkStop(th, &c, asleep, try)
		if !th.again(g.sample.Reason, try) {
			break
		}
		if th.walk.Torn() { // otherwise it may be resumed and stopped again without an instruction in between
			g.engine.SleepUntil(g.engine.Now() + tornFor)
		}
	}
	if th.walk.Torn() { // it waits for a CPU there
		return ErrUnsure
	}
	if g.cur.inCalls && g.payCalls(th) {
		return errClocked
	}
	g.stopped(th, c)
	return nil
}

// walkStop makes a sample of the stop in the view. It returns the call that the thread goes back
// to, if that is the call that it was asleep in.
func (g *group) walkStop(th *thread, c *Counters, asleep *stack.Call, try int) *stack.Call {
	s, v := &g.sample, &g.view
	st, call := g.didAt(th, c, try)
	*s = stack.Sample{Time: v.Stopped, Begin: v.Asked, Pause: max(int64(v.Resumed-v.Asked)-g.cur.queued, 1), Way: stack.WayStop, CPU: c.CPU,
		Delay: c.Delay, Switches: c.Switches, State: st, Call: call}
	if asleep != nil && asleep.Nr >= 0 && *asleep == v.Call {
		s.State, s.Call = stack.StateBlocked, v.Call
	} else {
		asleep = nil
	}
	if v.Group {
		s.State = stack.StateStopped
	}
	g.walkView(th, s)
	return asleep
}

// didAt returns the thread's state at the decision to stop it, and the system call that it was
// blocked in.
func (g *group) didAt(th *thread, c *Counters, try int) (stack.State, stack.Call) {
	v, none := &g.view, stack.Call{Nr: -1}
	switch {
	case g.cur.woke:
		return stack.StateRunnable, none // it was blocked, and woke before it could be read
	case v.Found == ActivityAsleep && v.Call.Nr >= 0:
		return stack.StateBlocked, v.Call
	case v.Found == ActivityAsleep, v.Found == ActivityQueued:
		return stack.StateRunnable, none
	case th.clock.on && !g.cur.inCalls: // samples on a CPU come from its clock; this stop represents its time waiting
		return stack.StateRunnable, none
	case v.Found == ActivityUnknown && v.Call.Nr < 0 && th.life.started && th.stood(c, try, 1):
		return stack.StateRunnable, none
	}
	return stack.StateRunning, none
}

// stopped records the sample of a stop.
func (g *group) stopped(th *thread, c Counters) {
	g.keepRegs(th)
	if sp, end := g.sp(g.view.Regs), g.walker.StackEnd(); end > sp && g.sample.Reason == stack.ReasonNone {
		switch {
		case !g.walker.Crossed():
			th.clock.depth = end - sp
		case th.clock.depth == 0:
			th.clock.depth = leastClockStack // where its own stack ends is unknown
		}
	}
	th.life.active, th.seen.blocked, th.late.insist, th.late.retakes = true, false, false, 0
	th.reuse.kept.ok = false
	th.seen.counters, th.seen.state, th.seen.call = c, g.sample.State, g.sample.Call
	g.put(th)
}

// Reports whether a thread that has run since the last look, ticks ago, counts as having waited for a
// CPU. The share of such samples among the ticks matches the share of its time; the remainder carries
// over to the next sample.
func (th *thread) stood(c *Counters, try int, ticks int64) bool {
	delay, cpu := c.Delay-th.seen.counters.Delay, c.CPU-th.seen.counters.CPU
	if delay <= 0 || cpu < 0 {
		return false
	}
	owed, tick := th.late.owed+delay, (delay+cpu)/ticks
	yes := owed > tick/2
	if yes {
		owed -= tick
	}
	if try == 1 { // further tries of this look are of the same time
		th.late.owed = max(min(owed, delay+cpu), -delay-cpu)
	}
	return yes
}

// walkTries is how many copies one sample may take: a walk that lacked data determines the next
// copy.
const walkTries = 4

// tornFor, in ns, is how long a thread between two frames may run before the next try.
const tornFor = 20_000

// again reports whether a walk that ended early is worth another copy at once.
func (th *thread) again(why stack.Reason, try int) bool {
	return try < walkTries && (th.walk.Lacks() || (why == stack.ReasonMemory || why == stack.ReasonShort) && th.walk.Wiser())
}

// stopOnce stops the thread, whose counters were c right before, copies the planned data, and
// accounts for the stop. wait: the thread is likely to stop soon, because it is asleep or was
// just resumed.
func (g *group) stopOnce(th *thread, c *Counters, wait bool) error {
	v := &g.view
	g.walker.Peek(&th.walk)
	g.plan(th)
	v.Deadline = g.patience()
	if !wait && g.leaves(th, c) {
		v.Deadline = AtOnce
		if v.Check { // with that deadline the Engine does not check
			var call stack.Call
			if running, err := th.file.Call(&call); err != nil || !running {
				return cmp.Or(err, ErrAsleep)
			}
		}
	}
	g.cur.asked = 0
	if err := g.engine.Stop(th.file, v); err != nil {
		if errors.Is(err, ErrTimeout) {
			g.pass.vain += v.Deadline
		}
		return err
	}
	v.Reads += g.cur.asked
	th.late.stops = 0
	g.charge(th, c, v.Stopped)
	return nil
}

// charge accounts for the stop in the view; stopped is when the thread was seen stopped.
func (g *group) charge(th *thread, c *Counters, stopped stack.Time) {
	v := &g.view
	pause := int64(v.Resumed - v.Asked)
	g.cur.queued = th.queued(int64(stopped-v.Asked), c)
	th.late.slow = pause >= longStop
	taken := pause - g.cur.queued
	th.acc.pauses.Add(taken)
	th.acc.stops.Add(1)
	th.acc.stopReads.Add(uint64(v.Reads))
	th.acc.pause.Add(taken)
	g.pay(th, taken)
	if v.Restarted {
		th.acc.restarted.Add(1)
	}
}

// longStop is a time, in ns, longer than a thread on a CPU takes to stop.
const longStop = 200_000

// queued returns how much of the time until a thread stopped, in ns, it spent waiting for a CPU.
// It can only stop on a CPU, and would have waited without the request too. c is its counters
// right before. Waits after it was resumed are excluded.
func (th *thread) queued(until int64, c *Counters) int64 {
	var now Counters
	if until < longStop || th.file.Counters(&now) != nil {
		return 0
	}
	return min(max(now.Delay-c.Delay, 0), until)
}

// readAndWalk reads a blocked thread without stopping it. done is false if it ran during the
// read.
func (g *group) readAndWalk(th *thread, st stack.State) (done bool, err error) {
	v, s := &g.view, &g.sample
	for try := 1; ; try++ {
		g.plan(th)
		ok, err := g.engine.Read(th.file, v)
		if err != nil || !ok {
			return false, err
		}
		*s = stack.Sample{Time: v.Stopped, Way: stack.WayRead, CPU: v.Counters.CPU, Delay: v.Counters.Delay,
			Switches: v.Counters.Switches, State: st, Call: v.Call}
		g.walkView(th, s)
		if !th.again(s.Reason, try) && !(needsRegs(th, s.Reason) && g.engine.Registers()) {
			break
		}
	}
	if st == stack.StateRunning {
		st, s.State = stack.StateBlocked, stack.StateBlocked // it fell asleep right after its state was read
	}
	if s.Reason != stack.ReasonNone && g.borrowRegs(th) {
		g.walkView(th, s)
	}
	if g.mayStop(th, st, &v.Call, s.Reason) {
		call := v.Call
		return true, g.stopAndWalk(th, v.Counters, &call)
	}
	if s.Reason != stack.ReasonNone {
		s.Way = stack.WayPart
	}
	s.State = inFault(s.State, &v.Call)
	th.life.active, th.seen.blocked = false, true
	th.seen.counters, th.seen.state, th.seen.call = v.Counters, s.State, s.Call
	g.keep(th)
	if th.round.left { // at the tick it was on a CPU, entering the call
		th.round.left = false
		s.State, s.Call = stack.StateRunning, stack.Call{Nr: -1}
		g.write(th)
		th.wait.stack = append(th.wait.stack[:0], s.Stack...) // the next sample resolves its wait
		return true, nil
	}
	g.owedCalls(th)
	g.put(th)
	return true, nil
}

// inFault distinguishes a page fault from other sleeps: it is outside any system call.
func inFault(st stack.State, c *stack.Call) stack.State {
	if c.Nr < 0 && (st == stack.StateDisk || st == stack.StateBlocked) {
		return stack.StateFault
	}
	return st
}

// needsRegs reports whether a walk of a read thread, which ended for that reason, lacks registers: without the TLS base, for
// example, the goroutine of a Go thread is unknown.
func needsRegs(th *thread, why stack.Reason) bool {
	return why == stack.ReasonRegister || why == stack.ReasonNone && th.walk.Blind()
}

// mayStop decides whether a blocked thread is worth a stop. The walk must lack registers, or data
// that depends on them. And the call must continue afterwards as if it had not been interrupted.
func (g *group) mayStop(th *thread, st stack.State, call *stack.Call, why stack.Reason) bool {
	if !needsRegs(th, why) && why != stack.ReasonMemory ||
		g.s.cfg.Stop == StopRunning || g.s.ctl.yielded.Load() || g.cur.spent || !g.can.Stops {
		return false
	}
	if st == stack.StateStopped {
		// A stop wakes the thread, which other programs can see in its state, and which counts as
		// having run. So it is stopped only once.
		return call.Nr < 0 && th.seen.state != stack.StateStopped
	}
	if call.Nr < 0 {
		return true // a page fault: it ends soon, and no system call is interrupted
	}
	if st != stack.StateBlocked {
		return false
	}
	if g.s.cfg.Harmless != nil && g.s.cfg.Harmless(call, g.sleepsAt()) {
		return true
	}
	return g.s.cfg.Stop == StopAlways && g.mayDelay(th, call)
}

// sleepsAt returns the stack pointer of the blocked thread that was looked at last.
func (g *group) sleepsAt() uint64 {
	if g.view.Regs == nil {
		return 0
	}
	return g.sp(g.view.Regs)
}

// maxDelay bounds, in ns, the delay of a call whose timeout a stop restarts.
const maxDelay = 5_000_000

// ownSwitches is how many times one stop gives a blocked thread a CPU: to stop, and to go back to
// sleep.
const ownSwitches = 2

// mayDelay reports whether a blocked thread may be stopped although that restarts the timeout of
// its call: once per wait, and only if it cannot have waited for long.
func (g *group) mayDelay(th *thread, call *stack.Call) bool {
	switches := g.view.Counters.Switches
	if th.leave.delayed != 0 && switches <= th.leave.delayed+ownSwitches {
		return false // it sleeps on in the call that was delayed
	}
	th.leave.delayed = 0
	if !th.life.started || g.s.cfg.Delays == nil || !g.s.cfg.Delays(call, g.sleepsAt()) ||
		int64(g.view.Stopped)-th.acc.to.Load() > maxDelay {
		return false
	}
	th.leave.delayed = switches
	return true
}

// plan sets what to copy.
func (g *group) plan(th *thread) {
	g.cur.thread = th
	g.view.Spans = g.walker.Plan(&th.walk)
	g.view.Ask = g.walker.Asks(&th.walk)
	g.view.StackLow, g.view.StackHigh, g.view.StackDefault = g.walker.StackPlan(&th.walk)
}

// walkView unwinds the view into s. For an address outside all known mappings, it reads the maps
// again, once.
func (g *group) walkView(th *thread, s *stack.Sample) {
	v := &g.view
	begin := g.engine.Now()
	s.Stack, s.Reason = g.walker.Walk(&th.walk, v.Regs, &v.Mem)
	if g.walker.Replaced() {
		if changed, _ := g.s.target.Replaced(s.Time); changed || !g.walker.Current() {
			s.Stack, s.Reason = g.walker.Walk(&th.walk, v.Regs, &v.Mem)
		}
	}
	if s.Reason == stack.ReasonUnmapped {
		// Another group may have read the maps since the walk.
		if changed, _ := g.s.target.Remap(false); changed || !g.walker.Current() {
			s.Stack, s.Reason = g.walker.Walk(&th.walk, v.Regs, &v.Mem)
		}
	}
	s.GIL = th.walk.HoldsGIL()
	th.seen.gil = s.GIL
	s.Word, s.Reach, s.Here = nil, 0, nil
	if s.Reason != stack.ReasonNone {
		s.Word, s.Reach, s.Here = g.cur.word, g.walker.Reach(), g.cur.here
	}
	th.acc.walk.Add(int64(g.engine.Now() - begin))
}
