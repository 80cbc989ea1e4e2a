package sampler

import (
	"errors"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Once takes single samples with the methods and rules of a Sampler, for callers that need to
// know what threads do now. It belongs to the goroutine that made it, which is locked to its OS
// thread for good.
type Once struct {
	g      group
	sink   lastSample
	pauses Histogram
}

// lastSample is a sink that keeps only a pointer to the newest sample.
type lastSample struct{ s *stack.Sample }

func (l *lastSample) Sample(s *stack.Sample)               { l.s = s }
func (l *lastSample) Gap(stack.Time, stack.Why, int64)     {}
func (l *lastSample) Event(stack.Time, event.Kind, uint64) {}
func (l *lastSample) End(stack.Time, stack.Why)            {}
func (l *lastSample) Flush()                               {}
func (l *lastSample) Full() bool                           { return false }

// NewOnce returns a Once. It uses only the fields Stop, MaxStack and Harmless of cfg.
func NewOnce(t Target, cfg Config) (*Once, error) {
	if cfg.MaxStack == 0 {
		cfg.MaxStack = 8 << 20
	}
	cfg.MaxOverhead = 0
	o := &Once{g: group{s: &Sampler{cfg: cfg, target: t}}}
	o.g.tick.every = onceEvery
	if err := o.g.init(); err != nil {
		return nil, err
	}
	o.g.can.Late = false // a late stop is tried again
	return o, nil
}

// Limits of a single sample.
const (
	// onceEvery results in the longest deadline of a stop.
	onceEvery = 20_000_000
	// onceTries is how many times a thread is tried that did not stop in time, or runs at each
	// look.
	onceTries = 4
	// lateFor is the wait, in ns, for a thread that did not stop in time, before it is tried
	// again.
	lateFor = 50_000_000
)

// Look takes one sample of th; in describes the thread.
func (o *Once) Look(th Thread, in *stack.ThreadInfo) (Glance, error) {
	t := newThread(*in, th, &o.sink)
	t.acc.pauses = &o.pauses
	for try := 1; ; try++ {
		err := o.g.look(t)
		if errors.Is(err, ErrTimeout) && try < onceTries {
			o.settle()
			continue
		}
		if err != nil {
			return Glance{State: stack.StateUnknown}, err
		}
		s, v := o.sink.s, &o.g.view
		g := Glance{State: s.State, Call: s.Call, Counters: t.seen.counters, Sample: s}
		if s.State != stack.StateRunning && s.State != stack.StateRunnable {
			g.SP = stackPointer(o.g.s.target, v.Regs)
		}
		return g, nil
	}
}

// Peek looks at a thread without a stop and without its stack. ok is false if the thread runs, or
// ran during the look.
func (o *Once) Peek(th Thread) (g Glance, ok bool, err error) {
	var call stack.Call
	running, err := th.Call(&call)
	if err != nil || running {
		return Glance{State: stack.StateRunning}, false, err
	}
	if g.State, err = th.State(); err != nil {
		return g, false, err
	}
	v := &View{StackDefault: 64}
	ok, err = o.g.engine.Read(th, v)
	if err != nil || !ok {
		return Glance{State: stack.StateRunning}, false, err
	}
	g.State = inFault(g.State, &v.Call)
	g.Call, g.Counters, g.SP = v.Call, v.Counters, stackPointer(o.g.s.target, v.Regs)
	return g, true, nil
}

// stackPointer returns the stack pointer, or 0 if it is unknown.
func stackPointer(t Target, r *stack.Regs) uint64 {
	if n := t.Space().Arch().SP(); r != nil && r.Has(n) {
		return r.R[n]
	}
	return 0
}

// settle waits up to lateFor for threads that did not stop in time.
func (o *Once) settle() {
	for limit := o.g.engine.Now() + lateFor; o.g.engine.Reap() > 0 && o.g.engine.Now() < limit; {
		o.g.engine.SleepUntil(o.g.engine.Now() + reapEvery)
	}
}

// Rest gives the CPU away for ns nanoseconds.
func (o *Once) Rest(ns int64) { o.g.engine.SleepUntil(o.g.engine.Now() + stack.Time(ns)) }

// Close releases everything.
func (o *Once) Close() { o.g.end() }
