package view

import (
	"fmt"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Side selects the part of a thread's time that an export shows.
type Side uint8

// Values of Side.
const (
	BothSides Side = iota
	OnCPU          // while it was observed running
	OffCPU         // while it was observed waiting, also for a CPU
	HoldsGIL       // while it was observed to hold its interpreter's global lock
)

// String describes the selection; "" for everything.
func (x Side) String() string {
	return [...]string{"", "on-CPU time alone", "off-CPU time alone", "time with the GIL alone"}[x]
}

// Side returns the part of the threads' time that the view shows.
func (v *View) Side() Side { return v.side }

// shows reports whether time in the state of w is shown. An unknown state does not count as
// waiting.
func (x Side) shows(w *diff.Waiting) bool {
	s, _ := w.State()
	switch x {
	case BothSides:
		return true
	case HoldsGIL:
		return w.GIL()
	}
	return (x == OffCPU) == Waits(s)
}

// seen returns a Seen event without the samples of the other side (in says which side the
// state is on). OnCPU keeps the CPU time that the thread used before it was observed
// waiting.
func (x Side) seen(e event.Event, in bool) event.Event {
	how, n, cpu := event.SeenFields(e.Payload())
	if !in {
		n = 0
	}
	if x == OffCPU || x == HoldsGIL && !in {
		cpu = 0
	}
	return event.Make(e.Time, event.Seen, event.SeenOf(how, n, cpu))
}

// ParseSide combines the flags --on-cpu, --off-cpu and --gil.
func ParseSide(on, off, gil bool) (Side, error) {
	switch {
	case on && off:
		return BothSides, fmt.Errorf("--on-cpu and --off-cpu leave nothing out together; give one")
	case gil && (on || off):
		return BothSides, fmt.Errorf("--gil is a choice beside --on-cpu and --off-cpu; give one")
	case gil:
		return HoldsGIL, nil
	case on:
		return OnCPU, nil
	case off:
		return OffCPU, nil
	}
	return BothSides, nil
}

// half clips the slices from a clip to the times that a side shows. A slice that
// continues over hidden time becomes several.
type half struct {
	h    trace.SliceHandler
	side Side
	c    *clip

	begun bool
	in    bool       // the state is on the selected side
	since stack.Time // begin of that
	shown int        // slices of the stack that h has seen
}

// begin passes on the slices that were open before the event at t. It skips slices that
// begin and end at the same time.
func (f *half) begin(t stack.Time, open int) {
	if !f.begun { // the current state follows the slices that were open
		f.begun, f.in = true, f.side.shows(&f.c.before)
	}
	if !f.in || t <= f.since {
		return
	}
	for ; f.shown < open; f.shown++ {
		f.h.Begin(f.since, f.shown, &f.c.s.Stack[f.shown])
	}
}

func (f *half) Begin(t stack.Time, depth int, s *trace.Slice) {
	f.begin(t, depth)
	if f.in && f.shown == depth && t > f.since {
		f.h.Begin(t, depth, s)
		f.shown++
	}
}

func (f *half) End(t stack.Time, depth int, s *trace.Slice) {
	f.begin(t, depth+1)
	if depth < f.shown {
		f.h.End(t, depth, s)
		f.shown = depth
	}
}

func (f *half) Other(e event.Event) {
	f.begin(e.Time, f.c.open)
	switch e.Kind() {
	case event.State:
		var now diff.Waiting
		now.Apply(e)
		in := f.side.shows(&now)
		if in && !f.in {
			f.since = e.Time
		}
		if !in && f.in {
			for ; f.shown > 0; f.shown-- {
				f.h.End(e.Time, f.shown-1, &f.c.s.Stack[f.shown-1])
			}
		}
		f.in = in
		if !in {
			e = event.Make(e.Time, event.State, event.StateOf(stack.StateUnknown, -1))
		}
	case event.Wait, event.Lock, event.Holder, event.Waker, event.Kernel:
		if !f.in {
			return
		}
	case event.Seen:
		e = f.side.seen(e, f.in)
	}
	f.h.Other(e)
}
