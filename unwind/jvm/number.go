package jvm

import (
	"slices"
	"sync"
	"sync/atomic"
)

// NumberSpan is how many bytes of a Carrier's Near are looked through for the number of the virtual
// thread that it runs: a JavaThread of 21 is about as long.
const NumberSpan = 2048

// numbers finds out where HotSpot keeps the number of the virtual thread that a carrier runs
// besides in the heap, whose objects may be anywhere while a collector moves them: in 21 its
// flight recorder notes it at each mount, whether it records or not (JfrThreadLocal::
// on_set_current_thread in src/hotspot/share/jfr/support/jfrThreadLocal.cpp). No table that every
// build has says where in the thread that is. So it has to show itself: by being the number that was read from the heap, of one virtual
// thread after the other.
type numbers struct {
	at atomic.Int64 // its offset; 0: not known yet, -1: there is none that can be believed

	mu    sync.Mutex
	seen  [NumberSpan / 8][]uint64 // of each word, the different numbers that it rightly had
	wrong [NumberSpan / 8]uint32   // how often it was another
	right uint32                   // of the word that was chosen
}

const (
	// numberProofs is how many different virtual threads' numbers a word must have had.
	numberProofs = 8
	// numberMisses is the share of looks, one of so many, in which it may have been another: at
	// a mount it is written a few instructions after the reference.
	numberMisses = 64
)

// NumberAt is how far behind a Carrier's Near the number of the virtual thread is that it runs;
// 0: that is not known. sought: it may be found out by more calls of Number.
func (r *Runtime) NumberAt() (off uint64, sought bool) {
	at := r.numbers.at.Load()
	return uint64(max(at, 0)), at == 0
}

// Number says that a carrier ran the virtual thread of that number when the words behind its Near
// were these (NumberSpan bytes of them, or the one at NumberAt alone).
func (r *Runtime) Number(words []uint64, id uint64) {
	n := &r.numbers
	n.mu.Lock()
	defer n.mu.Unlock()
	switch at, sought := r.NumberAt(); {
	case id == 0:
	case at != 0 && len(words) == 1:
		if words[0] == id {
			n.right++
		} else if n.wrong[at/8]++; n.wrong[at/8] > numberProofs && n.wrong[at/8] > n.right/numberMisses {
			n.at.Store(-1)
		}
	case sought && len(words) > 1:
		for i, w := range words[:min(len(words), len(n.seen))] {
			switch {
			case w != id:
				n.wrong[i]++
			case !slices.Contains(n.seen[i], id):
				n.seen[i] = append(n.seen[i], id)
			}
			if i > 0 && len(n.seen[i]) == numberProofs && n.wrong[i] <= 1 {
				n.at.Store(int64(8 * i))
				return
			}
		}
	}
}
