package store

import (
	"math"
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Lane is a row of a thread that holds no calls.
type Lane uint8

// Lanes. The Place of their slices:
//
//	LaneState  number for Store.State
//	LaneLock   number for Store.Lock
//	LanePause  0: sliver held the thread
//	LaneGap    why << 1, and 1 in the lowest bit for a mark without length
const (
	LaneState Lane = iota
	LaneLock
	LanePause
	LaneGap
	Lanes
)

// State is what a thread did for a while.
type State struct {
	State stack.State
	Call  int32 // system call number; -1: none
	Wait  int   // number of a description; 0: none
	// Stack is the stack of a blocked thread at the first sample of the wait, a number for
	// Store.StackPlaces; 0: none.
	Stack uint32
}

// Lock is a lock that a thread waited for.
type Lock struct {
	Addr   uint64
	Holder stack.TID // 0: unknown
	By     event.KnownBy
	Wait   int // number of a description; 0: none
	// Process is the number of the process whose address Addr is, in a recording of several.
	Process int
}

type openCall struct {
	start   stack.Time
	place   uint32
	samples uint32
	cpu     int64
	wait    int64
}

// MaxDepth limits the rows of a thread; deeper calls count for their callers.
const MaxDepth = 4096

// Thread holds the timeline of one thread. One goroutine feeds it, any number read it.
type Thread struct {
	store   *Store
	seq     int
	process int

	mu      sync.Mutex
	rows    []row
	open    []openCall
	deep    int // calls open beyond MaxDepth
	lanes   [Lanes]row
	inLane  [Lanes]Slice // the open one, if its Start is not 0
	last    stack.Time   // newest event
	seen    stack.Time   // newest event that confirmed the stack
	first   stack.Time
	told    stack.Time // when CPU time was last accounted
	state   State
	sampled stack.State // the one that the last sample found
	lock    Lock
	locked  bool       // the state at hand has had a lock
	lost    stack.Time // when the stack became unknown; 0: it is known
	rates   []rate
	cpu     hist
	version uint64
	held    int // slices
	sifted  []*sifted
	dropped stack.Time
	ended   bool
	samples uint64
	cpuNS   int64
	owed    int64 // ns of CPU time since the last running sample; the next one gets it
}

type rate struct {
	at stack.Time
	ns int64
}

// Feed modifies a thread. Its methods are for the one goroutine that feeds the thread,
// inside Thread.Feed.
type Feed Thread

// Feed runs f, which may modify the thread. Keep it short: readers wait.
func (t *Thread) Feed(f func(*Feed)) {
	t.mu.Lock()
	before := t.held
	f((*Feed)(t))
	grown := t.held - before
	t.version++
	t.mu.Unlock()
	t.store.held.Add(int64(grown))
}

// to advances the thread's clock; times never decrease, whatever a recording contains.
func (f *Feed) to(at stack.Time) stack.Time {
	at = min(at, maxTime)
	if f.first == 0 && at > 0 {
		f.first = at
	}
	if at <= f.last {
		return f.last
	}
	if f.last != 0 && waits(f.state.State) && len(f.open) > 0 {
		f.open[len(f.open)-1].wait += int64(at - f.last)
	}
	f.last = at
	return at
}

// maxTime keeps sums of hostile times within 64 bits: 146 years.
const maxTime = stack.Time(1) << 62

func waits(s stack.State) bool {
	switch s {
	case stack.StateRunnable, stack.StateBlocked, stack.StateDisk, stack.StateFault, stack.StateStopped, stack.StateTraced:
		return true
	}
	return false
}

// Begin enters a call at depth, the number of open calls.
func (f *Feed) Begin(at stack.Time, place uint32) {
	at = f.to(at)
	if f.lost != 0 {
		f.addLane(LaneGap, Slice{Start: f.lost, End: at, Place: uint32(stack.WhyLost) << 1})
		f.lost = 0
	}
	if len(f.open) >= MaxDepth {
		f.deep++
		return
	}
	if len(f.open) == len(f.rows) {
		f.rows = append(f.rows, row{})
	}
	f.open = append(f.open, openCall{start: at, place: place})
	f.seen = at
}

// Place moves the call at depth to another place of its function.
func (f *Feed) Place(depth int, place uint32) {
	if depth < len(f.open) {
		f.open[depth].place = place
	}
}

// End leaves the innermost call.
func (f *Feed) End(at stack.Time, place uint32) {
	at = f.to(at)
	if f.deep > 0 {
		f.deep--
		return
	}
	n := len(f.open) - 1
	if n < 0 {
		return
	}
	c := f.open[n]
	f.open = f.open[:n]
	s := Slice{Start: c.start, End: at, Place: place, Samples: c.samples, CPU: float32(c.cpu), Wait: float32(c.wait)}
	f.rows[n].add(s, f.store)
	f.held++
	for _, x := range f.sifted {
		f.held += x.ended(f.store.Names, f.open, s)
	}
	if n > 0 {
		p := &f.open[n-1]
		p.samples += c.samples
		p.cpu += c.cpu
		p.wait += c.wait
	}
}

// Top returns the place of the innermost call, for End.
func (f *Feed) Top() uint32 {
	if n := len(f.open); n > 0 {
		return f.open[n-1].place
	}
	return 0
}

// Depth returns the number of open calls.
func (f *Feed) Depth() int { return len(f.open) + f.deep }

func (f *Feed) addLane(l Lane, s Slice) {
	r := &f.lanes[l]
	if n := r.end(); n > r.gone {
		s.Start = max(s.Start, r.at(n-1).End)
	}
	s.End = max(s.End, s.Start)
	r.add(s, f.store)
	f.held++
}

// change ends the open slice of a lane and begins another if begin is set.
func (f *Feed) change(l Lane, at stack.Time, place uint32, begin bool) {
	if o := &f.inLane[l]; o.Start != 0 {
		if begin && o.Place == place {
			return
		}
		if at > o.Start {
			f.addLane(l, Slice{Start: o.Start, End: at, Place: o.Place})
		}
		*o = Slice{}
	}
	if begin {
		f.inLane[l] = Slice{Start: max(at, 1), End: Open, Place: place}
	}
}

// Other handles events that do not change the stack's shape.
func (f *Feed) Other(e event.Event) {
	at := f.to(e.Time)
	switch e.Kind() {
	case event.Seen:
		way, n, cpu := event.SeenFields(e.Payload())
		f.samples += uint64(n)
		f.cpuNS += cpu
		f.owed += cpu
		if len(f.open) > 0 {
			o := &f.open[len(f.open)-1]
			o.samples += uint32(n)
			if event.Ran(f.sampled, way) { // never a call that sleeps
				o.cpu += f.owed
				f.owed = 0
			}
		}
		if cpu > 0 {
			// It was spent since the last account; if that is long ago, the exact time is
			// unknown.
			f.cpu.add(max(f.told, at-stack.Time(cpu)*16), at, cpu)
		}
		f.told, f.seen = at, at
		if o := &f.inLane[LaneState]; o.Start != 0 && f.state.Stack == 0 && f.state.State == stack.StateBlocked {
			f.state.Stack = f.store.stackID(f.open)
			o.Place = f.store.stateID(f.state)
		}
	case event.State:
		// Also if the state is the same as before: the thread ran in between.
		s, nr := event.StateFields(e.Payload())
		f.change(LaneState, at, 0, false)
		f.change(LaneLock, at, 0, false)
		f.lock, f.locked = Lock{}, false
		f.state = State{State: s, Call: nr}
		f.sampled = event.StateSampled(e.Payload())
		f.change(LaneState, at, f.store.stateID(f.state), s != stack.StateUnknown && s != stack.StateDead)
	case event.Lock:
		first := !f.locked
		f.lock, f.locked = Lock{Addr: e.Payload(), Wait: f.state.Wait, Process: f.process}, true // a Wait precedes its Lock
		f.change(LaneLock, at, f.store.lockID(f.lock), f.lock.Addr != 0)
		// The thread waited for it since it blocked, also if a later sample found that out.
		if o := &f.inLane[LaneState]; first && o.Start != 0 && f.lock.Addr != 0 {
			f.inLane[LaneLock].Start = o.Start
		}
	case event.Holder:
		if f.lock.Addr != 0 {
			f.lock.Holder, f.lock.By = event.HolderFields(e.Payload())
			f.relabel(LaneLock, at, f.store.lockID(f.lock))
		}
	case event.Wait:
		w := int(e.Payload() & math.MaxInt32)
		if f.lock.Addr != 0 {
			f.lock.Wait = w
			f.relabel(LaneLock, at, f.store.lockID(f.lock))
		}
		if f.inLane[LaneState].Start != 0 {
			f.state.Wait = w
			f.relabel(LaneState, at, f.store.stateID(f.state))
		}
	case event.Pause:
		f.addLane(LanePause, Slice{Start: e.Time, End: e.Time + stack.Time(min(e.Payload(), 1<<48))})
	case event.Gap:
		why, ns := event.GapFields(e.Payload())
		if why == stack.WhyLost {
			if f.lost == 0 {
				f.lost = max(at, 1)
			}
			return
		}
		f.addLane(LaneGap, Slice{Start: at - stack.Time(ns), End: at, Place: uint32(why) << 1})
	case event.Mark:
		f.addLane(LaneGap, Slice{Start: at, End: at, Place: uint32(e.Payload()&0xff)<<1 | 1})
		if w := stack.Why(e.Payload()); w == stack.WhyGone || w == stack.WhyStopped {
			f.finish(at)
		}
	case event.Rate:
		f.rates = append(f.rates, rate{at, int64(e.Payload())})
	}
}

// relabel adds details to the open slice of a lane. A slice that has lasted a while is
// split, as its earlier part had other values.
func (f *Feed) relabel(l Lane, at stack.Time, place uint32) {
	if o := &f.inLane[l]; o.Start != 0 && at <= o.Start {
		o.Place = place
		return
	}
	f.change(l, at, place, true)
}

func (f *Feed) finish(at stack.Time) {
	for l := range Lanes {
		f.change(l, at, 0, false)
	}
	f.ended = true
}

// Close ends everything open: the thread or the recording has ended.
func (f *Feed) Close(at stack.Time) {
	at = f.to(at)
	for f.Depth() > 0 {
		f.End(at, f.Top())
	}
	if f.lost != 0 {
		f.addLane(LaneGap, Slice{Start: f.lost, End: at, Place: uint32(stack.WhyLost) << 1})
		f.lost = 0
	}
	f.finish(at)
}

// Last returns the time of the newest event.
func (f *Feed) Last() stack.Time { return f.last }

// Snapshot is a thread at one moment, readable without a lock.
type Snapshot struct {
	seq     int
	turned  uint64 // of the names: see Names.sifting
	version uint64 // of the thread
	rows    []row
	open    []openCall
	lanes   [Lanes]row
	inLane  [Lanes]Slice
	first   stack.Time
	last    stack.Time
	seen    stack.Time
}

// Look returns a snapshot of the calls of some kinds. Totals of open calls include their
// callees. It returns before, a snapshot of the same calls or nil, if nothing has changed
// since it was taken.
func (t *Thread) Look(k Kinds, before *Snapshot) *Snapshot {
	t.mu.Lock()
	traits, turned, k := t.store.Names.sifting(k)
	if before != nil && before.version == t.version && before.turned == turned {
		t.mu.Unlock()
		return before
	}
	v := sieve{kinds: k, traits: traits}
	rows := t.rows
	if k != 0 {
		rows = t.sift(v, turned).rows
	}
	s := &Snapshot{
		seq: t.seq, turned: turned, version: t.version,
		rows: append([]row(nil), rows...), open: append([]openCall(nil), t.open...),
		lanes: t.lanes, inLane: t.inLane, first: t.first, last: t.last, seen: t.seen,
	}
	t.mu.Unlock()
	for i := len(s.open) - 1; i > 0; i-- {
		s.open[i-1].samples += s.open[i].samples
		s.open[i-1].cpu += s.open[i].cpu
		s.open[i-1].wait += s.open[i].wait
	}
	if k != 0 {
		kept := s.open[:0]
		for _, o := range s.open {
			if v.enter(o.place) {
				kept = append(kept, o)
			}
		}
		s.open = kept
		for len(s.rows) < len(kept) {
			s.rows = append(s.rows, row{})
		}
	}
	return s
}

// openSlice returns the open call at depth, if there is one.
func (s *Snapshot) openSlice(depth int) (Slice, bool) {
	if depth >= len(s.open) {
		return Slice{}, false
	}
	o := &s.open[depth]
	return Slice{Start: o.start, End: Open, Place: o.place, Samples: o.samples, CPU: float32(o.cpu), Wait: float32(o.wait)}, true
}

// each calls yield for every call at depth that touches [t0, t1), including the open one,
// which ends at the newest event.
func (s *Snapshot) each(depth int, t0, t1 stack.Time, yield func(*Slice)) {
	r := &s.rows[depth]
	for i, n := r.after(t0), r.end(); i < n; i++ {
		x := r.at(i)
		if x.Start >= t1 {
			return
		}
		yield(x)
	}
	if o, ok := s.openSlice(depth); ok && o.Start < t1 {
		o.End = max(s.last, o.Start)
		if o.End > t0 {
			yield(&o)
		}
	}
}
