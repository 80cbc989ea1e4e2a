package view

import (
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Overs adds a call for each wait to a replay, for formats that only have calls. The call
// is on top of the stack for as long as the thread waits. Its slices have no Loc.
type Overs struct {
	h     trace.SliceHandler
	v     *View
	now   diff.Waiting
	since stack.Time // begin of the state
	depth int
	open  bool
	slice trace.Slice
}

// WithWaits puts an Overs in front of h. Call Close after the replay.
func (v *View) WithWaits(h trace.SliceHandler) *Overs { return &Overs{h: h, v: v} }

// WaitFunc returns the function that represents a wait, in v.Names.Funcs.
func (v *View) WaitFunc(what string) int {
	id, ok := v.overs[what]
	if !ok {
		id = len(v.Names.Funcs)
		v.Names.Funcs = append(v.Names.Funcs, trace.Func{Name: "[waits: " + what + "]", Module: -1})
		v.overs[what] = id
	}
	return id
}

// Close ends an open wait at t, the end of the thread's replay.
func (o *Overs) Close(t stack.Time) {
	o.settle(t)
	o.end(t)
}

func (o *Overs) end(t stack.Time) {
	if o.open {
		o.open = false
		o.h.End(t, o.depth, &o.slice)
	}
}

// settle draws the wait that began before t, if any. Its stack and description follow its
// State, with the same time.
func (o *Overs) settle(t stack.Time) {
	if o.open || t <= o.since || o.depth == 0 {
		return
	}
	s, _ := o.now.State()
	if what := o.v.What(&o.now); what != "" && Waits(s) {
		o.open = true
		o.slice = trace.Slice{Frame: trace.LocFrame{Func: o.v.WaitFunc(what)}, Entered: o.since}
		o.h.Begin(o.since, o.depth, &o.slice)
	}
}

// Begin implements trace.SliceHandler.
func (o *Overs) Begin(t stack.Time, depth int, s *trace.Slice) {
	o.settle(t)
	o.end(t)
	o.since, o.depth = t, depth+1
	o.h.Begin(t, depth, s)
}

// End implements trace.SliceHandler.
func (o *Overs) End(t stack.Time, depth int, s *trace.Slice) {
	o.settle(t)
	o.end(t)
	o.since, o.depth = t, depth
	o.h.End(t, depth, s)
}

// Other implements trace.SliceHandler.
func (o *Overs) Other(e event.Event) {
	o.settle(e.Time)
	switch e.Kind() {
	case event.Gap:
		if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
			o.end(e.Time)
			o.since = max(o.since, e.Time)
		}
	case event.State, event.Mark:
		o.end(e.Time)
		o.since = max(o.since, e.Time)
	case event.Wait, event.Lock:
		was := o.v.What(&o.now)
		if now := o.now; now.Apply(e) && o.v.What(&now) != was {
			o.end(e.Time)
			o.since = max(o.since, e.Time)
		}
	}
	o.now.Apply(e)
	o.h.Other(e)
}
