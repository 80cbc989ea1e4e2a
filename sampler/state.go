package sampler

import (
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
)

// The parts of a group's state that belong to no trick of their own.

// groupControl is what other goroutines ask of a group.
type groupControl struct {
	stopping atomic.Bool
	ready    atomic.Bool
	mu       sync.Mutex
	incoming []*thread  // guarded by mu
	held     stack.Time // since when sampling is paused; 0: it is not
}

// imageSeen is the program that the group last looked at.
type imageSeen struct {
	execs uint64
	// runtimes is the Space's Runtimes. Stacks taken before it changed are stale.
	runtimes uint32
}

// pass is a group's state for its rounds.
type pass struct {
	rested     stack.Time // end of the last round
	first      int        // index of the thread that comes first among the running ones
	turn       int        // the same for sleeping ones
	left       int        // threads that the group did not wait for because they had no CPU: in this round, and the one before
	leftBefore int
	unasked    stack.Time // since when threads have waited for Ask; 0: none
	vain       int64      // ns spent in this round waiting for threads that did not stop
	calls      halted
	napTo      int64 // number of the next tick at which a thread is looked at: see planNaps; at most the present one: unknown
}

// current is the look at hand.
type current struct {
	thread  *thread                     // the view's thread
	queued  int64                       // ns of its stop during which it waited for a CPU
	woke    bool                        // it was blocked at first
	spent   bool                        // it has used up its share of stops
	inCalls bool                        // its clock does not see calls, and a stop is to show which one it is in
	asked   int                         // reads that More made during the stop
	batches uint64                      // batches of samples that came late, so far
	word    func(uint64) (uint64, bool) // Sample.Word
	here    func(*stack.Frame) bool     // Sample.Here
}

// waiting is a group's state for the waits of its threads.
type waiting struct {
	of     Waits // nil: waits are not resolved
	glance Glance
	took   int64 // ns in this round
	missed int   // most rounds in a row in which a wait was not resolved, as of this round and the one before
	behind int
	idle   bool // Busy has returned false since the last Look
}

// busy is Waits.Busy, which takes long for many threads.
func (w *waiting) busy() bool {
	if w.of == nil || w.idle {
		return false
	}
	w.idle = !w.of.Busy()
	return !w.idle
}

// tally is what a group counts. Other goroutines read all but pool, of which they read share.
type tally struct {
	pool   poolUse
	asleep atomic.Uint64 // looks at threads that slept at the last look
	awakes atomic.Uint64 // looks at the others
	moved  atomic.Uint64 // looks that found that a thread had slept at the last look and has run since
	size   atomic.Int32
	pauses map[string]*Histogram // by role, guarded by the Sampler's roll.mu
}
