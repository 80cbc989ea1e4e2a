package trace

import (
	"cmp"
	"math"
	"slices"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// A sample shows which calls were open at one moment, a traced call shows when one of them began and ended. Sharp
// joins both into one timeline. Between two samples the stack is that of the first one, and then that of the
// second. On this stack, at every moment:
//
//   - A frame of a traced function is there while its call is. Frames above it end with it.
//   - A call without a sampled frame is a slice on top of its caller's frame; sampled frames above that end. If no
//     frame of the caller is known, it is inside the frames that both samples have.
//   - A frame begins no later than a call above it that the second sample shows, and ends no earlier than a call
//     above it that the first sample showed.
//
// One activation of a function has one frame in a sample, so that calls and frames are matched by their order: the
// n-th frame of a function from the outermost on is the n-th of its calls that are open. A frame without a call
// stays as it was sampled, for example where calls are missing because hits were lost.

// Limits of a thread's exact timeline.
const (
	// maxNested is how many calls are open at most; deeper ones are not placed.
	maxNested = 1 << 10
	// maxSharpDepth is the depth of a sampled stack from which on calls are not placed.
	maxSharpDepth = 1 << 12
	// maxCallerDepth is how many frames are searched for a caller.
	maxCallerDepth = 1 << 8
	// maxHeld is how many events wait for the next sample.
	maxHeld = 1 << 12
	// reentered is how many frames a call or an event may end and begin again, on average, beyond the first
	// reenteredFirst: a hostile recording would have all frames of a deep stack do so for each call.
	reentered, reenteredFirst = 64, 1 << 20
	// reenteredMost is the largest unused rest.
	reenteredMost = 1 << 20
	// sharpSkew is how far, in ns, the time of a sample may be from that of a call's edge that it shows differently:
	// a thread can be stopped in the trap that reports the edge.
	sharpSkew = 100_000
	// openSkew is the same for a call that may go on: what ends it too early is not taken back when its end comes. A
	// recorder that gets no CPU gives a sample a time after its stack's.
	openSkew = 2_000_000
)

// Exact is the traced call of a slice.
type Exact struct {
	calls.Call
	// Orphan says that no frame of the caller is known: the slice is inside the frame that was open then.
	Orphan bool
}

// tracedCall is a call of the thread.
type tracedCall struct {
	enter, exit stack.Time
	ret         uint64
	fn, n       int32 // n: its number, see Sharp.Placed
	caller      int32 // function of ret as threadCalls.funcOf has it; 0: not asked yet
	how         calls.How
	before      bool
	unsure      bool
	orphan      bool
	live        bool // its end is not known yet: see LiveSharp
}

// stale reports whether the call's end is a bound, so that it may have ended before.
func (c *tracedCall) stale() bool { return c.how == calls.Left || c.how == calls.Open }

// skew returns how far before a sample that does not show it the call, whose end is not known, may have begun and go on.
func (c *tracedCall) skew() stack.Time {
	if c.live {
		return openSkew
	}
	return sharpSkew
}

// sampledFrame is a frame of a sampled stack.
type sampledFrame struct {
	word    event.Word
	id      uint64 // of the activation, from 1 on
	entered stack.Time
	fn      int32 // traced function; -1: none
	of      int32 // its function as threadCalls.funcOf has it; 0: not asked yet
	covered bool  // there was a call for it when the last sample was taken
}

// Sharp replays a thread's samples and traced calls into Slices.
type Sharp struct {
	out   sharpOut
	calls *threadCalls // nil: there are none, and events are passed on as they are
	open  openCalls

	frames []sampledFrame // the sampled stack
	traced []int          // positions of those of traced functions
	errors int            // how many are error frames
	limit  int            // frames that exist yet
	next   stackChange
	seen   stack.Time    // of the last sample
	state  stack.State   // of the thread
	guess  bool          // the sample at hand shows where a clock met the thread before it lost its CPU, and no later call
	held   []event.Event // since then
	high   stack.Time    // of the last event for out

	synced bool
	inSync uint64       // remaining Enter events of a Sync
	resume *event.Event // the Sync, if its frames are not known
	ids    uint64

	drawing drawing
}

// sharpOut takes the timeline of a Sharp.
type sharpOut interface {
	Apply(e event.Event)
	// begin is Apply for an Enter that is the call x at l; nil: where e says.
	begin(e event.Event, x *Exact, l *Loc)
	// is notes that the real frame at a depth is the call x.
	is(depth int, x *Exact)
	// odd counts an invalid event.
	odd()
	Close(t stack.Time)
}

// stackChange is a change of the sampled stack that the next sample will confirm.
type stackChange struct {
	on    bool // it has not begun
	part  bool // some of the new frames exist: see Sharp.limit
	at    stack.Time
	keep  int            // frames that stay
	moved event.Word     // the last of these has moved here; 0: it has not
	add   []sampledFrame // new ones
	held  int            // number of events in Sharp.held that come before it
	left  exits
}

// exits are of frames that were left some time before the new ones began, as Recording.Fitted has it of a thread
// that ran between two waits.
type exits struct {
	at   stack.Time // 0: there are none
	keep int        // frames that stayed
	held int        // number of events in Sharp.held that come before them
}

// NewSharp returns a Sharp that replays thread i of rec into out. If no calls of the thread were traced, nothing is
// changed.
func NewSharp(rec *Recording, i int, out *Slices) *Sharp {
	s := &Sharp{out: out, calls: rec.threadCalls(i, out.names), limit: math.MaxInt}
	if s.calls != nil {
		s.open.init(s.calls.all)
	}
	return s
}

// Placed returns the calls that became slices, as a set of bits: a call's number is its position among those of the
// thread, in the order of Recording.Calls.
func (s *Sharp) Placed() []uint64 {
	if s.calls == nil {
		return nil
	}
	return s.calls.placed
}

// Apply takes the thread's next event, as Recording.Events and Recording.Fitted yield them. Events after the last
// sample wait for the next one.
func (s *Sharp) Apply(e event.Event) {
	if s.calls == nil {
		s.out.Apply(e)
		return
	}
	s.drawing.budget += reentered
	k := e.Kind()
	if s.inSync > 0 {
		if k == event.Enter {
			if s.inSync--; s.resume != nil {
				s.push(e)
			}
		} else {
			s.out.odd()
			s.inSync = 0
		}
		if s.inSync == 0 && s.resume != nil {
			s.restore()
		}
		if k == event.Enter {
			return
		}
	}
	switch {
	case k == event.Sync:
		s.sync(e)
	case !s.synced:
		if k > event.Move {
			s.pass(e)
		}
	case k <= event.Move:
		s.change(e)
	case k == event.Seen:
		way, _, _ := event.SeenFields(e.Payload())
		if s.guess = way == stack.WayClock && s.state == stack.StateRunnable; s.guess {
			s.settle(e.Time)
		} else {
			s.sample(e.Time)
		}
		s.guess = false
		s.pass(e)
	default:
		if k == event.State {
			s.state, _ = event.StateFields(e.Payload())
		}
		s.held = append(s.held, e)
		why, _ := event.GapFields(e.Payload())
		if lost := k == event.Gap && why == stack.WhyLost; lost || len(s.held) >= maxHeld {
			s.settle(max(e.Time, s.next.at))
			if lost {
				s.lose()
			}
		}
	}
}

// Close passes on the rest, and ends all slices with the last event.
func (s *Sharp) Close() {
	if s.calls != nil && s.synced {
		to := max(s.high, s.next.at)
		for i := range s.held {
			to = max(to, s.held[i].Time)
		}
		s.settle(to)
	}
	s.out.Close(0)
}

// pass passes on an event, not before the one before it.
func (s *Sharp) pass(e event.Event) {
	s.high = max(s.high, e.Time)
	s.out.Apply(event.Event{Time: s.high, Value: e.Value})
}

// sync takes a Sync. Its frames follow.
func (s *Sharp) sync(e event.Event) {
	if e.Payload() > diff.MaxDepth {
		s.out.odd()
		return
	}
	s.inSync = e.Payload()
	if s.synced {
		s.held = append(s.held, event.Make(e.Time, event.Sync, 0)) // the frames are known
		return
	}
	s.resume, s.synced = &e, true
	s.next = stackChange{on: true, at: e.Time, add: s.next.add[:0]}
	if s.inSync == 0 {
		s.restore()
	}
}

// restore passes on the stack of a Sync whose frames were not known.
func (s *Sharp) restore() {
	at := max(s.resume.Time, s.high)
	s.resume = nil
	for s.open.edge() <= at { // not seen
		s.step()
	}
	s.match(at, true)
	s.replace(math.MaxInt)
	s.next.part = false
	s.seen = at
	want := s.target()
	all := s.items(&want, 0)
	s.pass(event.Make(at, event.Sync, uint64(len(all))))
	for i := range all {
		t := at
		if i < want.n {
			t = min(at, s.frames[i].entered)
		}
		s.enter(t, &all[i])
	}
	s.drawing.set(&want, 0, all)
}

// lose forgets the stack, which the replay ends.
func (s *Sharp) lose() {
	s.synced, s.next.on, s.next.part = false, false, false
	s.frames, s.traced, s.errors, s.limit = s.frames[:0], s.traced[:0], 0, math.MaxInt
	s.drawing.set(&goal{}, 0, nil)
}

// push adds a frame to the next change.
func (s *Sharp) push(e event.Event) {
	s.ids++
	w := event.Word(e.Payload())
	s.next.add = append(s.next.add, sampledFrame{word: w, id: s.ids, entered: e.Time, fn: s.calls.function(w, e.Time)})
}

// change takes an event that changes the sampled stack.
func (s *Sharp) change(e event.Event) {
	x := &s.next
	if again := x.on && (e.Time != x.at || len(s.held) != x.held); again && len(x.add) == 0 && x.moved == 0 && x.left.at == 0 {
		x.left = exits{max(x.at, 1), x.keep, x.held}
		x.at, x.held = e.Time, len(s.held)
	} else if again { // no sample confirms the change before it
		s.advance(max(x.at, s.high), s.began(), false)
	}
	if !x.on {
		*x = stackChange{on: true, at: e.Time, keep: len(s.frames), add: x.add[:0], held: len(s.held)}
	}
	n := len(x.add)
	switch k, w := e.Kind(), event.Word(e.Payload()); {
	case k == event.Enter && x.keep+n < diff.MaxDepth:
		s.push(e)
	case k == event.Exit && n > 0:
		x.add = x.add[:n-1]
	case k == event.Exit && x.keep > 0:
		x.keep--
		x.moved = 0
	case k == event.Move && n > 0:
		x.add[n-1].word, x.add[n-1].of = w, 0
	case k == event.Move && x.keep > 0:
		x.moved = w
	default:
		s.out.odd()
	}
}

// sample passes on everything up to t, when a sample found the present stack.
func (s *Sharp) sample(t stack.Time) {
	at := s.began()
	s.advance(t, append(at, s.match(t, true)...), true)
	s.seen = max(s.seen, t)
}

// settle passes on everything up to t, when no sample confirms the present stack.
func (s *Sharp) settle(t stack.Time) { s.advance(t, s.began(), true) }

// began is match for the time at which the next stack was found first, or, as Recording.Fitted has it, began.
func (s *Sharp) began() []stage {
	if s.next.on {
		return s.match(s.next.at, false)
	}
	return nil
}

// advance passes on everything up to t. The frames of the next stack exist from the times of stages on, all of them
// when those of the present one have been left. all says that events that waited are passed on whatever their times.
func (s *Sharp) advance(t stack.Time, stages []stage, all bool) {
	slices.SortStableFunc(stages, func(a, b stage) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.frames, b.frames))
	})
	x := &s.next
	left, whole := s.changes(t)
	i := 0
	for {
		hold, begin := never, never
		if i < len(s.held) {
			if hold = s.held[i].Time; whole != never && (i >= x.held || hold >= x.at) { // it is part of the change
				hold = max(hold, whole)
			}
		}
		if len(stages) > 0 && whole != never {
			begin = stages[0].at
		}
		edge := s.open.edge()
		at := min(hold, begin, edge, whole, left)
		if at > t || at == never {
			break
		}
		switch at {
		case begin:
			s.begin(stages[0].frames)
			if stages = stages[1:]; edge != at {
				s.draw(at)
			}
		case edge:
			s.drawing.budget += reentered
			if ended := s.step(); !ended || s.open.edge() != at || s.open.exit == at {
				s.draw(at)
			}
		default:
			switch {
			case at == left && (hold > at || i >= x.left.held):
				left = never
				s.leave()
				s.draw(at)
			case at == whole && (hold > at || i >= x.held):
				whole = never
				s.begin(math.MaxInt)
				s.draw(at)
			default:
				s.pass(s.held[i])
				i++
			}
		}
	}
	for ; i < min(x.held, len(s.held)); i++ {
		s.pass(s.held[i])
	}
	if whole != never {
		s.begin(math.MaxInt)
		s.draw(whole)
	}
	for ; i < len(s.held) && (all || s.held[i].Time <= t); i++ {
		s.pass(s.held[i])
	}
	x.part, x.held, x.at, x.left = false, 0, 0, exits{}
	s.held = append(s.held[:0], s.held[i:]...)
}

// changes returns when the frames of the present stack are left, and when all frames of the next one exist; never:
// that does not come.
func (s *Sharp) changes(t stack.Time) (left, whole stack.Time) {
	x := &s.next
	if !x.on {
		return never, never
	}
	left, whole = max(x.left.at, s.leaves(t)), max(x.at, s.leaves(t))
	if x.left.at == 0 || left >= whole {
		left = never
	}
	return left, whole
}

// leaves returns when the last call ends, until t, that has one of the frames to be left; 0: there is none.
func (s *Sharp) leaves(t stack.Time) (last stack.Time) {
	for i, c := range s.drawing.binds {
		if c != nil && s.traced[i] >= s.next.keep && c.exit <= t {
			last = max(last, c.exit)
		}
	}
	return last
}

// leave ends the frames that were left before the change, unless it has begun.
func (s *Sharp) leave() {
	if x := &s.next; x.on {
		s.limit = min(s.limit, x.left.keep)
		s.drawing.dirty = min(s.drawing.dirty, s.limit)
	}
}

// begin makes the first frames of the next stack exist.
func (s *Sharp) begin(frames int) {
	if s.next.on {
		s.replace(frames)
	} else if frames > s.limit {
		s.drawing.dirty = min(s.drawing.dirty, s.limit)
		s.limit = frames
	}
}

// replace makes the next stack the present one, with its first frames.
func (s *Sharp) replace(limit int) {
	x := &s.next
	for i := x.keep; i < len(s.frames); i++ {
		s.errors -= countError(&s.frames[i])
	}
	s.frames = append(s.frames[:x.keep], x.add...)
	n := len(s.traced)
	for n > 0 && s.traced[n-1] >= x.keep {
		n--
	}
	s.traced = s.traced[:n]
	for i := x.keep; i < len(s.frames); i++ {
		s.errors += countError(&s.frames[i])
		if s.frames[i].fn >= 0 {
			s.traced = append(s.traced, i)
		}
	}
	s.drawing.dirty = min(s.drawing.dirty, x.keep)
	if x.moved != 0 && x.keep > 0 {
		f := &s.frames[x.keep-1]
		f.word, f.of = x.moved, 0
		s.drawing.dirty = min(s.drawing.dirty, x.keep-1)
	}
	s.limit = limit
	x.on, x.part = false, limit < len(s.frames)
}
