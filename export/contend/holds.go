package contend

import (
	"slices"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Hold is the part of a wait in which one thread held the lock.
type Hold struct {
	Wait       int // index in Contention.Waits
	TID        stack.TID
	By         event.KnownBy
	Begin, End stack.Time
	At         stack.Time // when it was last seen holding the lock in this part
}

// MaxHolds limits the parts of all waits, to about 200 MB. Of further waits, Holds returns the last holder alone.
const MaxHolds = 1 << 22

// Holds divides the waits of c, which is of v, by the holders of their locks, in the order of c.Waits. A thread holds the
// lock from the first sample that saw it do so until one sees the next holder; the first one, from the wait's
// begin. A wait without a known holder has no part.
func (c *Contention) Holds(v *view.View) []Hold {
	turns := make([][]turn, len(c.Locks))
	for i := range c.Locks {
		turns[i] = turnsOf(c.Locks[i].Sightings)
	}
	var out []Hold
	for i := range c.Waits {
		w := &c.Waits[i]
		if w.Holder == 0 {
			continue
		}
		begin := len(out)
		if begin < MaxHolds {
			out = parts(out, i, w, v.Threads[w.Thread].TID, turns[w.Lock])
		}
		if len(out) == begin { // no sample saw the holder
			out = append(out, Hold{Wait: i, TID: w.Holder, By: w.By})
		}
		out[begin].Begin = w.Begin
		last := &out[len(out)-1]
		last.End, last.At = w.End, w.HeldAt
	}
	return out
}

// turn is a run of sightings of one holder.
type turn struct {
	tid         stack.TID
	by          event.KnownBy
	first, last stack.Time
}

func turnsOf(all []Sighting) (out []turn) {
	for i := range all {
		switch s := &all[i]; {
		case s.TID == 0:
		case len(out) > 0 && out[len(out)-1].tid == s.TID:
			out[len(out)-1].last = s.At
		default:
			out = append(out, turn{s.TID, s.By, s.At, s.At})
		}
	}
	return out
}

// parts appends the parts of wait i, of thread tid. The begin of the first one and the end of the last one are open.
func parts(out []Hold, i int, w *Wait, tid stack.TID, turns []turn) []Hold {
	begin := len(out)
	from, _ := slices.BinarySearchFunc(turns, w.Begin, func(t turn, at stack.Time) int {
		if t.last < at {
			return -1
		}
		return 1
	})
	for _, t := range turns[from:] {
		if t.first > w.End {
			break
		}
		if t.tid == tid { // the wait has ended, which its own sample is yet to show
			continue
		}
		if n := len(out); n > begin {
			if out[n-1].TID == t.tid {
				out[n-1].At = t.last
				continue
			}
			out[n-1].End = t.first
		}
		out = append(out, Hold{Wait: i, TID: t.tid, By: t.by, Begin: t.first, At: t.last})
	}
	return out
}
