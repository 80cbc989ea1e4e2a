// Package graph puts the waits of many threads together: who waits for whom.
// It finds deadlocks, which are cycles over locks whose holders are known, and
// convoys, which are many threads behind one lock. It reads nothing and keeps
// nothing; its functions may be called concurrently.
package graph

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/lock"
)

// Thread is one thread at one look. Threads that do not wait belong here too:
// how many a process has counts.
type Thread struct {
	PID  int
	TID  stack.TID
	Info *wait.Info // nil: it does not wait
}

// waits reports whether t waits for a lock.
func (t *Thread) waits() bool { return t.Info != nil && t.Info.Lock != nil }

// Deadlock is a circle of threads each of which waits for a lock that the
// next one holds.
type Deadlock struct {
	Threads []Thread // Threads[i] waits for what Threads[i+1] holds, the last one for what the first does; begins with the lowest TID
	// Timed means that a wait in it has a timeout and will give up.
	Timed bool
}

// Deadlocks finds all of them, ordered by their lowest TID. A thread that
// waits for a lock of its own is one too.
//
// Looks at several threads are not of one moment, so that a circle may be
// made of waits that were never there together. confirm is called for each
// thread of a circle after all looks were made: it reports whether the thread
// has not run since its look and the lock still has that holder. If all are
// true the circle is real: nobody in it ran, so nobody let go. nil: the looks
// are known to be of one moment.
func Deadlocks(threads []Thread, confirm func(t *Thread) bool) []Deadlock {
	byTID := make(map[stack.TID]int, len(threads))
	perPID := map[int]int{}
	for i := range threads {
		byTID[threads[i].TID] = i
		perPID[threads[i].PID]++
	}
	next := make([]int, len(threads)) // whom i waits for; -1: nobody, or not known
	for i := range threads {
		next[i] = -1
		if h := holder(&threads[i]); h != 0 {
			j, ok := byTID[h]
			// A file lock is a process's: which of its threads would let go is
			// known only if there is but one.
			if ok && (threads[i].Info.Lock.Kind != lock.File || perPID[threads[j].PID] == 1) {
				next[i] = j
			}
		}
	}
	const (
		fresh = iota
		open  // on the path that is followed
		done
	)
	mark := make([]int, len(threads))
	var out []Deadlock
	for i := range threads {
		var path []int
		j := i
		for j >= 0 && mark[j] == fresh {
			mark[j] = open
			path = append(path, j)
			j = next[j]
		}
		if j >= 0 && mark[j] == open {
			if d, ok := circle(threads, path[slices.Index(path, j):], confirm); ok {
				out = append(out, d)
			}
		}
		for _, k := range path {
			mark[k] = done
		}
	}
	slices.SortFunc(out, func(a, b Deadlock) int { return cmp.Compare(a.Threads[0].TID, b.Threads[0].TID) })
	return out
}

// holder is whom a thread waits for, if that is known and no guess.
func holder(t *Thread) stack.TID {
	if !t.waits() {
		return 0
	}
	l := t.Info.Lock
	if l.Holder.By == event.KnownByInferred || l.Basis == lock.Likely || l.Basis == lock.ByNothing {
		return 0
	}
	return l.Holder.TID
}

func circle(threads []Thread, path []int, confirm func(t *Thread) bool) (Deadlock, bool) {
	var d Deadlock
	low := 0
	for i, j := range path {
		if threads[j].TID < threads[path[low]].TID {
			low = i
		}
	}
	for i := range path {
		t := threads[path[(low+i)%len(path)]]
		if confirm != nil && !confirm(&t) {
			return d, false
		}
		d.Timed = d.Timed || t.Info.Timeout > 0
		d.Threads = append(d.Threads, t)
	}
	return d, true
}

// Convoy is a queue of threads behind one lock.
type Convoy struct {
	Lock    *wait.Lock // as one of the waiters saw it: one that knew the holder, if any did
	Waiters []Thread   // by TID
}

// DefaultConvoy is how many waiters make a convoy, unless told otherwise.
const DefaultConvoy = 4

// Convoys finds the locks with at least least waiters, the longest queue
// first. Only what one thread has at a time counts: many threads that wait
// for a condition or at a barrier are no convoy.
func Convoys(threads []Thread, least int) []Convoy {
	by := map[wait.Key]*Convoy{}
	for i := range threads {
		t := &threads[i]
		if !t.waits() || !exclusive(t.Info.Lock.Kind) {
			continue
		}
		c := by[t.Info.Lock.Key]
		if c == nil {
			c = &Convoy{Lock: t.Info.Lock}
			by[t.Info.Lock.Key] = c
		}
		if c.Lock.Holder.TID == 0 && t.Info.Lock.Holder.TID != 0 {
			c.Lock = t.Info.Lock
		}
		c.Waiters = append(c.Waiters, *t)
	}
	var out []Convoy
	for _, c := range by {
		if len(c.Waiters) >= max(least, 1) {
			slices.SortFunc(c.Waiters, func(a, b Thread) int { return cmp.Compare(a.TID, b.TID) })
			out = append(out, *c)
		}
	}
	slices.SortFunc(out, func(a, b Convoy) int {
		return cmp.Or(cmp.Compare(len(b.Waiters), len(a.Waiters)), cmp.Compare(a.Waiters[0].TID, b.Waiters[0].TID))
	})
	return out
}

func exclusive(k lock.Kind) bool {
	switch k {
	case lock.Mutex, lock.RWLock, lock.Stdio, lock.LowLevel, lock.File, lock.Once, lock.GIL, lock.Monitor, lock.Synchronizer:
		return true
	}
	return false
}
