package trace

import (
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Slice is one logical frame on the timeline: a call, real or inlined.
type Slice struct {
	Frame   LocFrame // current location; Func does not change during the slice
	Loc     *Loc     // of the real frame that contains it
	Entered stack.Time
	Exact   *Exact // the traced call that it is; nil: it is sampled
	first   bool   // outermost of its real frame
}

// SliceHandler receives a thread's timeline in order. Depth 0 is outermost.
type SliceHandler interface {
	Begin(t stack.Time, depth int, s *Slice)
	End(t stack.Time, depth int, s *Slice)
	// Other receives every event that does not change the stack's shape.
	Other(e event.Event)
}

// Slices replays one thread as logical frames: inlined calls are separate slices, and a
// frame that moves within a function continues.
type Slices struct {
	Stack []Slice // outermost first; read-only

	names  *Names
	replay diff.Replayer
	h      SliceHandler
	ends   []int // ends[i]: length of Stack with real frames 0..i
	frames []Slice
	exact  *Exact // call of the next real frame; nil: none
	loc    *Loc   // where that is; nil: where its word says
}

// NewSlices returns Slices that replay into h.
func NewSlices(n *Names, h SliceHandler) *Slices { return &Slices{names: n, h: h} }

// Apply processes one event.
func (s *Slices) Apply(e event.Event) { s.replay.Apply(e, (*physical)(s)) }

// Close ends every open slice at t, or at the last event if that is later.
func (s *Slices) Close(t stack.Time) {
	s.replay.CloseAll(max(t, s.replay.Last()), (*physical)(s))
}

// Last returns the time of the newest event.
func (s *Slices) Last() stack.Time { return s.replay.Last() }

// Real returns the stack of real frames, outermost first; read-only.
func (s *Slices) Real() []diff.Frame { return s.replay.Stack }

// Waiting returns the thread's state and wait as of the newest event.
func (s *Slices) Waiting() diff.Waiting { return s.replay.Waiting() }

// Odd returns the number of invalid events.
func (s *Slices) Odd() int { return s.replay.Odd }

// Replay runs all events of thread seq through h. Slices that are open at the end of a
// truncated recording end with the last event.
func (rec *Recording) Replay(seq int, n *Names, h SliceHandler) {
	s := NewSlices(n, h)
	for e := range rec.Events(seq) {
		s.Apply(e)
	}
	s.Close(0)
}

// physical is Slices as a handler for the replay of real frames.
type physical Slices

func (p *physical) Other(e event.Event) { p.h.Other(e) }

func (p *physical) Enter(t stack.Time, depth int, f diff.Frame) {
	l := p.loc
	if l == nil {
		l = p.names.Resolve(f.Word, t)
	}
	for i := len(l.Frames) - 1; i >= 0; i-- {
		s := Slice{Frame: l.Frames[i], Loc: l, Entered: t, first: i == len(l.Frames)-1}
		if s.first {
			s.Exact = p.exact
		}
		p.push(t, s)
	}
	p.ends = append(p.ends[:depth], len(p.Stack))
}

func (p *physical) Exit(t stack.Time, depth int, _ diff.Frame) {
	p.cut(t, p.start(depth))
	p.ends = p.ends[:depth]
}

// Move keeps the logical frames that are the same calls as before: from the outermost on,
// while the function is the same and so is the call site in its caller, if the caller is in
// the same real frame.
func (p *physical) Move(t stack.Time, depth int, f diff.Frame) {
	l := p.names.Resolve(f.Word, t)
	from := p.start(depth)
	old := p.Stack[from:]
	exact := old[0].Exact
	k := 0
	for k < len(old) && k < len(l.Frames) {
		is := &l.Frames[len(l.Frames)-1-k]
		was := &old[k].Frame
		// The outermost frame is the same activation even if its part has another name (a
		// function's cold half may have its own symbol), unless only the names can
		// distinguish functions.
		if k == 0 && was.Func != is.Func && p.another(old[0].Loc.Word, f.Word, was, is) || k > 0 && (was.Func != is.Func || !samePlace(&p.frames[k-1].Frame, &l.Frames[len(l.Frames)-k])) {
			break
		}
		p.frames = append(p.frames[:k], old[k]) // keeps the place
		old[k].Frame.File, old[k].Frame.Line, old[k].Frame.Inlined = is.File, is.Line, is.Inlined
		old[k].Loc = l
		k++
	}
	p.cut(t, from+k)
	for i := len(l.Frames) - 1 - k; i >= 0; i-- {
		s := Slice{Frame: l.Frames[i], Loc: l, Entered: t, first: i == len(l.Frames)-1}
		if s.first {
			s.Exact = exact
		}
		p.push(t, s)
	}
	p.ends[depth] = len(p.Stack)
}

// another reports whether the frames of words from and to belong to different functions, if
// only the names can distinguish them.
func (p *physical) another(from, to event.Word, was, is *LocFrame) bool {
	f, g := p.names.Func(was), p.names.Func(is)
	return (from.Bare() || to.Bare()) && (f.Name != g.Name || f.Module != g.Module)
}

// is implements sharpOut, as do begin and odd.
func (s *Slices) is(depth int, x *Exact) { s.Stack[(*physical)(s).start(depth)].Exact = x }

func (s *Slices) begin(e event.Event, x *Exact, l *Loc) {
	s.exact, s.loc = x, l
	s.Apply(e)
	s.exact, s.loc = nil, nil
}

func (s *Slices) odd() { s.replay.Odd++ }

func samePlace(a, b *LocFrame) bool { return a.Line == b.Line && a.File == b.File }

func (p *physical) start(depth int) int {
	if depth == 0 {
		return 0
	}
	return p.ends[depth-1]
}

func (p *physical) push(t stack.Time, s Slice) {
	p.Stack = append(p.Stack, s)
	p.h.Begin(t, len(p.Stack)-1, &p.Stack[len(p.Stack)-1])
}

func (p *physical) cut(t stack.Time, to int) {
	for n := len(p.Stack) - 1; n >= to; n-- {
		p.h.End(t, n, &p.Stack[n])
		p.Stack = p.Stack[:n]
	}
}
