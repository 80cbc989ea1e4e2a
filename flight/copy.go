package flight

import (
	"fmt"
	"io"
	"slices"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/ringbuf"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Copy is what the rings held at one moment. It is for one goroutine.
type Copy struct {
	At       stack.Time // when it was made
	Process  trace.Process
	Threads  []Thread
	Modules  []trace.Module
	Maps     []trace.Maps
	Captured []trace.Captured
	Waits    []trace.Wait
	Tasks    []trace.Tasks
	Stats    trace.Stats
	// IDs are the numbers under which the Recorder got the Modules.
	IDs []int
}

// Thread is one thread of a Copy.
type Thread struct {
	trace.Thread
	Events []event.Event // begin at a Sync; empty: there is nothing to show
}

// Copy freezes the rings: all threads as they are at now, from the last Sync
// before now - back on; back 0 takes all. Samplers go on meanwhile, and what
// they overwrite while it is read is left out.
func (r *Recorder) Copy(now stack.Time, back int64) *Copy {
	c := &Copy{At: now}
	r.Reading(func() {
		sinks := r.Sinks()
		for _, s := range sinks {
			c.Threads = append(c.Threads, Thread{Events: s.copy(now, back)})
		}
		// What the events speak of was told before they were written.
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

// waitsOf are the descriptions that the events refer to.
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

// cut leaves out what comes before the last Sync at or before from, or before
// the first Sync where there is none so early.
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

// settle leaves out threads of which nothing is known, and makes the others
// begin where their events do.
func (c *Copy) settle() {
	c.Threads = slices.DeleteFunc(c.Threads, func(t Thread) bool { return len(t.Events) == 0 })
	for i := range c.Threads {
		t := &c.Threads[i]
		t.Since = max(t.Since, t.Events[0].Time)
	}
}

// Mark notes a trigger in the thread that it is about, or in the first one, at
// its time, where it is no younger than the Copy.
func (c *Copy) Mark(t *trace.Trigger) {
	if len(c.Threads) == 0 {
		return
	}
	x := &c.Threads[0]
	for i := range c.Threads {
		th := &c.Threads[i]
		if t.TID == th.TID || t.TID == 0 && th.Main {
			x = th // the youngest of those that had the number
		}
	}
	mark := event.Make(t.At, event.Mark, uint64(stack.WhyTrigger))
	at := len(x.Events)
	// Inside a Sync times go back to when frames were entered; and a Sync is
	// not to be parted from its frames.
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

// Write writes the Copy as a recording that lacks nothing but names.
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
		// Modules are numbered in the order in which they turn up.
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

// copy takes what the ring holds and the tail behind it.
func (s *Sink) copy(now stack.Time, back int64) []event.Event {
	var buf [512]ringbuf.Event
	tail, ok := s.Tail() // before the events: what it says may be among them by then
	cur := s.Cursor()
	es := make([]event.Event, 0, s.ring.Load().Cap())
	for {
		n, lost := cur.Read(buf[:])
		if lost > 0 {
			es = es[:0] // the writer overtook us: what came before has a hole behind it
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

// finish adds the tail where it is younger than what the events confirm, and
// leaves out what is repeated of a wait behind each Sync.
func finish(es []event.Event, tail event.Event) []event.Event {
	var said [3]uint64 // payload and one, of each of waitKinds
	var last stack.Time
	repeated := false // the next State is the one that closes a Sync
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
				said = [3]uint64{} // another wait, if for the same thing
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
