package sampler

import "github.com/sliverprof/sliver/stack"

// Kept stacks: many threads wake for a moment and go back to the same sleep. If a thread is in
// the same call with the same arguments, stack pointer and program counter as at its last look,
// and all its return addresses are unchanged, its stack is the same. No frame is walked again,
// and the thread's state is not read. If all bytes of the stack are unchanged, its wait is the
// same too, except for memory outside the stack, so every keptLooks-th look resolves the wait
// again.
//
// Only complete stacks of native code qualify, on machines whose calls push return addresses.
const keptLooks = 16

// kept is the last stack of a thread that was read while it slept.
type kept struct {
	frames []stack.Frame
	sp     uint64
	bytes  uint64 // hash of the stack, from sp up to the CFA of the outermost frame
	looks  int    // looks that reused it
	ok     bool
}

// halted caches, per round, whether a signal has stopped the process.
type halted struct {
	read   bool // in this round
	halted bool
}

// keep saves the stack of the sample that was read, if it qualifies.
func (g *group) keep(th *thread) {
	k := &th.reuse.kept
	s := &g.sample
	k.ok = false
	n := len(s.Stack)
	if g.cur.word == nil || len(g.threads) <= fewSleep || s.Reason != stack.ReasonNone || s.State != stack.StateBlocked || n < 2 ||
		g.s.cfg.Sleeps == nil || !g.s.cfg.Sleeps(&s.Call) || g.view.Ask || th.walk.Gaps() || th.walk.Blind() {
		return
	}
	k.sp = g.sp(g.view.Regs)
	for i := range s.Stack {
		f := &s.Stack[i]
		if f.Kind != stack.KindNative || i > 0 && f.Exact || f.CFA <= k.sp {
			return
		}
	}
	k.frames = append(k.frames[:0], s.Stack...)
	k.looks = 0
	if k.ok = g.returns(k.frames); k.ok {
		k.bytes = g.stackHash(k.frames[n-1].CFA - k.sp)
	}
}

// returns reports whether the return addresses of frames are unchanged in the view.
func (g *group) returns(frames []stack.Frame) bool {
	for i := range frames[:len(frames)-1] {
		if w, ok := g.cur.word(frames[i].CFA - 8); !ok || w != frames[i+1].PC {
			return false
		}
	}
	return true
}

// asKept records the sample of a thread that went back to the sleep of its last look. If done is
// false, the thread needs an ordinary look.
func (g *group) asKept(th *thread) (done bool, err error) {
	k := &th.reuse.kept
	if !k.ok || !th.seen.blocked || th.seen.stale || !g.nobodyStopped(th) {
		return false, nil
	}
	v, s := &g.view, &g.sample
	g.plan(th)
	ok, err := g.engine.Read(th.file, v)
	if err != nil || !ok || v.Call != th.seen.call || g.sp(v.Regs) != k.sp || v.Regs.PC != k.frames[0].PC || !g.returns(k.frames) {
		return false, err
	}
	*s = stack.Sample{Time: v.Stopped, Way: stack.WayRead, CPU: v.Counters.CPU, Delay: v.Counters.Delay,
		Switches: v.Counters.Switches, State: stack.StateBlocked, Call: v.Call, Stack: append(s.Stack[:0], k.frames...)}
	th.life.active, th.seen.gil = false, false // such a stack has no functions of an interpreter
	th.seen.counters, th.seen.state = v.Counters, s.State
	sum := g.stackHash(k.frames[len(k.frames)-1].CFA - k.sp)
	g.waits.glance.Again = sum != 0 && sum == k.bytes && k.looks%keptLooks < keptLooks-1
	k.bytes = sum
	k.looks++
	if !g.waits.glance.Again {
		g.owedCalls(th)
	}
	g.put(th)
	g.waits.glance.Again = false
	return true, nil
}

// nobodyStopped reports whether no signal has stopped the process. One thread is read per round,
// as such a signal stops them all.
func (g *group) nobodyStopped(th *thread) bool {
	if !g.pass.calls.read {
		st, err := th.file.State()
		g.pass.calls.read = true
		g.pass.calls.halted = err != nil || st != stack.StateBlocked && st != stack.StateRunning
	}
	return !g.pass.calls.halted
}
