package view

import (
	"slices"
	"sort"

	"github.com/sliverprof/sliver/stack"
)

// Lanes places the traced calls of one thread on lanes. Two calls on a lane do not overlap, or one is
// inside the other and begins later. Calls of a thread overlap otherwise where tasks take turns on it.
// The zero value has no lanes.
type Lanes struct {
	lanes []lane
}

type lane struct {
	outer []span     // calls that are inside no other so far, by time
	end   stack.Time // of the last call
	floor stack.Time // spans before it are forgotten
}

type span struct{ from, to stack.Time }

// Bounds of Lanes.
const (
	maxLanes = 256
	maxSpans = 1024 // kept of one lane
)

// Place returns the number of the lane for a call; the calls come in the order in which they ended.
// It returns -1 if all lanes are taken.
func (l *Lanes) Place(from, to stack.Time) int {
	for i := range l.lanes {
		if l.lanes[i].take(from, to) {
			return i
		}
	}
	if len(l.lanes) == maxLanes {
		return -1
	}
	l.lanes = append(l.lanes, lane{})
	l.lanes[len(l.lanes)-1].take(from, to)
	return len(l.lanes) - 1
}

// take adds a call if it fits.
func (l *lane) take(from, to stack.Time) bool {
	if from < l.floor || to < l.end {
		return false
	}
	n := sort.Search(len(l.outer), func(i int) bool { return l.outer[i].from > from }) // those from n on are inside
	if n > 0 && l.outer[n-1].to > from {
		return false
	}
	if n == maxSpans {
		l.floor = l.outer[n/2-1].to
		l.outer = slices.Delete(l.outer, 0, n/2)
		n -= n / 2
	}
	l.outer, l.end = append(l.outer[:n], span{from, to}), to
	return true
}
