package jvm

import (
	"slices"
	"sync"
	"sync/atomic"
)

// NumberSpan is the number of bytes after a Carrier's Near that are searched for the number of its
// virtual thread. A JavaThread of 21 is about as long.
const NumberSpan = 2048

// numbers learns where HotSpot keeps the number of a carrier's virtual thread outside of the heap,
// whose objects may be anywhere while a collector moves them. In 21 the flight recorder stores it
// in the thread at each mount, even if it does not record (JfrThreadLocal::on_set_current_thread in
// src/hotspot/share/jfr/support/jfrThreadLocal.cpp). Tables in the library do not give its offset
// in every build. numbers therefore looks for a word that equals the number read from the heap for
// several virtual threads in turn.
type numbers struct {
	at atomic.Int64 // its offset; 0: unknown yet, -1: no reliable one

	mu    sync.Mutex
	seen  [NumberSpan / 8][]uint64 // per word, the distinct numbers that it matched
	wrong [NumberSpan / 8]uint32   // mismatches per word
	right uint32                   // matches of the chosen word
}

const (
	// numberProofs is the number of distinct virtual threads that a word must match.
	numberProofs = 8
	// numberMisses is the inverse of the accepted share of mismatches. At a mount, the word is
	// written a few instructions after the reference.
	numberMisses = 64
)

// NumberAt returns the offset of the virtual thread's number from a Carrier's Near, or 0 if it is
// unknown. sought means that more calls of Number may find it.
func (r *Runtime) NumberAt() (off uint64, sought bool) {
	at := r.numbers.at.Load()
	return uint64(max(at, 0)), at == 0
}

// Number records that a carrier ran the virtual thread with number id while its memory at Near held
// words: NumberSpan bytes, or only the one at NumberAt.
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
