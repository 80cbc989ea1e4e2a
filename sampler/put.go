package sampler

import "github.com/sliverprof/sliver/stack"

// put records the sample and resolves the thread's wait.
func (g *group) put(th *thread) {
	g.write(th)
	if g.waits.of != nil {
		g.tellWait(th)
	}
}

func (g *group) write(th *thread) {
	th.life.started = true
	th.leave.early.samples = max(th.leave.early.samples-1, 0)
	n := uint64(1 + g.sample.Again)
	if th.acc.samples.Add(n) == n {
		g.s.run.first.CompareAndSwap(0, int64(g.sample.Time))
	}
	if g.sample.Way != stack.WayClock {
		th.clock.stack = th.clock.stack[:0]
		th.leaveCPU(&g.sample)
	}
	switch g.sample.Way {
	case stack.WayUnrun:
		th.acc.unrun.Add(n)
	case stack.WayClock:
		if !g.cur.inCalls { // else a stop made it
			th.acc.clocked.Add(1)
		}
	case stack.WayPart:
		th.acc.part.Add(1)
		fallthrough
	case stack.WayRead:
		th.acc.read.Add(1)
	}
	if g.sample.Reason != stack.ReasonNone || g.sample.Way != stack.WayUnrun && th.walk.Gaps() {
		th.acc.cuts[cutBy(&g.sample)%stack.MaxReason].Add(n)
		th.acc.truncated.Add(n)
	}
	if g.sample.Way != stack.WayUnrun {
		g.tellTask(th)
	}
	th.acc.to.Store(int64(g.sample.Time))
	if first := th.info.CPU; g.sample.CPU >= first {
		th.acc.cpu.Store(g.sample.CPU - first)
	}
	if name, ok := th.file.NewName(g.sample.Time); ok {
		th.sink.Flush() // the samples so far have the old name
		g.s.named(th, name, g.sample.Time)
	}
	th.life.lineage.rebase(&g.sample, false)
	th.sink.Sample(&g.sample)
	th.life.lineage.rebase(&g.sample, true)
}

// leaveCPU leaves CPU time of a thread with a clock to the samples that have it: what it owes to those that will be made for it, and, if the
// sample at hand is of a wait for a CPU, all since the last copy to the next one.
func (th *thread) leaveCPU(s *stack.Sample) {
	if !th.clock.on {
		return
	}
	last := th.lastCPU()
	if s.State == stack.StateRunnable {
		s.CPU = min(s.CPU, last)
	} else {
		s.CPU = min(s.CPU, max(s.CPU-th.clock.calls.owes(s.CPU), last))
	}
}

// pendingWait is a wait that was not resolved yet, for lack of time.
type pendingWait struct {
	missed int           // number of rounds since
	stack  []stack.Frame // the thread's stack at that time
	sp     uint64        // of a blocked thread, for Waits
}

// tellWait resolves the wait of th. The thread runs, or sleeps undisturbed, and its sample is
// written.
func (g *group) tellWait(th *thread) {
	gl := &g.waits.glance
	*gl = Glance{State: th.seen.state, Call: th.seen.call, Counters: th.seen.counters, Sample: &g.sample, Frames: g.sample.Stack, Again: gl.Again}
	if g.sample.Way == stack.WayUnrun {
		gl.Frames = th.wait.stack
	}
	if th.seen.state != stack.StateRunning && th.seen.state != stack.StateRunnable {
		if g.sample.Way != stack.WayUnrun {
			th.wait.sp = stackPointer(g.s.target, g.view.Regs)
		}
		if g.tooLong(th) {
			if g.sample.Way != stack.WayUnrun {
				th.wait.stack = append(th.wait.stack[:0], gl.Frames...)
			}
			return // the next round continues with it
		}
		gl.SP = th.wait.sp
	}
	begin := g.engine.Now()
	g.waits.idle = false
	g.waits.of.Look(th.file, &th.info, gl, th.sink)
	g.waits.took += int64(g.engine.Now() - begin)
	th.wait.stack = th.wait.stack[:0]
}

// tooLong reports whether resolving waits has used its share of this round. Once half of the
// share is used, only the threads that were left out for longest get the rest.
func (g *group) tooLong(th *thread) bool {
	share := g.tick.every / waitShare
	if g.waits.took > share || th.wait.missed < g.waits.behind && g.waits.took > share/2 {
		th.wait.missed++
		g.waits.missed = max(g.waits.missed, th.wait.missed)
		return true
	}
	th.wait.missed = 0
	return false
}

// waitShare is the divisor of a tick that may be spent on resolving waits.
const waitShare = 8

// cutBy returns why a sample's stack is incomplete.
func cutBy(s *stack.Sample) stack.Reason {
	if s.Reason != stack.ReasonNone {
		return s.Reason
	}
	for i := range s.Stack {
		if f := &s.Stack[i]; f.Kind == stack.KindError && stack.Reason(f.PC) != stack.ReasonParent && stack.Reason(f.PC) != stack.ReasonKernel {
			return stack.Reason(f.PC)
		}
	}
	return stack.ReasonNone
}
