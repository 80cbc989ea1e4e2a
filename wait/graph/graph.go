// Package graph combines the waits of many threads into a graph of waiters and holders.
// It finds deadlocks, which are cycles over locks with known holders, and convoys,
// which are queues of many threads for one lock. It reads nothing and keeps no state;
// its functions may be called concurrently.
package graph

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// Thread is one thread at one sample. Include threads that do not wait: the number of a
// process's threads matters.
type Thread struct {
	PID  int
	TID  stack.TID
	Info *wait.Info // nil: it does not wait
}

// waits reports whether t waits for a lock.
func (t *Thread) waits() bool { return t.Info != nil && t.Info.Lock != nil }

// Deadlock is a cycle of threads in which each waits for a lock that the next one
// holds.
type Deadlock struct {
	Threads []Thread // Threads[i] waits for a lock of Threads[i+1], the last one for a lock of the first; starts with the lowest TID
	// Timed means that a wait in the cycle has a timeout and will end.
	Timed bool
}

// Deadlocks finds all deadlocks, ordered by their lowest TID. A thread that waits for a
// lock that it holds itself is one too.
//
// Samples of several threads are not taken at one moment, so the waits of a cycle may
// never have existed at the same time. confirm is called for each thread of a cycle
// after all samples were taken. It reports whether the thread has not run since its
// sample and the lock still has that holder. If all calls return true the cycle is
// real: none of its threads ran, so none released a lock. nil: the samples were all
// taken at one moment.
func Deadlocks(threads []Thread, confirm func(t *Thread) bool) []Deadlock {
	byTID := make(map[stack.TID]int, len(threads))
	perPID := map[int]int{}
	for i := range threads {
		byTID[threads[i].TID] = i
		perPID[threads[i].PID]++
	}
	next := make([]int, len(threads)) // the thread that i waits for; -1: none, or unknown
	for i := range threads {
		next[i] = -1
		if h := holder(&threads[i]); h != 0 {
			j, ok := byTID[h]
			// A file lock belongs to a process: the thread that would release it is
			// known only if the process has just one.
			if ok && (threads[i].Info.Lock.Kind != kind.LockFile || perPID[threads[j].PID] == 1) {
				next[i] = j
			}
		}
	}
	const (
		fresh = iota
		open  // on the current path
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

// holder returns the thread that a thread waits for, if that is known for certain.
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
	Lock    *wait.Lock // from a waiter that knows the holder, if any does
	Waiters []Thread   // by TID
}

// DefaultConvoy is the default number of waiters that make a convoy.
const DefaultConvoy = 4

// Convoys finds the locks with at least least waiters, the longest queue first. Only
// locks that one thread holds at a time count: many threads that wait for a condition
// or at a barrier are not a convoy.
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

func exclusive(k kind.Lock) bool {
	switch k {
	case kind.LockMutex, kind.LockRW, kind.LockStdio, kind.LockLibc, kind.LockFile, kind.LockOnce, kind.LockGIL, kind.LockMonitor, kind.LockSynchronizer, kind.LockClassInit:
		return true
	}
	return false
}
