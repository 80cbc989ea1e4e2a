package trace

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// A clock copies a thread only while it runs. Where there are more copies than looks that find the thread blocked, most
// waits are between two copies: no change of state shows them, and all of that time would be the running call's. The
// account of the span says how long they were. fit inserts them as naps: waits like the last one that a sample found. So
// a call that waits gets the time until the next sample of another one, as it does between ticks.

// napPart is the least part of the time between two samples that a nap in it takes: shorter ones would cut calls into
// more pieces than their time is worth.
const napPart = 8

// nap notes that there may be a wait between the sample at hand and the one before, since ns ago. Its room comes with the
// account.
func (f *fitter) nap(since int64) {
	if f.state == stack.StateRunning && since > minShift && f.seen != 0 {
		f.changes = append(f.changes, change{event: len(f.buf), from: f.state, to: f.state, since: since, nap: true})
	}
}

// share limits the time asleep in the newest span to what its account leaves.
func (f *fitter) share(changes []change, length int64) {
	sum := int64(0)
	for i := range changes {
		if c := &changes[i]; c.on() < 0 {
			sum += c.room
		}
	}
	spare := max(length-f.span.on-f.span.slept, 0)
	if sum <= spare {
		return
	}
	for i := range changes {
		if c := &changes[i]; c.on() < 0 {
			c.room = int64(float64(c.room) * float64(spare) / float64(sum))
		}
	}
}

// queue adds ns to the time of waiting for a CPU, and takes them from that on one; ns may be negative. A thread waits from
// a sample that found it so, and then runs until the next change. Between samples that found it on a CPU it waits after
// its naps, and before and after the changes.
func (f *fitter) queue(ns int64) {
	if ns > 0 {
		f.move(ns, func(c *change) int64 {
			if c.from == stack.StateRunning && c.to == stack.StateRunnable {
				return 1
			}
			return 0
		})
		for i := range f.changes {
			if c := &f.changes[i]; c.from == stack.StateRunning && c.to == stack.StateRunnable {
				f.ready, f.ran, ns = f.ready+c.shift, f.ran-c.shift, ns-c.shift
			}
		}
	}
	sign, of := int64(1), (*change).unseen
	if ns < 0 {
		sign, of = -1, (*change).queued
	}
	room := int64(0)
	for i := range f.changes {
		room += of(&f.changes[i])
	}
	part := min(float64(sign*ns)/float64(max(room, 1)), 1)
	for i := range f.changes {
		c := &f.changes[i]
		if c.other = int64(float64(of(c)) * part); c.other < minShift {
			c.other = 0
		}
		f.ready += sign * c.other
		f.ran -= sign * c.other
	}
}

// queued returns for how long the thread waits for a CPU between the sample before the change and the change, in ns.
func (c *change) queued() int64 {
	if c.from != stack.StateRunnable {
		return 0
	}
	return c.since - c.shift
}

// unseen returns for how long it may have waited for a CPU there where samples found it on one, in ns.
func (c *change) unseen() (ns int64) {
	switch {
	case c.nap:
		ns = c.since*31/32 - c.shift
	case c.from == stack.StateRunning && !wantsCPU(c.to):
		ns = (c.since - c.shift) * 31 / 32
	case c.between(), !wantsCPU(c.from) && c.to == stack.StateRunning:
		ns = c.shift * 31 / 32
	}
	if ns = min(ns, c.delay); ns < c.since/napPart {
		return 0
	}
	return ns
}

// otherThan returns the payload of a State, running for runnable and runnable for running.
func otherThan(s stack.State) uint64 {
	if s == stack.StateRunnable {
		return event.StateOf(stack.StateRunning, -1)
	}
	return event.StateOf(stack.StateRunnable, -1)
}

// queueFirst writes the events of a change to running at t, after a wait for a CPU.
func (f *fitter) queueFirst(c *change, t stack.Time) {
	until := t + stack.Time(c.other)
	runs := f.buf[c.event].Value
	for _, e := range f.group {
		if e.Kind() == event.State {
			e.Value = event.Make(t, event.State, otherThan(stack.StateRunning)).Value
		}
		f.emit(event.Event{Time: t, Value: e.Value})
	}
	i := 0
	for i < len(f.aside) && f.aside[i].Time < until {
		i++
	}
	f.emit(f.aside[:i]...)
	f.emit(event.Event{Time: until, Value: runs})
	f.emit(f.aside[i:]...)
}

// sleep writes the events from number next on and a nap among them, in the middle of its time, and returns the number of
// the event after them.
func (f *fitter) sleep(c *change, next int) int {
	until := f.buf[c.event].Time
	from := until - stack.Time(c.since-(c.since-c.shift-c.other)/2)
	to := from + stack.Time(c.shift)
	runs := to + stack.Time(c.other)
	first := next
	for first < c.event && f.buf[first].Time <= from {
		first++
	}
	last := first
	for last < c.event && f.buf[last].Time < runs {
		if !aside(f.buf[last].Kind()) {
			return next
		}
		last++
	}
	for _, e := range f.buf[next:first] {
		f.high = max(f.high, e.Time)
	}
	if f.high > from {
		return next
	}
	f.upTo(first)
	f.sent = last
	naps := c.shift >= minShift && f.last.running() && f.given+2*len(f.last.stack)+2*len(f.last.frames) < 4*fitEvents
	if naps {
		f.made = f.last.begin(from, f.made[:0])
		f.pass(f.made...)
	}
	for first < last && f.buf[first].Time < to {
		f.pass(f.buf[first])
		first++
	}
	if naps {
		f.made = f.last.end(to, f.made[:0])
		f.pass(f.made...)
	}
	if c.other > 0 && f.last.runs() {
		f.pass(event.Make(to, event.State, otherThan(stack.StateRunning)))
		f.pass(f.buf[first:last]...)
		f.pass(event.Event{Time: runs, Value: f.last.now[0].Value})
	} else {
		f.pass(f.buf[first:last]...)
	}
	f.high = runs
	return last
}

// follower knows a thread's stack, and its last wait.
type follower struct {
	stack  []event.Word // outermost first
	synced bool
	sync   uint64 // remaining frames of a Sync
	resume bool   // they are new
	now    []event.Event

	frames []event.Word  // of the last wait that a sample found
	wait   []event.Event // its State, Wait and Lock; none: no wait is known
	shared int           // the frames that were on the stack ever since; the last of them may have moved
}

// mostFrames bounds the stacks of naps.
const mostFrames = 4096

// apply takes the next event.
func (w *follower) apply(e event.Event) {
	switch e.Kind() {
	case event.Enter:
		if w.sync > 0 {
			w.sync--
			if !w.resume {
				return
			}
		}
		if w.synced && len(w.stack) <= mostFrames {
			w.stack = append(w.stack, event.Word(e.Payload()))
		}
		return
	case event.Exit:
		if n := len(w.stack); n > mostFrames {
			w.forget() // how many there are is not known
		} else if n > 0 {
			w.stack = w.stack[:n-1]
			w.shared = min(w.shared, n-1)
		}
	case event.Move:
		if n := len(w.stack); n > 0 {
			w.stack[n-1] = event.Word(e.Payload())
		}
	case event.Sync:
		w.sync, w.resume, w.synced = e.Payload(), !w.synced, true
		return
	case event.State:
		w.now = append(w.now[:0], e)
	case event.Wait, event.Lock:
		if len(w.now) > 0 && len(w.now) < 3 {
			w.now = append(w.now, e)
		}
	case event.Seen:
		w.seen()
	case event.Gap:
		if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
			w.forget()
		}
	case event.Mark:
		if why := stack.Why(e.Payload()); why == stack.WhyGone || why == stack.WhyExec {
			w.wait = w.wait[:0]
		}
	}
	w.sync = 0
}

// seen notes the wait that a sample found.
func (w *follower) seen() {
	if len(w.now) == 0 || !w.synced || len(w.stack) > mostFrames {
		return
	}
	if s, _ := event.StateFields(w.now[0].Payload()); s != stack.StateBlocked {
		return
	}
	w.frames = append(w.frames[:0], w.stack...)
	w.wait = append(w.wait[:0], w.now...)
	w.shared = len(w.stack)
}

// forget drops everything: events are missing.
func (w *follower) forget() {
	w.stack, w.now, w.wait = w.stack[:0], w.now[:0], w.wait[:0]
	w.synced, w.shared = false, 0
}

// runs reports whether the thread runs.
func (w *follower) runs() bool {
	if len(w.now) != 1 {
		return false
	}
	s, _ := event.StateFields(w.now[0].Payload())
	return s == stack.StateRunning
}

// running reports whether a nap fits here: the thread runs, and its last wait is known.
func (w *follower) running() bool {
	return w.runs() && len(w.wait) > 0 && w.synced && len(w.stack) <= mostFrames
}

// begin appends events that put the thread to sleep at t.
func (w *follower) begin(t stack.Time, out []event.Event) []event.Event {
	out = append(out, event.Event{Time: t, Value: w.wait[0].Value})
	out = w.replace(t, w.stack, w.frames, out)
	for _, e := range w.wait[1:] {
		out = append(out, event.Event{Time: t, Value: e.Value})
	}
	return out
}

// end appends events that let it run on at t.
func (w *follower) end(t stack.Time, out []event.Event) []event.Event {
	out = append(out, event.Event{Time: t, Value: w.now[0].Value})
	return w.replace(t, w.frames, w.stack, out)
}

// replace appends the events from one stack to another.
func (w *follower) replace(t stack.Time, from, to []event.Word, out []event.Event) []event.Event {
	n := w.shared
	for range from[n:] {
		out = append(out, event.Make(t, event.Exit, 0))
	}
	if n > 0 && from[n-1] != to[n-1] {
		out = append(out, event.Make(t, event.Move, uint64(to[n-1])))
	}
	for _, word := range to[n:] {
		out = append(out, event.Make(t, event.Enter, uint64(word)))
	}
	return out
}
