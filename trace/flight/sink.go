package flight

import (
	"sync/atomic"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// syncEvery is how often, in ns, a stack is repeated if anything changed.
const syncEvery = 5_000_000_000

// Sink receives the samples of one thread. It implements sampler.Sink.
type Sink struct {
	rec *Recorder

	thread trace.Thread // guarded by rec.mu, except Seq and TID, which are constant
	ended  atomic.Int64
	// Only the writer changes the ring and its block, both together.
	ring  atomic.Pointer[ringbuf.Ring]
	block atomic.Pointer[ringfile.Block] // nil: the ring has memory of its own

	// Used by the writer only.
	differ   diff.Differ
	events   []event.Event
	batch    []ringbuf.Event
	lastSync stack.Time
	failed   stack.Time // last failure to grow the ring
}

// Seq is the thread's number in this Recorder.
func (s *Sink) Seq() int { return s.thread.Seq }

// TID is the thread's TID.
func (s *Sink) TID() stack.TID { return s.thread.TID }

// Ended is when the thread ended; 0: it exists.
func (s *Sink) Ended() stack.Time { return stack.Time(s.ended.Load()) }

// Cursor reads the thread's events from the oldest kept one. Read it inside
// Recorder.Reading.
func (s *Sink) Cursor() *ringbuf.Cursor { return s.ring.Load().NewCursor() }

// Tail returns what the last samples confirmed after the last event; ok is false if
// there is nothing, or if it is changing. Call it inside Reading.
func (s *Sink) Tail() (e event.Event, ok bool) {
	b := s.block.Load()
	if b == nil {
		return e, false
	}
	t, ok := b.Tail()
	return event.Event{Time: stack.Time(t[0]), Value: t[1]}, ok
}

// Sample records one sample of the thread.
func (s *Sink) Sample(x *stack.Sample) {
	s.events = s.differ.Step(x, s.events[:0])
	depth, capacity := s.differ.Depth(), s.ring.Load().Cap()
	if 4*depth > capacity {
		s.resize(8*depth, x.Time) // a ring must hold several complete stacks, or its readers find no starting point
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

// Gap records that samples are missing before t; ns is the time that they would have
// covered.
func (s *Sink) Gap(t stack.Time, why stack.Why, ns int64) {
	s.events = s.differ.Gap(t, why, ns, s.events[:0])
	s.put(t)
}

// Event records an event of a kind that is not about frames.
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

// Full reports false: a full ring overwrites its oldest events.
func (s *Sink) Full() bool { return false }

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

// retryEvery is the time in ns between attempts to grow a ring.
const retryEvery = 1_000_000_000

// fit grows the ring if n events would overwrite some that must be kept, and shrinks it
// if it has held far more than that for a long time.
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

// oldest returns the time of the oldest event in a ring. Inside a Sync the times go
// back to when frames were entered, so Enters are skipped.
func (s *Sink) oldest(r *ringbuf.Ring) (t stack.Time, ok bool) {
	for k := 0; ; k++ {
		e, ok := r.Oldest(k)
		if !ok || event.Kind(e[1]>>56) != event.Enter {
			return stack.Time(e[0]), ok
		}
	}
}

// reserve is the part of the memory that rings do not grow into, so that some remains
// for new threads.
const reserve = 8

// resize moves to a ring of another size, if memory is available.
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
