package flight

import (
	"fmt"
	"io"
	"slices"

	exact "github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Copy is the content of the rings at one moment. It is for one goroutine.
type Copy struct {
	At       stack.Time // time of the copy
	Process  trace.Process
	Threads  []Thread
	Modules  []trace.Module
	Maps     []trace.Maps
	Captured []trace.Captured
	Waits    []trace.Wait
	Tasks    []trace.Tasks
	Stats    trace.Stats
	Traced   *trace.Traced // traced functions; nil: there are none
	Calls    []exact.Call  // of these functions
	// IDs are the Recorder's numbers of the Modules.
	IDs []int
}

// Thread is one thread of a Copy.
type Thread struct {
	trace.Thread
	Events []event.Event // starts at a Sync; empty: there is nothing to show
}

// Copy freezes the rings: all threads as they are at now, from the last Sync before now
// - back on; back 0 takes everything. Samplers continue during it, and the copy omits
// what they overwrite while it is read.
func (r *Recorder) Copy(now stack.Time, back int64) *Copy {
	c := &Copy{At: now}
	r.Reading(func() {
		sinks := r.Sinks()
		for _, s := range sinks {
			c.Threads = append(c.Threads, Thread{Events: s.copy(now, back)})
		}
		// Everything that the events refer to was recorded before them.
		r.mu.Lock()
		defer r.mu.Unlock()
		c.Process = r.process
		for i, s := range sinks {
			c.Threads[i].Thread = s.thread
		}
		numbered := map[int]int{}
		for i := range r.maps {
			m := r.maps[i]
			m.Mappings = slices.Clone(m.Mappings)
			for k := range m.Mappings {
				id := m.Mappings[k].Module
				n, ok := numbered[id]
				if !ok {
					n = len(c.Modules)
					numbered[id] = n
					mod := trace.Module{Path: "[unknown]"}
					if p := r.modules[id]; p != nil {
						mod = *p
					}
					c.Modules, c.IDs = append(c.Modules, mod), append(c.IDs, id)
				}
				m.Mappings[k].Module = n
			}
			c.Maps = append(c.Maps, m)
		}
		c.Captured = slices.Concat(r.captured, r.fresh)
		r.fresh = nil
		c.Waits = r.waitList(waitsOf(c.Threads))
		c.Stats = r.stats
	})
	c.settle()
	return c
}

// waitsOf returns the descriptions that the events refer to.
func waitsOf(ts []Thread) map[int]bool {
	used := map[int]bool{}
	for i := range ts {
		for _, e := range ts[i].Events {
			if e.Kind() == event.Wait {
				used[int(e.Payload())] = true
			}
		}
	}
	return used
}

// cut removes the events before the last Sync at or before from, or before the first
// Sync if none is that early.
func cut(es []event.Event, from stack.Time) []event.Event {
	begin := -1
	for i, e := range es {
		if e.Kind() != event.Sync {
			continue
		}
		if begin >= 0 && e.Time > from {
			break
		}
		begin = i
	}
	if begin < 0 {
		return nil
	}
	return es[begin:]
}

// settle removes threads without data, and makes the others start at their first event.
func (c *Copy) settle() {
	c.Threads = slices.DeleteFunc(c.Threads, func(t Thread) bool { return len(t.Events) == 0 })
	for i := range c.Threads {
		t := &c.Threads[i]
		t.Since = max(t.Since, t.Events[0].Time)
	}
}

// Mark records a trigger in its thread, or in the first thread, at its time. It ignores
// a trigger that is newer than the Copy.
func (c *Copy) Mark(t *trace.Trigger) {
	if len(c.Threads) == 0 {
		return
	}
	x := &c.Threads[0]
	for i := range c.Threads {
		th := &c.Threads[i]
		if t.TID == th.TID || t.TID == 0 && th.Main {
			x = th // the newest thread with that TID
		}
	}
	mark := event.Make(t.At, event.Mark, uint64(stack.WhyTrigger))
	at := len(x.Events)
	// Inside a Sync times go back to when frames were entered, and a Sync must not be
	// separated from its frames.
	for i := len(x.Events) - 1; i >= 0; i-- {
		e := x.Events[i]
		if e.Kind() == event.Sync {
			if e.Time <= t.At {
				break
			}
			at = i
			continue
		}
		if e.Kind() != event.Enter && e.Kind() != event.Exit && e.Kind() != event.Move {
			if e.Time <= t.At {
				break
			}
			at = i
		}
	}
	x.Events = slices.Insert(slices.Clip(x.Events), at, mark)
}

// Write writes the Copy as a recording that is complete except for names.
func (c *Copy) Write(out io.Writer, triggers []trace.Trigger, reason string) error {
	w, err := trace.NewWriter(out)
	if err != nil {
		return err
	}
	if err := w.Process(c.Process); err != nil {
		return err
	}
	for i := range c.Threads {
		t := c.Threads[i].Thread
		t.Seq = i
		if err := w.Thread(t); err != nil {
			return err
		}
	}
	known := 0
	for i := range c.Maps {
		// Modules are numbered in the order in which they occur.
		most := known
		for _, m := range c.Maps[i].Mappings {
			most = max(most, m.Module+1)
		}
		if err := w.Maps(c.Maps[i], known, c.Modules[known:most]); err != nil {
			return err
		}
		known = most
	}
	for _, x := range c.Captured {
		if err := w.Captured(x); err != nil {
			return err
		}
	}
	if len(c.Waits) > 0 {
		if err := w.Waits(c.Waits); err != nil {
			return err
		}
	}
	for i := range c.Tasks {
		if err := w.Tasks(&c.Tasks[i]); err != nil {
			return err
		}
	}
	if c.Traced != nil {
		if err := w.Traced(c.Traced); err != nil {
			return err
		}
		if err := w.Calls(c.Calls); err != nil {
			return err
		}
	}
	for _, t := range triggers {
		if err := w.Trigger(t); err != nil {
			return err
		}
	}
	for i := range c.Threads {
		if err := w.Events(i, c.Threads[i].Events); err != nil {
			return fmt.Errorf("thread %d: %w", c.Threads[i].TID, err)
		}
	}
	if err := w.Stats(c.Stats); err != nil {
		return err
	}
	return w.End(trace.End{At: c.At, Reason: reason})
}

// copy reads the content of the ring and the tail after it.
func (s *Sink) copy(now stack.Time, back int64) []event.Event {
	var buf [512]ringbuf.Event
	tail, ok := s.Tail() // before the events: they may include it by then
	cur := s.Cursor()
	es := make([]event.Event, 0, s.ring.Load().Cap())
	for {
		n, lost := cur.Read(buf[:])
		if lost > 0 {
			es = es[:0] // the writer overtook us: there is a hole after the events read so far
		}
		for _, e := range buf[:n] {
			es = append(es, event.Event{Time: stack.Time(e[0]), Value: e[1]})
		}
		if n == 0 && lost == 0 {
			break
		}
	}
	if !ok {
		tail = event.Event{}
	}
	from := stack.Time(0)
	if back > 0 {
		from = now - stack.Time(back)
	}
	return finish(cut(es, from), tail)
}

// finish appends the tail if it is newer than the last confirmed time, and removes the
// repetitions of a wait after each Sync.
func finish(es []event.Event, tail event.Event) []event.Event {
	var said [3]uint64 // payload plus one, for each of waitKinds
	var last stack.Time
	repeated := false // the next State closes a Sync
	out := es[:0]
	for _, e := range es {
		k := e.Kind()
		switch k {
		case event.Lock, event.Holder, event.Wait:
			x := &said[slices.Index(waitKinds[:], k)]
			if *x == e.Payload()+1 {
				continue
			}
			*x = e.Payload() + 1
		case event.State:
			if !repeated {
				said = [3]uint64{} // another wait, perhaps for the same thing
			}
			repeated = false
		case event.Sync:
			repeated, last = true, max(last, e.Time)
		case event.Seen:
			last = max(last, e.Time)
		}
		out = append(out, e)
	}
	if len(out) > 0 && tail.Kind() == event.Seen && tail.Time > last {
		out = append(out, tail)
	}
	return out
}
