package perfetto

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/stack"
)

// mark is an end of an arrow between processes.
type mark struct {
	thread int
	at     stack.Time
	name   string
	flow   uint64
	field  protowire.Number // eventFlows where the arrow begins, eventFlowsEnd where it ends
}

// wakes returns the waits that have an arrow, by the view in which it begins: those whose waker has a track.
func wakes(b *between.Between) map[int][]*between.Wait {
	out := map[int][]*between.Wait{}
	for i := range b.Waits {
		if w := &b.Waits[i]; w.Waker >= 0 && w.WakerThread >= 0 {
			n := b.Processes[w.Waker].View
			out[n] = append(out[n], w)
		}
	}
	return out
}

// arrows writes both ends of the arrows between processes, as marks on the threads' tracks of states: one leads from
// what ended a wait to its end. id is a free sequence ID; arrows returns the next one.
func (e *exporter) arrows(id uint64) uint64 {
	var all []mark
	b := e.between
	for _, w := range e.wakes[e.n] { // it acted before the wait was seen to be over
		name := "wakes " + e.views[w.View].Process()
		if w.By == between.ByEnd || w.By == between.ByEndOnly {
			name = "ended: " + e.views[w.View].Process() + " waited for it"
		}
		all = append(all, mark{w.WakerThread, min(w.At, w.End-1), name, e.flowOf(w), eventFlows})
	}
	for i := range b.Of(e.n) {
		if w := &b.Of(e.n)[i]; w.Waker >= 0 && w.WakerThread >= 0 {
			all = append(all, mark{w.Thread, w.End, "woken by " + b.Woken(w), e.flowOf(w), eventFlowsEnd})
		}
	}
	slices.SortStableFunc(all, func(x, y mark) int { return cmp.Or(cmp.Compare(x.thread, y.thread), cmp.Compare(x.at, y.at)) })
	o := e.out
	var s *sequence
	var in *interned
	for i := range all {
		m := &all[i]
		if i == 0 || all[i-1].thread != m.thread {
			if !e.hasState[m.thread] {
				e.hasState[m.thread] = true
				e.child(kindState, m.thread, e.uuid(kindSlices, m.thread), "state", "", "", 1, false)
			}
			s, in = &sequence{out: e.out, track: e.uuid(kindState, m.thread), base: e.base, id: id}, &interned{}
			id++
		}
		name := in.words(m.name)
		at := s.begin(m.at, true)
		in.take(o)
		ev := o.open(packetTrackEvent)
		o.uint(eventType, typeInstant)
		o.uint(eventName, uint64(name))
		o.fixed(m.field, m.flow)
		o.end(ev)
		o.done(at)
	}
	return id
}

// flowOf returns the ID of the arrow of a wait of any process.
func (e *exporter) flowOf(w *between.Wait) uint64 {
	return uuidOf(&e.views[w.View].Rec.Process, kindBetween, w.Thread) + uint64(w.Begin)
}
