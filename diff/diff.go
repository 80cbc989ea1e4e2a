// Package diff converts the samples of one thread to events (Differ) and events back to stacks
// (Replayer). A frame that is new in a sample was entered; a frame that is missing was left.
//
// Neither uses a clock or a target; times are those of the samples. A Differ or Replayer belongs
// to one goroutine.
package diff

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// frame is one activation of the stack as last seen.
type frame struct {
	stack.Frame
	word    event.Word
	entered stack.Time
}

// Differ holds one thread's last stack.
type Differ struct {
	// SeenEvery is the longest time (ns) for which an unchanged stack gets no event; 0 means
	// DefaultSeenEvery.
	SeenEvery int64

	frames  []frame // outermost first
	scratch []stack.Frame

	seen      stack.Time // time of the last sample
	unsaid    int        // samples since the last Seen
	way       stack.Way  // the way these were taken
	cpuSaid   int64      // CPU time as of the last Seen; -1: unknown
	cpu       int64      // CPU time at the last sample
	saidAt    stack.Time // time of the last Seen
	state     stack.State
	gil       bool
	call      stack.Call
	waiting   Waiting // reported parts of the wait since the last State
	task      uint64  // payload of the last Task
	switches  uint64
	delay     int64
	swSaid    uint64
	delaySaid int64
	started   bool
	sinceSync int
}

// DefaultSeenEvery updates a live view four times a second.
const DefaultSeenEvery = 250_000_000

// Depth returns the number of frames of the stack as last seen.
func (d *Differ) Depth() int { return len(d.frames) }

// SinceSync returns the number of events since the last Sync.
func (d *Differ) SinceSync() int { return d.sinceSync }

// Step compares s with the sample before and appends the changes to out. The first call appends
// the whole stack after a Sync.
//
// If a sample's stack is incomplete (s.Reason) and the stack before has the last frame that was
// found, as the same activation, then Step joins them there: an activation that still exists has
// the same callers. Otherwise an error frame is inserted below the sample's frames. Under it Step
// keeps those outer frames of the stack before whose return addresses (s.Word) are unchanged.
func (d *Differ) Step(s *stack.Sample, out []event.Event) []event.Event {
	first := len(out)
	if !d.started {
		d.begin(s)
	}
	frames, known := d.outermostFirst(s)
	common, moved := 0, false
	if s.Way == stack.WayUnrun {
		common = len(d.frames)
	} else {
		common = d.common(frames, known)
		moved = common > 0 && common > known && d.frames[common-1].word != event.WordOf(&frames[common-1-known])
	}
	total := known + len(frames)
	if s.Way == stack.WayUnrun {
		total = common
	}
	again := d.another(s)
	leaf := again && common == total && common == len(d.frames) && common > 0
	if leaf { // the same stack, in another wait: another slice
		common--
		moved = false
	}
	changed := !d.started || moved || common < len(d.frames) || common < total
	stateChanged := s.State != d.state || s.Call.Nr != d.call.Nr || s.GIL != d.gil || again

	if d.unsaid > 0 && (changed || stateChanged || s.Way != d.way || d.unsaid+s.Again >= event.MaxSeen ||
		int64(s.Time-d.saidAt) >= d.seenEvery() || s.CPU-d.cpuSaid > event.MaxSeenCPU/2) {
		out = d.say(out)
	}
	if s.Pause > 0 {
		out = append(out, event.Make(s.Begin, event.Pause, uint64(s.Pause)))
	}
	if stateChanged {
		d.state, d.gil, d.waiting = s.State, s.GIL, Waiting{}
		out = append(out, event.Make(s.Time, event.State, statePayload(s.State, s.Call.Nr, s.GIL)))
	}
	for i := len(d.frames); i > common; i-- {
		out = append(out, event.Event{Time: s.Time})
	}
	d.frames = d.frames[:common]
	if moved {
		top := &d.frames[common-1]
		top.Frame = frames[common-1-known]
		top.word = event.WordOf(&top.Frame)
		out = append(out, event.Make(s.Time, event.Move, uint64(top.word)))
	}
	fresh := !d.started
	d.started = true
	if s.Way != stack.WayUnrun {
		for i := common - known; i < len(frames); i++ {
			f := frame{Frame: frames[i], word: event.WordOf(&frames[i]), entered: s.Time}
			d.frames = append(d.frames, f)
			if !fresh {
				out = append(out, event.Make(s.Time, event.Enter, uint64(f.word)))
			}
		}
	}
	d.seen, d.way, d.cpu = s.Time, s.Way, s.CPU
	d.switches, d.delay, d.call = s.Switches, s.Delay, s.Call
	d.unsaid += 1 + s.Again
	d.sinceSync += len(out) - first
	if fresh {
		out = d.sync(out) // this sample's data follows its stack
	}
	return out
}

func (d *Differ) seenEvery() int64 {
	if d.SeenEvery > 0 {
		return d.SeenEvery
	}
	return DefaultSeenEvery
}

func (d *Differ) begin(s *stack.Sample) {
	d.cpuSaid, d.cpu = s.CPU, s.CPU
	d.swSaid, d.delaySaid = s.Switches, s.Delay
	d.saidAt = s.Time
	d.state, d.call = stack.StateUnknown, stack.Call{Nr: -1}
}

// another reports whether the thread waits as at the sample before, but has run in between: it
// was switched in, or makes another call with the same number. A switch right after a stop is
// caused by the stop itself.
func (d *Differ) another(s *stack.Sample) bool {
	if !d.started || s.State != d.state || s.Call.Nr != d.call.Nr || s.Way == stack.WayUnrun {
		return false
	}
	switch s.State {
	case stack.StateBlocked:
		return s.Switches != d.switches && d.way != stack.WayStop || s.Call.Nr >= 0 && s.Call.Args != d.call.Args
	case stack.StateDisk, stack.StateFault:
		// A call that reads much sleeps many times.
		return s.Call.Nr >= 0 && s.Call.Args != d.call.Args
	}
	return false
}

// outermostFirst returns s's frames with the outermost first, and how many frames of the stack
// before remain below them (0 unless s is incomplete and could be joined). The slice is valid
// until the next call.
func (d *Differ) outermostFirst(s *stack.Sample) (frames []stack.Frame, known int) {
	if s.Way == stack.WayUnrun {
		return nil, len(d.frames)
	}
	d.scratch = d.scratch[:0]
	in := s.Stack
	if s.Reason != stack.ReasonNone && len(in) > 1 {
		last, whole := nativeEnd(in)
		if k := d.join(in, last, s.Word); k >= 0 {
			known = k
			in = in[:last+1] // without the error frame, and without Python frames that have no place
		} else if whole {
			known = d.intact(d.above(outermost(in[:last+1]), s), s.Word)
		}
	}
	for i := len(in) - 1; i >= 0; i-- {
		d.scratch = append(d.scratch, in[i])
	}
	for i := len(s.Kernel) - 1; i >= 0; i-- {
		d.scratch = append(d.scratch, s.Kernel[i])
	}
	return d.scratch, known
}

// outermost returns the CFA of the outermost frame of an incomplete walk. If that is unknown
// because of missing registers, it returns the CFA of the frame that it called.
func outermost(in []stack.Frame) (cfa uint64) {
	for i := len(in) - 1; i >= 0 && cfa == 0; i-- {
		cfa = in[i].CFA
	}
	return cfa
}

// nativeEnd returns the index of the outermost frame that an incomplete walk found on the
// thread's stack. whole is false if the error frame is followed by frames of a managed runtime
// whose places between the missing ones are unknown.
func nativeEnd(in []stack.Frame) (last int, whole bool) {
	last = len(in) - 2
	if !in[last].Kind.OffStack() {
		return last, true
	}
	for k := in[last].Kind; last > 0 && in[last].Kind == k; {
		last--
	}
	return max(last-1, 0), false // without the error frame
}

// join finds in[last], the outermost frame found by an incomplete walk, in the last stack, and
// returns its index, or -1. The callers of that frame are those of the sample before, unless one
// of their return addresses has changed: a coroutine's stack may have been copied over another's.
func (d *Differ) join(in []stack.Frame, last int, word func(uint64) (uint64, bool)) int {
	f := &in[last]
	if f.Func == 0 || f.Exact || f.Kind == stack.KindError {
		return -1
	}
	for i := len(d.frames) - 1; i >= 0; i-- {
		g := &d.frames[i]
		if g.CFA == f.CFA && g.Func == f.Func && g.PC == f.PC && g.Kind == f.Kind && g.Order == f.Order {
			if !d.unchanged(i, word) {
				return -1
			}
			return i
		}
		if g.CFA > f.CFA && g.Kind.Ordered() {
			return -1 // all frames further out are higher
		}
	}
	return -1
}

// above counts the frames, from the outermost on, that are on the same stack as an incomplete
// walk and further out than its end. On another stack (a coroutine's, a signal's) a higher
// address proves nothing. A Seen of stack.WayPart does not confirm them.
func (d *Differ) above(cfa uint64, s *stack.Sample) (n int) {
	on := func(f *frame) bool {
		return (f.CFA > cfa && f.CFA <= s.Reach || f.Kind.OffStack()) && (s.Here == nil || s.Here(&f.Frame))
	}
	for s.Reach != 0 && n < len(d.frames) && on(&d.frames[n]) && d.frames[n].Kind != stack.KindError {
		n++
	}
	return n
}

// intact counts how many of the first n frames may still exist: a call whose return address was
// overwritten has returned, and so have its callees. For managed functions with frames on the thread's
// stack, which have no return address here, this is unknown.
func (d *Differ) intact(n int, word func(uint64) (uint64, bool)) int {
	for i := range n {
		if d.frames[i].Kind.Unverified() {
			return i
		}
	}
	for i := 1; i < n && word != nil; i++ {
		if d.returned(i, word) {
			return i
		}
	}
	return n
}

// unchanged reports whether none of the frames up to the n-th is known to have returned.
func (d *Differ) unchanged(n int, word func(uint64) (uint64, bool)) bool {
	for i := 1; i <= n && word != nil; i++ {
		if d.returned(i, word) {
			return false
		}
	}
	return true
}

// returned reports whether the return address of the i-th frame was overwritten.
func (d *Differ) returned(i int, word func(uint64) (uint64, bool)) bool {
	f, caller := &d.frames[i], &d.frames[i-1]
	if f.Kind != stack.KindNative || caller.Kind != stack.KindNative || caller.Exact {
		return false // not a call that pushed its return address there
	}
	ra, ok := word(f.CFA - 8)
	return ok && ra != caller.PC
}

// common counts the frames, from the outermost on, that are the same activation before and now.
// frames begins at depth known.
func (d *Differ) common(frames []stack.Frame, known int) int {
	if known > len(d.frames) {
		return len(d.frames)
	}
	n := known
	for n < len(d.frames) && n-known < len(frames) {
		f, g := &d.frames[n], &frames[n-known]
		var was, is uint64
		if n > 0 {
			was = d.frames[n-1].PC
			is = was
			if n > known {
				is = frames[n-1-known].PC
			}
		}
		if !stack.Same(&f.Frame, g, was, is) {
			break
		}
		n++
		// A frame that has moved had left its earlier callee. The frames above it are new, which
		// their changed return address shows in the next iteration.
	}
	return n
}

// say appends a Seen for the unreported samples, and a Sched if the scheduler's counts changed.
func (d *Differ) say(out []event.Event) []event.Event {
	if d.unsaid == 0 {
		return out
	}
	var cpu int64
	if d.cpu >= 0 && d.cpuSaid >= 0 {
		cpu = d.cpu - d.cpuSaid
	}
	out = append(out, event.Make(d.seen, event.Seen, event.SeenOf(d.way, d.unsaid, cpu)))
	if d.switches != d.swSaid || d.delay != d.delaySaid {
		out = append(out, event.Make(d.seen, event.Sched, event.SchedOf(d.switches-d.swSaid, d.delay-d.delaySaid)))
		d.swSaid, d.delaySaid = d.switches, d.delay
	}
	d.cpuSaid, d.saidAt, d.unsaid = d.cpu, d.seen, 0
	return out
}

// Unsaid returns the Seen that Flush would append; ok is false if there is none.
func (d *Differ) Unsaid() (e event.Event, ok bool) {
	if d.unsaid == 0 {
		return e, false
	}
	var cpu int64
	if d.cpu >= 0 && d.cpuSaid >= 0 {
		cpu = d.cpu - d.cpuSaid
	}
	return event.Make(d.seen, event.Seen, event.SeenOf(d.way, d.unsaid, cpu)), true
}

// Flush appends the unreported events of the samples so far, so that a reader has the stack up to
// the last of them.
func (d *Differ) Flush(out []event.Event) []event.Event {
	n := len(out)
	out = d.say(out)
	d.sinceSync += len(out) - n
	return out
}

// Sync appends the whole stack, for readers that begin here or have lost events.
func (d *Differ) Sync(out []event.Event) []event.Event {
	return d.sync(d.say(out))
}

func (d *Differ) sync(out []event.Event) []event.Event {
	out = append(out, event.Make(d.seen, event.Sync, uint64(len(d.frames))))
	for i := range d.frames {
		out = append(out, event.Make(d.frames[i].entered, event.Enter, uint64(d.frames[i].word)))
	}
	out = append(out, event.Make(d.seen, event.State, statePayload(d.state, d.call.Nr, d.gil)))
	out = d.waiting.appendWait(out, d.seen)
	if d.task != 0 {
		out = append(out, event.Make(d.seen, event.Task, d.task))
	}
	d.sinceSync = 0
	return out
}

// Gap records that samples are missing before t. The stack is kept: the next sample shows its
// changes. If the kernel refuses access, there may be no next one, and the state is unknown from then on.
func (d *Differ) Gap(t stack.Time, why stack.Why, ns int64, out []event.Event) []event.Event {
	n := len(out)
	out = d.say(out)
	if why == stack.WhyDenied && d.state != stack.StateUnknown {
		d.state, d.call, d.gil, d.waiting = stack.StateUnknown, stack.Call{Nr: -1}, false, Waiting{}
		out = append(out, event.Make(t, event.State, statePayload(d.state, -1, false)))
	}
	out = append(out, event.Make(t, event.Gap, event.GapOf(why, ns)))
	d.sinceSync += len(out) - n
	return out
}

// Event appends an event of another kind (Rate, Mark, Lock, Holder, Wait, Task, Parked). It omits
// a Lock, Holder, Wait or Task that repeats the current value.
func (d *Differ) Event(t stack.Time, k event.Kind, payload uint64, out []event.Event) []event.Event {
	n := len(out)
	e := event.Make(t, k, payload)
	if d.waiting.repeats(e) || k == event.Task && payload == d.task {
		return out
	}
	d.waiting.Apply(e)
	if k == event.Task {
		d.task = payload
	}
	if t > d.seen {
		out = d.say(out)
	}
	out = append(out, e) // findings about a sample precede its Seen
	d.sinceSync += len(out) - n
	return out
}

// End appends the exits of all frames at t: the thread ended, or its program was replaced. The
// next sample starts a new stack.
func (d *Differ) End(t stack.Time, why stack.Why, out []event.Event) []event.Event {
	n := len(out)
	out = d.say(out)
	for range d.frames {
		out = append(out, event.Event{Time: t})
	}
	out = append(out, event.Make(t, event.Mark, uint64(why)))
	d.frames, d.waiting, d.task = d.frames[:0], Waiting{}, 0
	d.sinceSync += len(out) - n
	return out
}
