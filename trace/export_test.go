package trace

import "github.com/sliverprof/sliver/trace/event"

// SharpEvents yields the events of thread i of rec with its traced calls.
func SharpEvents(rec *Recording, i int, yield func(event.Event)) {
	s := NewSharp(rec, i, NewSlices(NewNames(rec), nil))
	s.out = &liveOut{yield: yield}
	for e := range rec.Fitted(rec.Threads[i].Seq) {
		s.Apply(e)
	}
	s.Close()
}
