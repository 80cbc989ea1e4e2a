package view

import (
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Slices replays th into h: see Replay.
func (v *View) Slices(th *Thread, h trace.SliceHandler) stack.Time { return v.Replay(th, h).Run() }

// ExactSlices replays th into h: see Timeline.
func (v *View) ExactSlices(th *Thread, h trace.SliceHandler) stack.Time {
	return v.Timeline(th, h).Run()
}

// Replay is a replay of one thread.
type Replay struct {
	c     *clip
	v     *View
	th    *Thread
	sharp *trace.Sharp // nil: slices are as they were sampled
}

// Replay prepares to replay th into h. Times never decrease. Events outside the range are
// dropped, slices that cross its edges are clipped, and the State, Wait, Lock and Holder in
// effect at its start come first.
func (v *View) Replay(th *Thread, h trace.SliceHandler) *Replay {
	c := &clip{h: h, from: v.from, to: v.to, began: v.from <= 0}
	if v.focus != nil {
		c.h = &focus{h: c.h, m: v.focus, c: c, depth: -1}
	}
	if v.side != BothSides {
		c.h = &half{h: c.h, side: v.side, c: c}
	}
	c.s = trace.NewSlices(v.Names, c)
	return &Replay{c: c, v: v, th: th}
}

// Timeline is Replay with the thread's traced calls among the slices: see trace.Sharp. It is for outputs that
// show slices. Those that count samples use Replay or Steps. Once it has run, Apart leaves these calls out.
func (v *View) Timeline(th *Thread, h trace.SliceHandler) *Replay {
	r := v.Replay(th, h)
	for i := range v.Rec.Threads {
		if v.Rec.Threads[i].Seq == th.Seq {
			r.sharp = trace.NewSharp(v.Rec, i, r.c.s)
		}
	}
	return r
}

// apply takes an event of the thread; close ends its slices.
func (r *Replay) apply(e event.Event) {
	if r.sharp != nil {
		r.sharp.Apply(e)
		return
	}
	r.c.s.Apply(e)
}

func (r *Replay) close() {
	if r.sharp != nil {
		r.sharp.Close()
		return
	}
	r.c.s.Close(0)
}

// Stack returns the current stack, outermost first. It is read-only and valid in calls of
// Other.
func (r *Replay) Stack() []trace.Slice { return r.c.s.Stack }

// Waiting returns the thread's state and wait as of the last event passed to the handler.
func (r *Replay) Waiting() diff.Waiting { return r.c.s.Waiting() }

// Run runs the replay. It returns the time of the last event passed to the handler, 0 if
// there was none.
func (r *Replay) Run() stack.Time {
	c := r.c
	if r.sharp != nil {
		defer func() { r.v.placed[r.th.Seq] = r.sharp.Placed() }()
	}
	var first sync
	var held []event.Event // the first Seen may precede the stack that it confirms
	known := false
	for e := range r.v.events(r.th.Seq) {
		if k := e.Kind(); !known && k == event.Seen {
			held = append(held[:0], e)
			continue
		} else if known = known || k == event.Sync; known && len(held) > 0 && first.done(e) {
			r.apply(held[0])
			held = held[:0]
		}
		r.apply(e)
		if c.done {
			return c.at
		}
	}
	if known && len(held) > 0 {
		r.apply(held[0])
	}
	r.close()
	if !c.began {
		return 0
	}
	return c.at
}

// sync finds the end of a Sync's frames.
type sync struct {
	enters uint64 // remaining Enter events
	begun  bool
}

// done reports that a Sync and its frames came before e.
func (s *sync) done(e event.Event) bool {
	switch e.Kind() {
	case event.Sync:
		s.begun, s.enters = true, e.Payload()
		return false
	case event.Enter:
		if s.enters > 0 {
			s.enters--
			return false
		}
	}
	return s.begun && s.enters == 0
}

// clip filters a replay for a handler.
type clip struct {
	h        trace.SliceHandler
	s        *trace.Slices
	from, to stack.Time
	at       stack.Time
	began    bool
	done     bool
	open     int          // slices open before the event being passed on
	before   diff.Waiting // as of from
}

// step advances to t. open is how many slices of s.Stack are open before the event at t. It
// reports whether t is inside the range.
func (c *clip) step(t stack.Time, open int) bool {
	if c.done {
		return false
	}
	c.at, c.open = max(c.at, min(t, maxTime)), open
	if !c.began {
		if c.at < c.from {
			return false
		}
		c.began = true
		for i := range open {
			c.h.Begin(c.from, i, &c.s.Stack[i])
		}
		for _, e := range c.before.Append(nil, c.from) {
			c.h.Other(e)
		}
	}
	if c.at > c.to {
		c.at, c.done = c.to, true
		for i := open - 1; i >= 0; i-- {
			c.h.End(c.to, i, &c.s.Stack[i])
		}
		return false
	}
	return true
}

func (c *clip) Begin(t stack.Time, depth int, s *trace.Slice) {
	if c.step(t, depth) {
		c.h.Begin(c.at, depth, s)
	}
}

func (c *clip) End(t stack.Time, depth int, s *trace.Slice) {
	if c.step(t, depth+1) {
		c.h.End(c.at, depth, s)
	}
}

func (c *clip) Other(e event.Event) {
	if c.step(e.Time, len(c.s.Stack)) {
		e.Time = c.at
		c.h.Other(e)
		return
	}
	c.before.Apply(e)
}
