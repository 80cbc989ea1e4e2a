package sampler

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// NoStops is embedded by an Engine that reads blocked threads only.
type NoStops struct{ NoLate }

// Stop implements Engine.
func (NoStops) Stop(Thread, *View) error { return ErrNoStops }

// GoAhead implements Engine.
func (NoStops) GoAhead(*Ahead) bool { return false }

// Taken implements Engine.
func (NoStops) Taken(int, *View) {}

// NoRegisters is embedded by an Engine that reads the registers of a blocked thread that it can, always.
type NoRegisters struct{}

// Registers implements Engine.
func (NoRegisters) Registers() bool { return false }

// NoLate is embedded by an Engine whose Stop waits until the thread has stopped, or releases it.
type NoLate struct{}

// Reap implements Engine.
func (NoLate) Reap() int { return 0 }

// Ask implements Engine.
func (NoLate) Ask() {}

// Arrived implements Engine.
func (NoLate) Arrived(*View) (Thread, error, bool) { return nil, nil, false }

// Free implements Engine.
func (NoLate) Free() bool { return false }

// NoClock is embedded by a Thread that has no clock.
type NoClock struct{}

// StartClock implements Thread.
func (NoClock) StartClock(ClockPlan) error { return ErrDenied }

// SetAside implements Thread.
func (NoClock) SetAside(*unwind.Aside) error { return ErrDenied }

// SetClock implements Thread.
func (NoClock) SetClock(int64) (ran int64, err error) { return 0, ErrDenied }

// NextCopy implements Thread.
func (NoClock) NextCopy(*View) (x ClockCopy, ok bool) { return x, false }

// MetByClock implements Thread.
func (NoClock) MetByClock() int64 { return 0 }

// StopClock implements Thread.
func (NoClock) StopClock() {}

// Clocks implements Thread.
func (NoClock) Clocks() (l ClockLimits) { return l }

// NoDeath is embedded by a Thread whose death nothing records.
type NoDeath struct{}

// Died implements Thread.
func (NoDeath) Died(stack.Time, *View) bool { return false }

// NoCosts is embedded by a Target that does not know what sampling costs.
type NoCosts struct{}

// Costs implements Target.
func (NoCosts) Costs() (c Costs, ok bool) { return c, false }

// NoRest is embedded by a Target without a clock for dozing threads.
type NoRest struct{}

// RestCPU implements Target.
func (NoRest) RestCPU([]Thread) (ns int64, ok bool) { return 0, false }
