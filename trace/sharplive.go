package trace

import (
	"math"
	"slices"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// CallBatch is what became known of traced calls while a recording grows.
type CallBatch struct {
	// Until: all entries and exits of calls up to then are in this batch and those before.
	Until stack.Time
	// Hold replaces Until for threads with a call that is not in the recording if it proves too short.
	Hold  map[stack.TID]stack.Time
	Ended []calls.Call
	// Open are calls that have begun, and were in no batch before. Their Exit and How say nothing.
	Open []calls.Call
	// Traced are the functions and the accounts, if they have changed since the batch before; nil: they have not.
	Traced *Traced
}

// LiveCode is where traced functions are, for the LiveSharps of all threads.
type LiveCode struct {
	code *tracedCode
	lost bool
}

// NewLiveCode returns a LiveCode for functions with their accounts so far.
func NewLiveCode(t *Traced) *LiveCode { return &LiveCode{code: t.code(0), lost: t.incomplete()} }

// Entry returns where a traced function begins.
func (c *LiveCode) Entry(fn int) (event.Word, bool) {
	if fn < 0 || fn >= len(c.code.functions) {
		return 0, false
	}
	x := threadCalls{tracedCode: c.code}
	return x.word(int32(fn)), true
}

// Limits of the calls of a thread that wait for its samples.
const (
	// maxLiveCalls is how many calls wait; later ones are left out.
	maxLiveCalls = 1 << 14
	// spentCalls is how many calls that have begun may be in memory.
	spentCalls = 1 << 8
)

// LiveSharp is Sharp for a thread that is being recorded. Calls come as they begin and as they end; an event may
// be applied once all calls until SharpSkew behind its time have come. A call that comes later gets the edges that samples
// show. It is for one goroutine.
type LiveSharp struct {
	s   Sharp
	out liveOut
}

// SharpSkew is how far behind an event, in ns, LiveSharp looks for the edges of calls.
const SharpSkew = sharpSkew

// liveOut passes a Sharp's events on, and counts the invalid ones.
type liveOut struct {
	yield func(event.Event)
	n     int
}

func (o *liveOut) Apply(e event.Event)                   { o.yield(e) }
func (o *liveOut) begin(e event.Event, _ *Exact, _ *Loc) { o.yield(e) }
func (o *liveOut) is(int, *Exact)                        {}
func (o *liveOut) odd()                                  { o.n++ }
func (o *liveOut) Close(stack.Time)                      {}

// NewLiveSharp returns a LiveSharp that passes events on to yield. number identifies the function of native code at
// a place, from 1 on, -1 if it is not known yet; known: it will not change.
func NewLiveSharp(c *LiveCode, yield func(event.Event), number func(w event.Word, at stack.Time) (of int32, known bool)) *LiveSharp {
	l := &LiveSharp{out: liveOut{yield: yield}}
	x := &threadCalls{tracedCode: c.code, lost: c.lost, callers: map[uint64]int32{}, number: number}
	l.s = Sharp{out: &l.out, calls: x, limit: math.MaxInt}
	l.s.open.init(nil)
	l.s.open.live = true
	return l
}

// Code replaces the traced functions by newer ones. Functions keep their numbers.
func (l *LiveSharp) Code(c *LiveCode) {
	l.s.calls.tracedCode = c.code
	l.s.calls.lost = l.s.calls.lost || c.lost
}

// Lose says that calls are missing.
func (l *LiveSharp) Lose() { l.s.calls.lost = true }

// Apply takes the thread's next event.
func (l *LiveSharp) Apply(e event.Event) {
	l.s.Apply(e)
	if o := &l.s.open; o.next >= spentCalls {
		o.all = slices.Delete(o.all, 0, o.next)
		o.next = 0
	}
}

// Close passes on the events that wait for a sample.
func (l *LiveSharp) Close() { l.s.Close() }

// Open takes a call that has begun.
func (l *LiveSharp) Open(c *calls.Call) {
	if l.under(c) == nil {
		l.insert(c, true)
	}
}

// Ended takes a call that has ended.
func (l *LiveSharp) Ended(c *calls.Call) {
	o := &l.s.open
	x := l.under(c)
	if x == nil {
		l.insert(c, false)
		return
	}
	x.exit, x.how, x.unsure, x.live = min(x.exit, max(c.Exit, c.Enter)), c.How, c.Unsure, false // not if a sample showed that it was over
	if slices.Contains(o.now, x) {
		o.exit = min(o.exit, x.exit)
	}
}

// number returns the number of a call's function, -1 if its calls are not placed.
func (l *LiveSharp) number(c *calls.Call) int32 {
	if c.Task != 0 || c.Fn < 0 || c.Fn >= len(l.s.calls.same) {
		return -1
	}
	return l.s.calls.same[c.Fn]
}

// under returns c among the calls whose end is not known.
func (l *LiveSharp) under(c *calls.Call) *tracedCall {
	fn, o := l.number(c), &l.s.open
	is := func(x *tracedCall) bool { return x.live && x.enter == c.Enter && x.fn == fn && x.ret == c.Ret }
	for i := len(o.all) - 1; i >= o.next && o.all[i].enter >= c.Enter; i-- {
		if is(&o.all[i]) {
			return &o.all[i]
		}
	}
	for i := len(o.now) - 1; i >= 0; i-- {
		if is(o.now[i]) {
			return o.now[i]
		}
	}
	return nil
}

// insert adds a call. It leaves out one that began before the last event that was passed on: a sample ended that
// call, or it comes too late.
func (l *LiveSharp) insert(c *calls.Call, live bool) {
	fn, o := l.number(c), &l.s.open
	if fn < 0 || c.Enter < l.s.high && !c.Before {
		return
	}
	if len(o.all)-o.next >= maxLiveCalls {
		l.s.calls.lost = true
		return
	}
	x := tracedCall{enter: c.Enter, exit: max(c.Exit, c.Enter), ret: c.Ret, fn: fn, how: c.How, before: c.Before, unsure: c.Unsure, live: live}
	if live { // it may have ended already, if by an exception: then its end is a bound
		x.exit, x.how = never, calls.Left
	}
	i := len(o.all)
	for i > o.next && compareCalls(x, o.all[i-1]) < 0 {
		i--
	}
	o.all = slices.Insert(o.all, i, x)
}
