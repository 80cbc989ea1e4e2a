package view

import (
	"slices"
	"sort"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// CallTimes say where the time of a traced call went, in ns. They add up to its duration.
type CallTimes struct {
	CPU   int64 // on a CPU
	Delay int64 // waiting for one
	Off   int64 // in waits
	// Exact says that the kernel's context switches show all of it. Otherwise it follows from the samples.
	Exact bool
	Woken uint64 // payload of the Waker event that ended the longest wait, as Interval has it; 0: unknown
}

// CallTimer finds the CallTimes of traced calls.
type CallTimer struct {
	v    *View
	of   map[int][]spent // by position in View.Threads
	left int
	// every is the least time between ticks, in ns, rates the changes of it by thread, in order: the overhead bound and
	// naps stretch it. Samples show the times of calls of at least two such times.
	every int64
	rates map[int][]rate
}

// rate is the time between ticks, in ns, from at on.
type rate struct {
	at    stack.Time
	every int64
}

// spent is an interval of a thread, with the sums of those before it.
type spent struct {
	begin, end stack.Time
	cpu, delay int64 // in it
	woken      uint64
	wait       bool // not for a CPU
	exact      bool
	before     sums
}

// sums are of the intervals before one.
type sums struct {
	cpu, delay, known int64 // ns; known: of the intervals themselves
	exact             int   // how many are exact
}

// maxSpent bounds the intervals that a CallTimer keeps, 88 bytes each. Further threads have no times.
const maxSpent = 1 << 21

// CallTimer returns a CallTimer for the calls of the view.
func (v *View) CallTimer() *CallTimer {
	return &CallTimer{v: v, of: map[int][]spent{}, left: maxSpent, every: v.Rec.Process.Interval, rates: map[int][]rate{}}
}

// Of returns where the time of a call went. ok is false if that is not known: the call is a goroutine's, its thread was
// not sampled, the states of the thread are not known for all of the time, or samples alone show them and are too far
// apart.
func (t *CallTimer) Of(c *Call) (x CallTimes, ok bool) {
	if c.Thread < 0 || c.Task != 0 || c.Exit <= c.Enter {
		return x, false
	}
	all, have := t.of[c.Thread]
	if !have {
		all = t.read(c.Thread)
		t.of[c.Thread] = all
	}
	// Intervals from the first that ends after the call's beginning to the last that begins before its end.
	first := sort.Search(len(all), func(i int) bool { return all[i].end > c.Enter })
	last := sort.Search(len(all), func(i int) bool { return all[i].begin >= c.Exit }) - 1
	if first > last {
		return x, false
	}
	var known int64
	add := func(s *spent) {
		from, to := max(s.begin, c.Enter), min(s.end, c.Exit)
		length := int64(to - from)
		part := float64(length) / float64(s.end-s.begin)
		cpu := min(int64(float64(s.cpu)*part), length)
		delay := min(int64(float64(s.delay)*part), length-cpu)
		x.CPU, x.Delay, known = x.CPU+cpu, x.Delay+delay, known+length
	}
	a, b := &all[first], &all[last]
	add(a)
	if last > first {
		add(b)
		from := &all[first+1].before
		x.CPU, x.Delay, known = x.CPU+b.before.cpu-from.cpu, x.Delay+b.before.delay-from.delay, known+b.before.known-from.known
	}
	span := c.Duration()
	if span-known > span/100 {
		return x, false
	}
	x.Off = max(span-x.CPU-x.Delay, 0)
	if x.Exact = b.exact && b.before.exact-a.before.exact == last-first; !x.Exact && span < 2*t.longestEvery(c) {
		return CallTimes{}, false
	}
	x.Woken = longest(all[first:last+1], c)
	return x, true
}

// longestEvery returns the longest time between ticks of the thread of a call, while it lasted.
func (t *CallTimer) longestEvery(c *Call) int64 {
	all, ns := t.rates[c.Thread], t.every
	first := sort.Search(len(all), func(i int) bool { return all[i].at > c.Enter })
	for _, r := range all[max(first-1, 0):min(first+maxWaitsOfCall, len(all))] {
		if r.at >= c.Exit {
			break
		}
		ns = max(ns, r.every)
	}
	return ns
}

// rated collects the rates of a thread beside its intervals.
type rated struct {
	others
	timer  *CallTimer
	thread int
}

// Other implements trace.SliceHandler.
func (r rated) Other(e event.Event) {
	if e.Kind() == event.Rate && r.timer.left > 0 {
		r.timer.left--
		r.timer.rates[r.thread] = append(r.timer.rates[r.thread], rate{e.Time, int64(min(e.Payload(), uint64(maxTime)))})
	}
	r.others.Other(e)
}

// maxWaitsOfCall bounds the waits and the rates of one call among which the longest is looked for.
const maxWaitsOfCall = 1 << 10

// longest returns what ended the longest wait of a call; 0: unknown, or it was not over with the call.
func longest(in []spent, c *Call) (woken uint64) {
	var most stack.Time
	for i := range in[:min(len(in), maxWaitsOfCall)] {
		s := &in[i]
		if n := min(s.end, c.Exit) - max(s.begin, c.Enter); s.wait && n > most {
			if most, woken = n, s.woken; s.end > c.Exit {
				woken = 0
			}
		}
	}
	return woken
}

// read reads the intervals of a thread; nil: there are too many.
func (t *CallTimer) read(thread int) (all []spent) {
	var before sums
	in := &Intervals{Yield: func(i *Interval) {
		if t.left <= 0 || i.End <= i.Begin {
			return
		}
		t.left--
		state, _ := i.Waiting.State()
		all = append(all, spent{begin: i.Begin, end: i.End, cpu: i.CPU, delay: i.Delay, woken: i.Woken, wait: Waits(state) && state != stack.StateRunnable, exact: i.Exact, before: before})
		before.cpu, before.delay, before.known = before.cpu+i.CPU, before.delay+i.Delay, before.known+int64(i.End-i.Begin)
		if i.Exact {
			before.exact++
		}
	}}
	in.Close(t.v.Slices(&t.v.Threads[thread], rated{others{in}, t, thread}))
	if t.left <= 0 {
		return nil
	}
	return slices.Clip(all)
}
