package view

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Gaps adds a call for each gap to a replay, for formats that only have calls. The call
// is on top of the stack, over the time that the missing samples would have covered or,
// if events were lost, until the stack is known again. Its slices have no Loc.
type Gaps struct {
	h     trace.SliceHandler
	v     *View
	at    stack.Time
	depth int
	lost  bool // a slice for lost events is open
	slice trace.Slice
}

// WithGaps puts a Gaps in front of h. Call Close after the replay.
func (v *View) WithGaps(h trace.SliceHandler) *Gaps { return &Gaps{h: h, v: v} }

// GapFunc returns the function that represents a gap, in v.Names.Funcs.
func (v *View) GapFunc(why stack.Why) int {
	id, ok := v.gaps[why]
	if !ok {
		id = len(v.Names.Funcs)
		v.Names.Funcs = append(v.Names.Funcs, trace.Func{Name: "[gap: " + why.String() + "]", Module: -1})
		v.gaps[why] = id
	}
	return id
}

// UnseenFunc returns the function in v.Names.Funcs that represents CPU time without a
// sample.
func (v *View) UnseenFunc() int {
	if v.unseen == 0 {
		v.unseen = len(v.Names.Funcs) + 1
		v.Names.Funcs = append(v.Names.Funcs, trace.Func{Name: trace.NotSampled, Module: -1})
	}
	return v.unseen - 1
}

// OmittedFunc adds a function to v.Names.Funcs for frames that an export leaves out.
func (v *View) OmittedFunc(name string) int {
	v.Names.Funcs = append(v.Names.Funcs, trace.Func{Name: name, Module: -1})
	return len(v.Names.Funcs) - 1
}

// Close ends an open gap at t, the end of the thread's replay.
func (g *Gaps) Close(t stack.Time) { g.known(max(t, g.at)) }

func (g *Gaps) known(t stack.Time) {
	if g.lost {
		g.lost = false
		g.h.End(t, 0, &g.slice)
	}
	g.at = t
}

// Begin implements trace.SliceHandler.
func (g *Gaps) Begin(t stack.Time, depth int, s *trace.Slice) {
	g.known(t)
	g.depth = depth + 1
	g.h.Begin(t, depth, s)
}

// End implements trace.SliceHandler.
func (g *Gaps) End(t stack.Time, depth int, s *trace.Slice) {
	g.known(t)
	g.depth = depth
	g.h.End(t, depth, s)
}

// Other implements trace.SliceHandler.
func (g *Gaps) Other(e event.Event) {
	if e.Kind() == event.Gap {
		g.gap(e)
	} else if !g.lost {
		g.at = max(g.at, e.Time)
	}
	g.h.Other(e)
}

func (g *Gaps) gap(e event.Event) {
	why, ns := event.GapFields(e.Payload())
	if g.lost {
		return // already drawn
	}
	g.slice = trace.Slice{Frame: trace.LocFrame{Func: g.v.GapFunc(why)}, Entered: max(g.at, e.Time-stack.Time(ns))}
	g.h.Begin(g.slice.Entered, g.depth, &g.slice)
	if why == stack.WhyLost {
		g.lost = true // depth is 0: the replay has closed the stack
		g.at = e.Time
		return
	}
	g.known(e.Time)
	g.h.End(e.Time, g.depth, &g.slice)
}
