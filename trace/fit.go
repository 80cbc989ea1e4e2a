package trace

import (
	"iter"
	"slices"
	"sort"
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// A sample that finds a thread in another state than the sample before does not show when between the two the
// state changed. The recorder gives the change the time of the later sample. That is right on average as long
// as samples are taken regardless of the state. Ticks that are left out to hold the overhead bound are not:
// a running thread costs a stop, a sleeping one does not, so that sleeping calls would get the time of the
// samples that are missing. Nor are those of a clock, which are taken while the thread runs, nor a wait for a CPU of
// some µs because the timer interrupt of the tick woke the thread, too.
//
// The scheduler knows how long a thread ran and how long it waited for a CPU. fit moves the changes to earlier
// times, none beyond the sample before it and none further than the account between the two samples allows, so
// that the time in these states adds up to the scheduler's account where that is possible. What a sample found
// stays true at the time of the sample. Moving every change as far as its own account allows would be wrong:
// waits shorter than the interval between samples are mostly between two samples that found the thread running.
// Between two samples that found it in different waits, it runs in what their stacks share.

// Limits of a batch of events that are fitted together.
const (
	fitChanges = 1024
	fitEvents  = 1 << 16
)

// fitter buffers the events of one thread between accounts.
type fitter struct {
	yield func(event.Event) bool
	maps  []Maps
	last  follower // of the events so far

	buf     []event.Event
	made    []event.Event // of one nap
	group   []event.Event // of one change
	aside   []event.Event // events between its old and its new time that stay
	changes []change
	sent    int   // events of buf that were passed on
	given   int   // events that were passed on of the batch
	stopped bool  // yield wants no more
	cpu     int64 // ns by the account
	delay   int64
	ran     int64 // ns by the samples
	ready   int64

	state stack.State
	at    stack.Time // time summed so far
	seen  stack.Time // of the last sample
	sure  stack.Time // of it, or of the change to the present state
	ends  bool       // the last sample ends the span, once its account is complete
	span  stretch    // since the last account
	high  stack.Time // of the events passed on
	sync  uint64     // remaining Enter events of a Sync
	again bool       // the next State repeats the present one, after a Sync

	told bool // there is an account, in this batch or, with soon, in one before
	// While a thread is recorded, batches are short, and end at any event: ran and ready count to the last sample,
	// the time behind it is for the next batch, as is what a batch could not move.
	soon                 bool
	begin                stack.Time // of the batch
	ranLater, readyLater int64      // ns behind the last sample
}

// change is a change of state in the buffer.
type change struct {
	event    int // index of its State
	from, to stack.State
	nap      bool  // a wait between two samples that found it running, of which the event is the second
	since    int64 // ns from the sample before
	room     int64 // ns by which it may be earlier
	shift    int64 // ns by which it is
	delay    int64 // ns by the account for which it waited for a CPU, in the span
	other    int64 // ns of the time on a CPU or waiting for one that are the other: see fitter.queue
}

// stretch is the time from one account of a thread's CPU time to the next. Copies by a clock are samples in between:
// the CPU time of one by a clock of all CPUs is only that clock's period.
type stretch struct {
	from    stack.Time
	changes int   // number of those before it
	on      int64 // ns on a CPU, or waiting for one, that the samples in it have
	delay   int64 // ns of it waiting for one
	ran     int64 // ns between samples that found the thread running, or ready, or a change to it, and the next such sample
	slept   int64 // the same, blocked
	copies  bool  // a clock copied the thread in it
}

// between reports whether the thread ran between two waits.
func (c *change) between() bool { return !wantsCPU(c.from) && !wantsCPU(c.to) }

// bound limits the room by the account of the span, of the given length, that the change is in.
func (c *change) bound(s *stretch, length int64) {
	if s.copies || c.between() {
		c.delay = s.delay
	}
	switch {
	case c.nap:
		least := max(s.on-(length-c.since-s.slept), c.since/32)
		if c.room = max(c.since-least, 0); c.room < c.since/napPart {
			c.room = 0
		}
	case wantsCPU(c.from) && wantsCPU(c.to):
	case !wantsCPU(c.from):
		c.room = min(c.room, max(s.on-s.ran, 0))
	default:
		least := max(s.on-(length-c.since-s.slept), 0) // all other time on a CPU that it may have been
		c.room = min(c.room, max(c.since-least, 0))
	}
}

func wantsCPU(s stack.State) bool { return s == stack.StateRunning || s == stack.StateRunnable }

// fitBuffers are buffers of threads that were fitted: one of a batch takes up to 2 MB.
var fitBuffers = sync.Pool{New: func() any { return new([]event.Event) }}

// fit yields the events of a thread with changes of state at times that agree with the scheduler's account.
func fit(events iter.Seq[event.Event], maps []Maps) iter.Seq[event.Event] {
	return func(yield func(event.Event) bool) {
		kept := fitBuffers.Get().(*[]event.Event)
		f := &fitter{yield: yield, maps: maps, buf: (*kept)[:0]}
		defer func() {
			*kept = f.buf[:0]
			fitBuffers.Put(kept)
		}()
		for e := range events {
			if !f.apply(e) {
				return
			}
		}
		f.flush()
	}
}

// apply buffers an event. It returns false if yield did.
func (f *fitter) apply(e event.Event) bool {
	k := e.Kind()
	if len(f.buf) >= 2*fitEvents && !f.flush() { // events without samples
		return false
	}
	if k == event.Enter && f.sync > 0 { // with the time at which its frame was entered
		f.sync--
		f.buf = append(f.buf, e)
		return true
	}
	f.sync = 0
	f.spend(e.Time)
	if f.ends && k != event.Seen && k != event.Sched {
		f.account(0)
	}
	switch k {
	case event.Sync:
		f.sync, f.again = e.Payload(), true
	case event.Exit, event.Enter, event.Move: // a sample's, whose Seen may be that of several
		f.found(e.Time)
	case event.Seen:
		if len(f.changes) >= fitChanges || len(f.buf) >= fitEvents {
			if !f.flush() {
				return false
			}
		}
		f.account(0)
		f.look(e)
	case event.Sched:
		_, ns := event.SchedFields(e.Payload())
		f.delay += ns
		f.account(ns)
	case event.State:
		f.change(e)
	case event.Gap:
		if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
			f.state = stack.StateUnknown
		}
	case event.Mark:
		if why := stack.Why(e.Payload()); why == stack.WhyGone || why == stack.WhyExec {
			f.state = stack.StateUnknown
		}
	}
	f.buf = append(f.buf, e)
	return true
}

// found counts the time up to a sample at t in the present state, before the event at hand is in the buffer.
func (f *fitter) found(t stack.Time) {
	since := int64(t - f.sure)
	if since <= 0 {
		return
	}
	if wantsCPU(f.state) {
		f.span.ran += since
		f.nap(since)
	} else {
		f.span.slept += since
	}
	f.sure = t
}

// look takes the account of a sample.
func (f *fitter) look(e event.Event) {
	way, _, ns := event.SeenFields(e.Payload())
	f.found(e.Time)
	f.cpu += ns
	f.span.on += ns
	f.take()
	f.seen = e.Time
	f.span.copies = f.span.copies || way == stack.WayClock
	f.ends = way != stack.WayClock
}

// account ends the span if the last sample does. ns is the rest of its account, of waiting for a CPU.
func (f *fitter) account(ns int64) {
	f.span.on += ns
	f.span.delay += ns
	if !f.ends {
		return
	}
	first := min(f.span.changes, len(f.changes))
	if !f.span.copies { // the samples are at ticks, as are those of waits
		f.changes = f.changes[:first+len(slices.DeleteFunc(f.changes[first:], func(c change) bool { return c.nap }))]
	}
	in, length := f.changes[first:], int64(f.seen-f.span.from)
	for i := range in {
		in[i].bound(&f.span, length)
	}
	f.share(in, length)
	f.span, f.ends = stretch{from: f.seen, changes: len(f.changes)}, false
}

// spend counts the time up to t for the present state.
func (f *fitter) spend(t stack.Time) {
	if t <= f.at {
		return
	}
	switch f.state {
	case stack.StateRunning:
		f.ranLater += int64(t - f.at)
	case stack.StateRunnable:
		f.readyLater += int64(t - f.at)
	}
	f.at = t
}

// take counts the time behind the last sample.
func (f *fitter) take() {
	f.ran, f.ready = f.ran+f.ranLater, f.ready+f.readyLater
	f.ranLater, f.readyLater = 0, 0
}

// change notes a change of state.
func (f *fitter) change(e event.Event) {
	to, _ := event.StateFields(e.Payload())
	from, again := f.state, f.again
	f.state, f.again, f.sure = to, false, e.Time
	known := func(s stack.State) bool { return s != stack.StateUnknown && s != stack.StateDead }
	if !known(from) || !known(to) || again || from == to && wantsCPU(to) {
		return
	}
	since := int64(e.Time - f.seen)
	first := f.seen
	// The names of the later sample's frames depend on the mappings at its time.
	if i := sort.Search(len(f.maps), func(i int) bool { return f.maps[i].At > e.Time }); i > 0 {
		first = max(first, f.maps[i-1].At)
	}
	// The sample before found the thread in the old state for a while.
	room := int64(e.Time-first) * 7 / 8
	if room > 0 && len(f.buf) > 0 && f.seen != 0 {
		f.changes = append(f.changes, change{event: len(f.buf), from: from, to: to, since: since, room: room})
	}
}

// flush yields the buffered events.
func (f *fitter) flush() bool {
	f.account(0)
	if !f.soon {
		f.take()
	}
	f.told = f.told || f.cpu+f.delay > 0
	if f.told { // otherwise the recording has no account
		f.move(f.cpu+f.delay-f.ran-f.ready, (*change).on)
		for i := range f.changes {
			switch c := &f.changes[i]; {
			case c.from == stack.StateRunnable:
				f.ready -= c.shift
			case c.to == stack.StateRunnable:
				f.ready += c.shift
			default:
				f.ran += c.on() * c.shift
			}
		}
		f.queue(f.delay - f.ready)
	}
	f.sent, f.given = 0, 0
	next := 0
	for i := range f.changes {
		switch c := &f.changes[i]; {
		case max(c.shift, c.other) < minShift || c.event < next: // at the same time as the one before
		case c.nap:
			next = f.sleep(c, next)
		default:
			next = f.shift(c, next)
		}
	}
	f.upTo(len(f.buf))
	if f.stopped {
		return false
	}
	f.buf, f.changes, f.span.changes, f.high = f.buf[:0], f.changes[:0], 0, max(f.high, f.at)
	f.rest()
	return true
}

// upTo passes on the events of buf before number n.
func (f *fitter) upTo(n int) {
	f.emit(f.buf[f.sent:n]...)
	f.sent = n
}

// emit passes events on.
func (f *fitter) emit(events ...event.Event) {
	for i := range events {
		f.last.apply(events[i])
	}
	f.pass(events...)
}

// pass passes events on that the follower does not need.
func (f *fitter) pass(events ...event.Event) {
	for i := 0; i < len(events) && !f.stopped; i++ {
		f.stopped = !f.yield(events[i])
	}
	f.given += len(events)
}

// on returns what moving the change by a ns adds to the time on a CPU or waiting for one.
func (c *change) on() int64 {
	switch {
	case !wantsCPU(c.from):
		return 1
	case !wantsCPU(c.to) || c.nap:
		return -1
	}
	return 0
}

// rest begins the next batch. With soon, what the account has more or less than the samples, which this batch had
// no room for, is left to the next, up to the length of this one.
func (f *fitter) rest() {
	cpu, delay := int64(0), int64(0)
	if f.soon && f.told {
		most := int64(f.at - f.begin)
		cpu = min(max(f.cpu-f.ran, -most), most)
		delay = min(max(f.delay-f.ready, -most), most)
	}
	f.cpu, f.delay, f.ran, f.ready, f.begin = cpu, delay, 0, 0, f.at
	f.told = f.told && f.soon
}

// Fitter is fit for the events of a thread that is being recorded: what Recording.Fitted does at once, it does for
// short batches, and so a little less well. The zero value is not ready: see NewFitter.
type Fitter struct{ f fitter }

// NewFitter returns a Fitter that passes events on in their order, some of them later than they were applied.
func NewFitter(yield func(event.Event)) *Fitter {
	return &Fitter{fitter{soon: true, yield: func(e event.Event) bool { yield(e); return true }}}
}

// Apply takes the next event.
func (f *Fitter) Apply(e event.Event) { f.f.apply(e) }

// Lose passes on all events so far: some behind them are lost, and the thread's state is not known.
func (f *Fitter) Lose() {
	f.f.flush()
	f.f.state = stack.StateUnknown
}

// Waits reports whether Flush has events to pass on.
func (f *Fitter) Waits() bool { return len(f.f.buf) > 0 }

// Flush passes on all events so far. The more there are, the better their times.
func (f *Fitter) Flush() { f.f.flush() }

// minShift is the shortest time, in ns, by which a change is moved.
const minShift = 1000

// move shifts changes that make a time longer by ns, which may be negative, each in proportion to its room. adds
// is 1 for a change that makes it longer, -1 for one that makes it shorter, and else 0.
func (f *fitter) move(ns int64, adds func(*change) int64) {
	sign := int64(1)
	if ns < 0 {
		sign, ns = -1, -ns
	}
	room := int64(0)
	for i := range f.changes {
		if c := &f.changes[i]; adds(c) == sign {
			room += c.room
		}
	}
	part := 1.0
	if ns < room {
		part = float64(ns) / float64(room)
	}
	exact, given := 0.0, int64(0)
	for i := range f.changes {
		if c := &f.changes[i]; adds(c) == sign {
			exact += float64(c.room) * part
			c.shift = min(int64(exact+.5)-given, c.room)
			given += c.shift
		}
	}
}

// shift writes the events from number next up to those of a change, which get their time, and returns the number
// of the event after them. A Task before the State is of the same sample, and moves with it. Events in between that
// are about neither the stack nor the state keep their time, and come later.
func (f *fitter) shift(c *change, next int) int {
	at := f.buf[c.event].Time
	to := at - stack.Time(c.shift)
	from := to
	if wantsCPU(c.from) {
		from -= stack.Time(c.other)
	}
	first := c.event
	for first > next && f.buf[first-1].Time > from && (aside(f.buf[first-1].Kind()) || f.buf[first-1].Time == at && found(f.buf[first-1].Kind())) {
		first--
	}
	for _, e := range f.buf[next:first] {
		f.high = max(f.high, e.Time)
	}
	from, to = max(from, f.high), max(to, f.high)
	end := c.event
	for end < len(f.buf) && f.buf[end].Time == at && found(f.buf[end].Kind()) {
		end++
	}
	f.high = at
	queues := !wantsCPU(c.from) && wantsCPU(c.to) && c.other >= minShift && to+stack.Time(c.other) <= at
	if !queues && !c.between() && from >= to && !slices.ContainsFunc(f.buf[first:c.event], func(e event.Event) bool { return aside(e.Kind()) }) {
		for i := range f.buf[first:end] {
			f.buf[first+i].Time = to
		}
		return end
	}
	f.upTo(first)
	f.sent = end
	if from < to {
		f.emit(event.Make(from, event.State, otherThan(c.from)))
	}
	f.group, f.aside = f.group[:0], f.aside[:0]
	for _, e := range f.buf[first:c.event] {
		switch {
		case !aside(e.Kind()):
			f.group = append(f.group, e)
		case e.Time < to:
			f.emit(e)
		default:
			f.aside = append(f.aside, e)
		}
	}
	f.group = append(f.group, f.buf[c.event:end]...)
	if queues {
		f.queueFirst(c, to)
		return end
	}
	if !c.between() {
		for _, e := range f.group {
			f.emit(event.Event{Time: to, Value: e.Value})
		}
		f.emit(f.aside...)
		return end
	}
	f.between(c, to)
	for _, e := range f.group {
		if e.Kind() != event.Exit {
			f.emit(e)
		}
	}
	return end
}

// between writes the beginning of the time between two waits, in which the thread runs from t on, or first waits for a CPU in
// the call of the first wait.
func (f *fitter) between(c *change, t stack.Time) {
	at := f.buf[c.event].Time
	if runs := t + stack.Time(c.other); c.other >= minShift && runs <= at {
		f.emit(event.Make(t, event.State, otherThan(stack.StateRunning)))
		for len(f.aside) > 0 && f.aside[0].Time < runs {
			f.emit(f.aside[0])
			f.aside = f.aside[1:]
		}
		t = runs
	}
	f.emit(event.Make(t, event.State, event.StateOf(stack.StateRunning, -1)))
	for _, e := range f.group {
		if e.Kind() == event.Exit {
			f.emit(event.Event{Time: t, Value: e.Value})
		}
	}
	f.emit(f.aside...)
}

// aside reports whether events of a kind are about neither the stack nor the state. A Mark or Gap that is about
// them is followed by a stack of its own, and no change.
func aside(k event.Kind) bool {
	switch k {
	case event.Pause, event.Gap, event.Rate, event.Parked, event.Mark:
		return true
	}
	return false
}

// found reports whether events of a kind say what a sample found.
func found(k event.Kind) bool {
	switch k {
	case event.Enter, event.Exit, event.Move, event.State, event.Wait, event.Lock, event.Holder, event.Task:
		return true
	}
	return false
}
