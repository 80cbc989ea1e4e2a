package files

import (
	"sync"
	"time"
)

// Later does the slow reads for the Tables of one process, which must not delay the
// sampling of threads on time: the processes that have each pipe or socket open, on the
// whole machine, and the kernel's socket tables. It runs a goroutine while a read is in
// progress. Its methods may be called from any goroutine.
type Later struct {
	// Open opens /proc/PID and /proc for one reading. The reader calls done at the end.
	Open func() (proc, sys Dir, done func(), err error)

	mu      sync.Mutex
	ends    reading[ends]
	sockets reading[sockets]
}

// reading is the last result. It is immutable.
type reading[T any] struct {
	last  *T    // nil: nothing yet
	until int64 // by the clock of the Tables: when the result expires
	going bool
}

// laterShare bounds the share of time spent on a reading to 1/laterShare.
const laterShare = 20

// Going reports whether a read is in progress.
func (l *Later) Going() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends.going || l.sockets.going
}

// take returns the last result, nil before the first one, and whether it is still
// valid. If it is not, take starts another reading.
func take[T any](l *Later, r *reading[T], now func() int64, ttl int64, read func(proc, sys Dir) *T) (last *T, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.last != nil && now() < r.until {
		return r.last, true
	}
	if !r.going {
		r.going = true
		go func() {
			begun := time.Now()
			x := new(T)
			if proc, sys, done, err := l.Open(); err == nil {
				x = read(proc, sys)
				done()
			}
			took := int64(time.Since(begun))
			l.mu.Lock()
			defer l.mu.Unlock()
			r.last, r.until, r.going = x, now()+max(ttl, laterShare*took), false
		}()
	}
	return r.last, false
}
