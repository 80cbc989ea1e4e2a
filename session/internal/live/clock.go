package live

import (
	"errors"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
)

// StartClock implements sampler.Thread.
func (t *thread) StartClock(period int64, n int, machine bool) (err error) {
	t.StopClock()
	if machine {
		t.clock, err = t.Thread.OpenMachineClock(period)
	} else {
		t.clock, err = t.Thread.OpenClock(period, n)
	}
	if errors.Is(err, target.ErrClockPeriod) {
		return sampler.ErrClockBusy
	}
	return translate(err)
}

// SetClock implements sampler.Thread.
func (t *thread) SetClock(period int64) error { return t.clock.SetPeriod(period) }

// MaxClockStack implements sampler.Thread.
func (t *thread) MaxClockStack(machine bool) int {
	if machine {
		return target.MaxMachineClockStack
	}
	return target.MaxClockStack
}

// NextCopy implements sampler.Thread.
func (t *thread) NextCopy(v *sampler.View) (ran int64, lost uint64, ok bool) {
	x, lost, ok := t.clock.Take()
	if !ok {
		return 0, lost, false
	}
	v.Regs, v.Call, v.Spans = &x.Regs, stack.Call{Nr: -1}, nil
	v.Asked, v.Halted, v.Stopped, v.Resumed = x.At, 0, x.At, x.At
	v.Restarted, v.Group, v.Reads, v.Found = false, false, 0, sampler.ActivityOnCPU
	v.Mem.Blocks = append(v.Mem.Blocks[:0], unwind.Block{Addr: x.SP(), Data: x.Stack})
	return x.Ran, lost, true
}

// StopClock implements sampler.Thread.
func (t *thread) StopClock() {
	if t.clock != nil {
		t.clock.Close()
		t.clock = nil
	}
}

// Close closes the thread's files and its clock.
func (t *thread) Close() error {
	t.StopClock()
	return t.Thread.Close()
}
