package trace

import (
	"iter"

	"github.com/sliverprof/sliver/trace/event"
)

// Written yields the events of a thread as they are in the file.
func (rec *Recording) Written(seq int) iter.Seq[event.Event] { return rec.events(seq) }
