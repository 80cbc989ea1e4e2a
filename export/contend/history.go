package contend

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Held is the state of a lock from Begin on.
type Held struct {
	Begin   stack.Time
	Waiting int       // number of threads waiting
	TID     stack.TID // holder; 0: none, or unknown
	By      event.KnownBy
	// Change reports that the holder differs from the one before, or that the first
	// thread began to wait or the last one stopped. Counted reports that the number of
	// waiting threads changed.
	Change, Counted bool
}

// History yields the states of l over time. A lock is observed only while threads wait
// for it.
func (l *Lock) History(c *Contention, yield func(*Held)) {
	type step struct {
		at    stack.Time
		delta int
		saw   *Sighting
	}
	steps := make([]step, 0, 2*len(l.Waits)+len(l.Sightings))
	for _, i := range l.Waits {
		w := &c.Waits[i]
		if w.End > w.Begin {
			steps = append(steps, step{at: w.Begin, delta: 1}, step{at: w.End, delta: -1})
		}
	}
	for i := range l.Sightings {
		steps = append(steps, step{at: l.Sightings[i].At, saw: &l.Sightings[i]})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	var now Held
	for i := 0; i < len(steps); {
		next := now
		next.Begin = steps[i].at
		for ; i < len(steps) && steps[i].at == next.Begin; i++ {
			next.Waiting += steps[i].delta
			if s := steps[i].saw; s != nil {
				next.TID, next.By = s.TID, s.By
			}
		}
		if next.Waiting == 0 {
			next.TID, next.By = 0, 0
		}
		next.Counted = next.Waiting != now.Waiting
		next.Change = (next.Waiting == 0) != (now.Waiting == 0) || next.TID != now.TID
		if next.Counted || next.Change {
			yield(&next)
		}
		now = next
	}
}
