package sampler

import "github.com/sliverprof/sliver/stack"

// Many threads wake for a moment and go back to the same sleep. One that is in the same
// call with the same arguments, stack pointer and program counter as at its last look, and
// whose return addresses are all where they were, has the same stack: no frame of it is
// walked again, and its state is not asked for. Where all bytes of the stack are the same,
// so is what it waits for, but for what lies elsewhere: that is looked up again at each
// keptLooks-th look.
//
// Only whole stacks of native code qualify, on machines whose calls push return addresses.
const keptLooks = 16

// kept is the last stack of a thread that was read while it slept.
type kept struct {
	frames []stack.Frame
	sp     uint64
	bytes  uint64 // hash of the stack, from sp up to the place of the outermost frame
	looks  int    // how often it was kept
	ok     bool
}

// halted is what a group knows of signals that stop the process.
type halted struct {
	read   bool // in this round
	halted bool
}

// keep notes the stack of the sample that was read, if it qualifies.
func (g *group) keep(th *thread) {
	k := &th.kept
	s := &g.sample
	k.ok = false
	n := len(s.Stack)
	if g.word == nil || len(g.threads) <= fewSleep || s.Reason != stack.ReasonNone || s.State != stack.StateBlocked || n < 2 ||
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

// returns reports whether the view has the return addresses of frames where these are.
func (g *group) returns(frames []stack.Frame) bool {
	for i := range frames[:len(frames)-1] {
		if w, ok := g.word(frames[i].CFA - 8); !ok || w != frames[i+1].PC {
			return false
		}
	}
	return true
}

// asKept has the sample of a thread that went back to the sleep of its last look. Not
// done: it has to be looked at as any other.
func (g *group) asKept(th *thread) (done bool, err error) {
	k := &th.kept
	if !k.ok || !th.blocked || th.stale || !g.nobodyStopped(th) {
		return false, nil
	}
	v, s := &g.view, &g.sample
	g.plan(th)
	ok, err := g.tracer.Read(th.file, v)
	if err != nil || !ok || v.Call != th.call || g.sp(v.Regs) != k.sp || v.Regs.PC != k.frames[0].PC || !g.returns(k.frames) {
		return false, err
	}
	*s = stack.Sample{Time: v.Stopped, Way: stack.WayRead, CPU: v.Counters.CPU, Delay: v.Counters.Delay,
		Switches: v.Counters.Switches, State: stack.StateBlocked, Call: v.Call, Stack: append(s.Stack[:0], k.frames...)}
	th.active = false
	th.counters, th.state = v.Counters, s.State
	sum := g.stackHash(k.frames[len(k.frames)-1].CFA - k.sp)
	g.glance.Again = sum != 0 && sum == k.bytes && k.looks%keptLooks < keptLooks-1
	k.bytes = sum
	k.looks++
	g.put(th)
	g.glance.Again = false
	return true, nil
}

// nobodyStopped reports whether no signal has stopped the process: one thread tells for all
// of a round.
func (g *group) nobodyStopped(th *thread) bool {
	if !g.calls.read {
		st, err := th.file.State()
		g.calls.read = true
		g.calls.halted = err != nil || st != stack.StateBlocked && st != stack.StateRunning
	}
	return !g.calls.halted
}
