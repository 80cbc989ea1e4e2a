package perfetto

import "github.com/sliverprof/sliver/stack"

// names writes a track below each thread that had several names, with a slice for each. id is the
// first sequence ID to use; names returns the next one.
func (e *exporter) names(id uint64) uint64 {
	for i := range e.v.Threads {
		th := &e.v.Threads[i]
		list := th.Names()
		if len(list) == 1 {
			continue
		}
		e.child(kindNames, th.Index, e.uuid(kindSlices, th.Index), "thread name", "", "The names that the thread had over time.", 0, false)
		s := &sequence{out: e.out, id: id, track: e.uuid(kindNames, th.Index), base: e.base}
		in := newInterned(e.v)
		for i, n := range list {
			from, to := max(n.From, th.Since, e.v.Begin()), e.v.End()
			if i+1 < len(list) {
				to = min(to, list[i+1].From)
			}
			if to > from {
				e.name(s, in, from, to, n.Label)
			}
		}
		if s.begun {
			id++
		}
	}
	return id
}

func (e *exporter) name(s *sequence, in *interned, from, to stack.Time, label string) {
	word := in.words(label)
	in.annotation() // the category
	at := s.begin(from, true)
	in.take(e.out)
	ev := e.out.open(packetTrackEvent)
	e.out.uint(eventCategory, categorySliver)
	e.out.uint(eventType, typeBegin)
	e.out.uint(eventName, uint64(word))
	e.out.end(ev)
	e.out.done(at)
	s.end(to)
}
