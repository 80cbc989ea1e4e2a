package flight

import (
	"sync/atomic"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// syncEvery is how often, in ns, a stack is repeated if anything changed.
const syncEvery = 5_000_000_000

// Sink takes the samples of one thread. It implements sampler.Sink.
type Sink struct {
	rec *Recorder

	thread trace.Thread // guarded by rec.mu, but for Seq and TID, which stay
	ended  atomic.Int64
	// The ring and its block change together, by the writer alone.
	ring  atomic.Pointer[ringbuf.Ring]
	block atomic.Pointer[ringfile.Block] // nil: the ring has memory of its own

	// The writer's own.
	differ   diff.Differ
	events   []event.Event
	batch    []ringbuf.Event
	lastSync stack.Time
	failed   stack.Time // when the ring could last not grow
}

// Seq is the thread's number in this Recorder.
func (s *Sink) Seq() int { return s.thread.Seq }

// TID is the thread's.
func (s *Sink) TID() stack.TID { return s.thread.TID }

// Ended is when the thread ended; 0: it is there.
func (s *Sink) Ended() stack.Time { return stack.Time(s.ended.Load()) }

// Cursor reads the thread's events from the oldest that is kept. It is to be
// read inside Recorder.Reading.
func (s *Sink) Cursor() *ringbuf.Cursor { return s.ring.Load().NewCursor() }

// Tail is what the last samples confirmed and no event says yet; ok is false
// where there is nothing, or it changes at this moment. Inside Reading.
func (s *Sink) Tail() (e event.Event, ok bool) {
	b := s.block.Load()
	if b == nil {
		return e, false
	}
	t, ok := b.Tail()
	return event.Event{Time: stack.Time(t[0]), Value: t[1]}, ok
}

// Sample records one look at the thread.
func (s *Sink) Sample(x *stack.Sample) {
	s.events = s.differ.Step(x, s.events[:0])
	depth, capacity := s.differ.Depth(), s.ring.Load().Cap()
	if 4*depth > capacity {
		s.resize(8*depth, x.Time) // a ring holds several whole stacks, or its readers find nothing to begin at
	}
	if s.lastSync == 0 {
		s.lastSync = x.Time // the first step wrote one
	}
	if s.differ.SinceSync() > capacity/4 || s.differ.SinceSync() > 0 && int64(x.Time-s.lastSync) > syncEvery+int64(depth)*1_000_000 {
		s.events = s.differ.Sync(s.events)
		s.lastSync = x.Time
	}
	s.put(x.Time)
}

// Gap records that samples are missing before t; ns is the time they would
// have covered.
func (s *Sink) Gap(t stack.Time, why stack.Why, ns int64) {
	s.events = s.differ.Gap(t, why, ns, s.events[:0])
	s.put(t)
}

// Event records an event of the kinds that are not about frames.
func (s *Sink) Event(t stack.Time, k event.Kind, payload uint64) {
	s.events = s.differ.Event(t, k, payload, s.events[:0])
	s.put(t)
}

var waitKinds = [...]event.Kind{event.Wait, event.Lock, event.Holder}

// End records that the thread's frames are gone at t, and why.
func (s *Sink) End(t stack.Time, why stack.Why) {
	s.events = s.differ.End(t, why, s.events[:0])
	s.put(t)
	if why == stack.WhyGone {
		s.ended.Store(int64(t))
	}
}

// Flush makes the samples so far visible to readers.
func (s *Sink) Flush() {
	s.events = s.differ.Flush(s.events[:0])
	s.put(0)
}

func (s *Sink) put(now stack.Time) {
	if len(s.events) > 0 {
		if now != 0 {
			s.fit(len(s.events), now)
		}
		s.batch = s.batch[:0]
		for _, e := range s.events {
			s.batch = append(s.batch, ringbuf.Event{uint64(e.Time), e.Value})
		}
		s.ring.Load().AppendAll(s.batch)
	}
	if b := s.block.Load(); b != nil {
		e, _ := s.differ.Unsaid()
		b.SetTail(ringbuf.Event{uint64(e.Time), e.Value})
	}
}

// retryEvery is how long, in ns, a ring that could not grow goes without
// trying again.
const retryEvery = 1_000_000_000

// fit makes the ring larger where n events would overwrite some that are to be
// kept, and smaller where it has held far more for long.
func (s *Sink) fit(n int, now stack.Time) {
	r := s.ring.Load()
	if r.Free() >= n {
		return
	}
	oldest, ok := s.oldest(r)
	if !ok {
		return
	}
	age, window := int64(now-oldest), s.rec.window()
	switch {
	case s.rec.keep == 0 || age < window:
		if int64(now-s.failed) > retryEvery {
			s.resize(2*r.Cap(), now)
		}
	case age > 4*window && r.Cap() > ringfile.MinRing && r.Cap() > 16*s.differ.Depth():
		s.resize(r.Cap()/2, now)
	}
}

// oldest is the time of the oldest event that a ring holds. Inside a Sync the
// times go back to when frames were entered, so Enters are passed over.
func (s *Sink) oldest(r *ringbuf.Ring) (t stack.Time, ok bool) {
	for k := 0; ; k++ {
		e, ok := r.Oldest(k)
		if !ok || event.Kind(e[1]>>56) != event.Enter {
			return stack.Time(e[0]), ok
		}
	}
}

// reserve is the part of the memory that rings do not grow into, so that there
// is some for new threads.
const reserve = 8

// resize moves on to a ring of another size, if it can be had.
func (s *Sink) resize(capacity int, now stack.Time) {
	old := s.block.Load()
	if used, size := s.rec.mem.Used(); old != nil && capacity > old.Ring.Cap() && used+16*int64(capacity) > size-size/reserve {
		s.refused(now)
		return
	}
	b, err := s.rec.mem.Ring(uint64(s.thread.Seq), capacity)
	if err != nil {
		s.refused(now)
		return
	}
	s.ring.Load().MoveTo(b.Ring)
	if old != nil {
		if e, ok := old.Tail(); ok {
			b.SetTail(e)
		}
	}
	b.Publish()
	s.ring.Store(b.Ring)
	s.block.Store(b)
	if old != nil {
		s.rec.retire(old)
	}
}

func (s *Sink) refused(now stack.Time) {
	s.failed = now
	s.rec.short.Add(1)
}
