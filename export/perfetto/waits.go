package perfetto

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace/event"
)

// waitsOf returns the lock waits of one thread.
func (e *exporter) waitsOf(th *view.Thread) []contend.Wait {
	if e.contention == nil {
		return nil
	}
	ws := e.contention.Waits
	by := func(w contend.Wait, i int) int { return cmp.Compare(w.Thread, i) }
	lo, _ := slices.BinarySearchFunc(ws, th.Index, by)
	hi, _ := slices.BinarySearchFunc(ws, th.Index+1, by)
	return ws[lo:hi:hi]
}

// flow returns the ID of a wait's arrow.
func (e *exporter) flow(w *contend.Wait) uint64 {
	return e.uuid(kindFlow, w.Thread) + uint64(w.Begin)
}

// lets returns the thread that released w's lock, if it is in the view.
func (e *exporter) lets(w *contend.Wait) (*view.Thread, bool) {
	if w.Holder == 0 || w.Cut {
		return nil, false
	}
	th, ok := e.v.ByTID(w.Holder)
	return th, ok && th.Index != w.Thread
}

// fixed adds a fixed64 field.
func (m *message) fixed(field protowire.Number, v uint64) {
	m.b = protowire.AppendFixed64(protowire.AppendTag(m.b, field, protowire.Fixed64Type), v)
}

// number adds a numeric annotation, unless it is 0.
func (m *message) number(name int, v uint64) {
	if v == 0 {
		return
	}
	a := m.open(eventAnnotation)
	m.uint(annotationName, uint64(name))
	m.uint(annotationUint, v)
	m.end(a)
}

// interned adds an annotation with an interned value, unless it is 0.
func (m *message) interned(name int, value uint32) {
	if value == 0 {
		return
	}
	a := m.open(eventAnnotation)
	m.uint(annotationName, uint64(name))
	m.uint(annotationStrIID, uint64(value))
	m.end(a)
}

// stateSlice writes an interval of the thread: its state and the wait in it.
func (w *writer) stateSlice(x *view.Interval) {
	o, in := w.e.out, w.stateIn
	if !w.state.begun {
		w.e.hasState[w.th.Index] = true
		w.e.child(kindState, w.th.Index, w.e.uuid(kindSlices, w.th.Index), "state", "",
			"What the thread did, and what it waited for.", 1, false)
	}
	s, nr := x.Waiting.State()
	in.annotation()
	id := in.words(w.e.v.StateName(s, nr))
	woken, waitsFor := uint32(0), uint32(0)
	text := w.e.v.Woken(x.Woken)
	if of := w.e.between.At(w.e.n, w.th.Index, x.Begin); of != nil {
		text = cmp.Or(text, w.e.between.Woken(of))
		if names := w.e.between.Text(of); names != "" {
			if waitsFor = in.value(names); !w.waitsFor {
				w.waitsFor = true
				in.entry(internedAnnotation, annotateFor, "waits_for")
			}
		}
	}
	if text != "" {
		if woken = in.value(text); !w.woken {
			w.woken = true
			in.entry(internedAnnotation, annotateWoken, view.DetailWoken)
		}
	}
	kernel := uint32(0)
	if text := w.e.v.KernelStack(x.Kernel); text != "" {
		if kernel = in.value(text); !w.kernel {
			w.kernel = true
			in.entry(internedAnnotation, annotateKernel, view.DetailKernel)
		}
	}
	at := w.state.begin(x.Begin, true)
	in.take(o)
	ev := o.open(packetTrackEvent)
	o.interned(annotateKernel, kernel)
	o.interned(annotateWoken, woken)
	o.interned(annotateFor, waitsFor)
	o.uint(eventType, typeBegin)
	o.uint(eventName, uint64(id))
	o.end(ev)
	o.done(at)

	w.waitSlice(x)

	at = w.state.begin(x.End, x.CPU >= 1000 || x.Switches > 0 || x.Delay >= 1000)
	ev = o.open(packetTrackEvent)
	o.uint(eventType, typeEnd)
	o.number(annotateCPU, uint64(max(x.CPU, 0)/1000))
	o.number(annotateSwitches, x.Switches)
	o.number(annotateDelay, uint64(max(x.Delay, 0)/1000))
	o.end(ev)
	o.done(at)
}

// waitSlice writes the wait in x, if it is known.
func (w *writer) waitSlice(x *view.Interval) {
	var lock *contend.Wait
	for len(w.waits) > 0 && w.waits[0].Begin <= x.Begin {
		if w.waits[0].Begin == x.Begin && w.waits[0].End == x.End {
			lock = &w.waits[0]
		}
		w.waits = w.waits[1:]
		if lock != nil {
			break
		}
	}
	name := w.e.v.What(&x.Waiting)
	if lock != nil {
		name = w.e.contention.Locks[lock.Lock].Name
	}
	if name == "" || x.End <= x.Begin {
		return
	}
	o, in := w.e.out, w.stateIn
	id := in.words(name)
	w.facts = w.e.facts(&x.Waiting, lock, w.facts[:0])
	values := make([]uint32, len(w.facts))
	for i, f := range w.facts {
		values[i] = in.value(f.Value)
	}
	at := w.state.begin(x.Begin, true)
	in.take(o)
	ev := o.open(packetTrackEvent)
	o.uint(eventCategory, categoryWait)
	for i, f := range w.facts {
		a := o.open(eventAnnotation)
		o.uint(annotationName, uint64(annotateDetails+slices.Index(details, f.Name)))
		o.uint(annotationStrIID, uint64(values[i]))
		o.end(a)
	}
	o.uint(eventType, typeBegin)
	o.uint(eventName, uint64(id))
	if lock != nil {
		if _, ok := w.e.lets(lock); ok {
			o.fixed(eventFlows, w.e.flow(lock))
		}
	}
	o.end(ev)
	o.done(at)
	w.state.end(x.End)
}

// facts returns the annotations of a wait. They are few, as every wait repeats them: the
// call with its arguments, the file, the lock with its address and how it is known, and
// the thread that released it, which the waiters together know best.
func (e *exporter) facts(w *diff.Waiting, lock *contend.Wait, out []view.Detail) []view.Detail {
	by := map[string]string{}
	for _, d := range e.v.Details(w, nil) {
		by[d.Name] = d.Value
	}
	if lock != nil {
		delete(by, view.DetailHolder)
		delete(by, view.DetailNoHolder)
		if lock.Holder != 0 {
			by[view.DetailHolder] = e.v.ThreadName(lock.Holder)
		} else if lock.Why != "" {
			by[view.DetailNoHolder] = view.Text(lock.Why, 512)
		}
	}
	if args := by[view.DetailArgs]; args != "" {
		by[view.DetailCall] += " " + args
	}
	if lock != nil && by[view.DetailTimeout] == "" && by[view.DetailFile] == "" {
		delete(by, view.DetailCall) // the state's name and the lock already say it
	}
	if h := by[view.DetailHolder]; h != "" {
		_, how := w.Holder()
		if lock != nil {
			how = lock.By
		}
		by[view.DetailHolder] = h + knownBy(how)
	}
	if l := by[view.DetailLock]; l != "" {
		if a := by[view.DetailAddress]; a != "" && !strings.HasSuffix(l, a) {
			l += " at " + a
		}
		if m := by[view.DetailModule]; m != "" {
			l += " in " + m
		}
		if k := by[view.DetailLockKnown]; k != "" {
			l += ", known by " + k
		}
		by[view.DetailLock] = l
	}
	for _, name := range details {
		if v := by[name]; v != "" {
			out = append(out, view.Detail{Name: name, Value: v})
		}
	}
	return out
}

// maxLanes is how many locks get a lane: those with the longest total wait.
const maxLanes = 256

// locks writes the relations between threads: arrows of waits, and the lanes.
func (e *exporter) locks() (free uint64) {
	id := e.ids + uint64(4*len(e.v.Threads)) // after those of all threads
	if e.contention == nil || len(e.contention.Locks) == 0 {
		return id + 1
	}
	next := func(track, counter uint64) *sequence {
		id++
		return &sequence{out: e.out, track: track, extra: counter, base: e.base, id: id}
	}
	e.releases(next)
	e.child(kindLocks, 0, e.uuid(kindProcess, 0), "locks", "", "Locks that threads waited for: who held them, and how many wanted them.",
		len(e.v.Threads)+1, false)
	lanes := 0
	for i := range e.contention.Locks {
		l := &e.contention.Locks[i]
		if lanes == maxLanes {
			break
		}
		if !l.Excludes {
			continue // no holder
		}
		lanes++
		e.child(kindLock, i, e.uuid(kindLocks, 0), l.Name, "", "Who was seen to hold it while others waited.", 2*i, false)
		e.child(kindWaiters, i, e.uuid(kindLock, i), "waiting for "+l.Name, "threads", "How many threads waited for it.", 1, false)
		e.lane(l, next(e.uuid(kindLock, i), e.uuid(kindWaiters, i)), next(e.uuid(kindWaiters, i), 0))
	}
	return id + 1
}

// releases writes marks on the threads that held locks when they released them.
func (e *exporter) releases(next func(track, counter uint64) *sequence) {
	type release struct {
		thread int
		wait   *contend.Wait
	}
	var all []release
	for i := range e.contention.Waits {
		w := &e.contention.Waits[i]
		if th, ok := e.lets(w); ok {
			all = append(all, release{th.Index, w})
		}
	}
	slices.SortStableFunc(all, func(a, b release) int {
		return cmp.Or(cmp.Compare(a.thread, b.thread), cmp.Compare(a.wait.End, b.wait.End))
	})
	o := e.out
	var s *sequence
	var in *interned
	for i, r := range all {
		if i == 0 || all[i-1].thread != r.thread {
			if !e.hasState[r.thread] {
				e.hasState[r.thread] = true
				e.child(kindState, r.thread, e.uuid(kindSlices, r.thread), "state", "", "", 1, false)
			}
			s, in = next(e.uuid(kindState, r.thread), 0), &interned{}
		}
		name := "lets go of " + e.contention.Locks[r.wait.Lock].Name
		if r.wait.By == event.KnownByInferred {
			name += " (inferred)"
		}
		id := in.words(name)
		at := s.begin(r.wait.End, true)
		in.take(o)
		ev := o.open(packetTrackEvent)
		o.uint(eventType, typeInstant)
		o.uint(eventName, uint64(id))
		o.fixed(eventFlowsEnd, e.flow(r.wait))
		o.end(ev)
		o.done(at)
	}
}

// lane writes the holder of l and the number of waiters while any thread waits. The count
// is attached to a slice that begins or ends at the same time.
func (e *exporter) lane(l *contend.Lock, held, count *sequence) {
	o, in := e.out, &interned{}
	known := false
	l.History(e.contention, func(h *contend.Held) {
		if !h.Change {
			at := count.begin(h.Begin, false)
			ev := o.open(packetTrackEvent)
			o.uint(eventType, typeCounter)
			o.uint(eventCounter, uint64(h.Waiting))
			o.end(ev)
			o.done(at)
			return
		}
		was := known
		known = h.Waiting > 0
		number := func(last bool) {
			if last && h.Counted {
				o.uint(eventExtraCounter, uint64(h.Waiting))
			}
		}
		if was {
			at := held.begin(h.Begin, false)
			ev := o.open(packetTrackEvent)
			o.uint(eventType, typeEnd)
			number(!known)
			o.end(ev)
			o.done(at)
		}
		if !known {
			return
		}
		name := "wanted"
		if h.TID != 0 {
			name = "held by " + e.v.ThreadName(h.TID) + knownBy(h.By)
		}
		id := in.words(name)
		at := held.begin(h.Begin, true)
		in.take(o)
		ev := o.open(packetTrackEvent)
		o.uint(eventType, typeBegin)
		o.uint(eventName, uint64(id))
		number(true)
		o.end(ev)
		o.done(at)
	})
}

// knownBy describes how a holder is known, for its name's suffix.
func knownBy(by event.KnownBy) string {
	switch by {
	case event.KnownByInferred:
		return ", inferred"
	case event.KnownByWaker:
		return ", measured"
	}
	return ", known by " + by.String()
}
