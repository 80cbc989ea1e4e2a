// Package infer names the thread that probably ended a wait where the lock keeps no
// owner: the thread that left the critical function when the wait ended. It uses only a
// recording, is a pure function of its input, and marks its results as inferred. If
// more than one thread is possible, it names none. Its functions may be called
// concurrently.
package infer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// A Wait is a wait that has ended.
type Wait struct {
	TID   stack.TID
	Lock  uint64     // any numbering that is equal for waits on one lock
	Begin stack.Time // the first sample in the wait
	End   stack.Time // the first sample after the wait, or the wait's exact end if known
	// Edge is how much earlier than End, in ns, the wait may have ended: the time since
	// the last sample in the wait.
	Edge int64
	// Func is the function that requested the lock: the caller of the lock function. 0:
	// unknown.
	Func uint64
}

// A Slice is one activation of a function on a thread.
type Slice struct {
	TID        stack.TID
	Func       uint64
	Begin, End stack.Time
	// Edge is how much earlier than End, in ns, it may have ended.
	Edge int64
}

// A Waker is the thread that ended a wait.
type Waker struct {
	TID  stack.TID     // 0: unknown, see Why
	By   event.KnownBy // KnownByInferred if there is a TID
	Func uint64        // the function that it left
	Left stack.Time    // when, according to its slice
	Why  string
}

// Wakers returns one Waker for each wait, in their order.
//
// The critical functions of a lock are those that requested it in any of its waits: the
// holder is inside one of them. The waker of a wait is the thread that was in one of
// them during the wait, was not itself waiting for that lock at the end, and left the
// function within the time in which the wait ended, as far as the samples' edges allow.
// It is named only if exactly one thread matches.
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
			// Slices that may end within the wait's last edge, from the first one that
			// ends late enough.
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
			out[i].Why = fmt.Sprintf("%s left a function that takes the lock when the wait ended", plural.Of(len(found), "thread"))
		}
	}
	return out
}

// blocked reports whether thread tid waited for the same lock during the whole time in
// which w may have ended: then it cannot have released the lock.
func blocked(waits []Wait, on []int, tid stack.TID, w *Wait) bool {
	for _, i := range on {
		o := &waits[i]
		if o.TID == tid && o.Begin <= w.End-stack.Time(w.Edge) && o.End-stack.Time(o.Edge) >= w.End {
			return true
		}
	}
	return false
}
