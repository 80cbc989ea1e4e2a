package ptrace

import (
	"errors"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
)

// Thread implements sampler.Thread.
type Thread struct {
	*target.Thread
	deaths *target.Deaths // nil: deaths are not recorded
	clock  *target.Clock  // nil: not started
	aside  *aside         // of the clock; nil: it copies the stack alone
	kernel Kernel         // nil: copies have no frames of the kernel
	frames []stack.Frame  // of the kernel, of the last copy
	plain  bool           // see WithoutPrograms
	is     state
}

// Kernel makes frames of the kernel's part of a stack: an address in the innermost function, then return addresses. It
// may be used by several goroutines.
type Kernel interface {
	Frames(addrs []uint64, buf []stack.Frame) []stack.Frame
}

// Open opens a thread of p. deaths may be nil: its death is not recorded. kernel may be nil: copies by clocks have no
// frames of the kernel.
func Open(p *target.Process, tid stack.TID, deaths *target.Deaths, kernel Kernel) (*Thread, error) {
	th, err := p.Thread(tid)
	if err != nil {
		return nil, Translate(err)
	}
	return &Thread{Thread: th, deaths: deaths, kernel: kernel}, nil
}

// WithoutPrograms makes the thread's clocks use no programs of the kernel: they copy its stack alone. Call it before one starts.
func (t *Thread) WithoutPrograms() {
	t.plain = true
	t.Thread.WithoutPrograms()
}

// Died implements sampler.Thread.
func (t *Thread) Died(after stack.Time, v *sampler.View) bool {
	if t.deaths == nil {
		return false
	}
	x, ok := t.Thread.Died(t.deaths, after)
	if !ok {
		return false
	}
	*v = sampler.View{More: v.More, Regs: &x.Regs, Call: stack.Call{Nr: -1}, Asked: x.At, Stopped: x.At, Resumed: x.At}
	v.Mem.Blocks = append(v.Mem.Blocks, unwind.Block{Addr: x.SP, Data: x.Stack})
	return true
}

func (t *Thread) Counters(c *sampler.Counters) error {
	return Translate(t.Thread.Counters((*target.Counters)(c)))
}

func (t *Thread) Call(c *stack.Call) (running bool, err error) {
	running, _, _, err = t.Thread.Syscall(c)
	return running, Translate(err)
}

func (t *Thread) OnCPU() (bool, error) {
	on, err := t.Thread.OnCPU()
	return on, Translate(err)
}

func (t *Thread) State() (stack.State, error) {
	s, err := t.Thread.State()
	return s, Translate(err)
}

// StartClock implements sampler.Thread.
func (t *Thread) StartClock(p sampler.ClockPlan) (err error) {
	t.StopClock()
	program := target.NoProgram
	if p.Aside != nil && t.plain {
		return sampler.ErrAside
	}
	if p.Aside != nil {
		if t.aside, err = openAside(t.TID(), p.Aside); err != nil {
			return err
		}
		program = t.aside.all.Program()
	}
	if p.Crowd {
		t.clock, err = t.Thread.OpenCrowdClock(p.Every, p.Stack)
	} else if p.Tick > 0 {
		t.clock, err = t.Thread.OpenMachineClock(p.Tick, p.Every, program, t.kernel != nil)
	} else {
		t.clock, err = t.Thread.OpenClock(p.Every, p.Stack, program, t.kernel != nil)
	}
	if err != nil {
		t.StopClock()
	}
	if errors.Is(err, target.ErrClockPeriod) || errors.Is(err, target.ErrClockFull) {
		return sampler.ErrClockBusy
	}
	return Translate(err)
}

// SetAside implements sampler.Thread.
func (t *Thread) SetAside(x *unwind.Aside) error { return t.aside.set(x) }

// SetClock implements sampler.Thread.
func (t *Thread) SetClock(period int64) (ran int64, err error) { return t.clock.SetPeriod(period) }

// MetByClock implements sampler.Thread.
func (t *Thread) MetByClock() int64 { return t.clock.Met() }

// Clocks implements sampler.Thread.
func (t *Thread) Clocks() sampler.ClockLimits {
	return sampler.ClockLimits{Own: target.MaxClockStack, Machine: target.MaxMachineClockStack, Crowd: target.MaxCrowdClockStack, OwnCode: !target.ClocksSeeCalls(), Copy: target.CopyCost, Tick: t.MachineTickCost, Delay: target.TickDelay}
}

// NextCopy implements sampler.Thread.
func (t *Thread) NextCopy(v *sampler.View) (c sampler.ClockCopy, ok bool) {
	x, lost, ok := t.clock.Take()
	c.Lost = lost
	if !ok {
		return c, false
	}
	v.Regs, v.Call, v.Spans = &x.Regs, stack.Call{Nr: -1}, nil
	v.Asked, v.Halted, v.Stopped, v.Resumed = x.At, 0, x.At, x.At
	v.Restarted, v.Group, v.Reads, v.Found = false, false, 0, sampler.ActivityOnCPU
	v.Mem.Blocks = append(t.aside.take(x, v.Mem.Blocks[:0]), unwind.Block{Addr: x.SP(), Data: x.Stack})
	c.Ran = x.Ran
	if t.kernel != nil && len(x.Kernel) > 0 {
		t.frames = t.kernel.Frames(x.Kernel, t.frames[:0])
		c.Kernel = t.frames
	}
	return c, true
}

// StopClock implements sampler.Thread.
func (t *Thread) StopClock() {
	if t.clock != nil {
		t.clock.Close()
		t.clock = nil
	}
	t.aside.close()
	t.aside = nil
}

// Close closes the thread's files and its clock.
func (t *Thread) Close() error {
	t.to(shut)
	t.StopClock()
	return t.Thread.Close()
}
