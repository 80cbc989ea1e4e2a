// Package infer says who probably ended a wait where the lock keeps no owner:
// the thread that left the critical function when the wait ended. It works on
// a recording alone, is a pure function of its input, and marks whatever it
// says as inferred; where more than one thread may have been it, it names
// none. Its functions may be called concurrently.
package infer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// A Wait is one that has ended.
type Wait struct {
	TID   stack.TID
	Lock  uint64     // of whatever numbering: equal for waits on one lock
	Begin stack.Time // the first sample that saw it
	End   stack.Time // the first sample that saw it no more, or the wait's true end where that is known
	// Edge is how much earlier than End, in ns, the wait may have ended: the
	// time since the last sample that saw it.
	Edge int64
	// Func is the function that asked for the lock: the caller of the lock
	// function. 0: not known.
	Func uint64
}

// A Slice is one activation of a function on one thread.
type Slice struct {
	TID        stack.TID
	Func       uint64
	Begin, End stack.Time
	// Edge is how much earlier than End, in ns, it may have ended.
	Edge int64
}

// Waker is who ended a wait.
type Waker struct {
	TID  stack.TID     // 0: not known, Why says why
	By   event.KnownBy // KnownByInferred, where there is a TID
	Func uint64        // the function that it left
	Left stack.Time    // when, as its slice says
	Why  string
}

// Wakers returns one Waker for each wait, in their order.
//
// The critical functions of a lock are those that asked for it in any of its
// waits: whoever has the lock is inside one of them. The waker of a wait is
// the thread that was in one of them when the wait was on, was not itself
// waiting for that lock at the end, and left it within the time in which the
// wait ended, as far as the samples' edges allow. If exactly one thread was
// that, it is the one.
func Wakers(waits []Wait, slcs []Slice) []Waker {
	critical := map[uint64]map[uint64]bool{} // lock → functions
	for i := range waits {
		w := &waits[i]
		if w.Func == 0 {
			continue
		}
		if critical[w.Lock] == nil {
			critical[w.Lock] = map[uint64]bool{}
		}
		critical[w.Lock][w.Func] = true
	}
	byFunc := map[uint64][]Slice{}
	maxEdge := map[uint64]int64{}
	for _, s := range slcs {
		byFunc[s.Func] = append(byFunc[s.Func], s)
		maxEdge[s.Func] = max(maxEdge[s.Func], s.Edge)
	}
	for _, l := range byFunc {
		slices.SortFunc(l, func(a, b Slice) int { return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.TID, b.TID)) })
	}
	byLock := map[uint64][]int{}
	for i := range waits {
		byLock[waits[i].Lock] = append(byLock[waits[i].Lock], i)
	}
	out := make([]Waker, len(waits))
	for i := range waits {
		w := &waits[i]
		fs := critical[w.Lock]
		if len(fs) == 0 {
			out[i].Why = "which function asked for the lock is not known"
			continue
		}
		found := map[stack.TID]Slice{}
		for f := range fs {
			l := byFunc[f]
			// Those whose end may lie in the wait's last edge: from the first
			// that ends late enough on.
			at, _ := slices.BinarySearchFunc(l, w.End-stack.Time(w.Edge), func(s Slice, t stack.Time) int { return cmp.Compare(s.End, t) })
			for ; at < len(l) && l[at].End-stack.Time(maxEdge[f]) <= w.End; at++ {
				s := l[at]
				if s.TID == w.TID || s.End-stack.Time(s.Edge) > w.End || s.Begin >= w.End {
					continue
				}
				if blocked(waits, byLock[w.Lock], s.TID, w) {
					continue
				}
				if old, ok := found[s.TID]; !ok || s.End < old.End {
					found[s.TID] = s
				}
			}
		}
		switch len(found) {
		case 0:
			out[i].Why = "no thread was seen to leave a function that takes the lock when the wait ended"
		case 1:
			for tid, s := range found {
				out[i] = Waker{TID: tid, By: event.KnownByInferred, Func: s.Func, Left: s.End}
			}
		default:
			out[i].Why = fmt.Sprintf("%d threads left a function that takes the lock when the wait ended", len(found))
		}
	}
	return out
}

// blocked reports whether thread tid waited for the same lock for as long as
// w may have been ending: then it cannot have let go of it.
func blocked(waits []Wait, on []int, tid stack.TID, w *Wait) bool {
	for _, i := range on {
		o := &waits[i]
		if o.TID == tid && o.Begin <= w.End-stack.Time(w.Edge) && o.End-stack.Time(o.Edge) >= w.End {
			return true
		}
	}
	return false
}
