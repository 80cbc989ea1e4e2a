package files

import (
	"sync"
	"time"
)

// Later reads for the Tables of one process what takes long, and what they cannot wait
// for where threads are looked at on time: who has which pipe or socket open, on the
// whole machine, and the kernel's tables of sockets. It has a goroutine while something
// is read. Its methods may be called from any goroutine.
type Later struct {
	// Open opens /proc/PID and /proc for one reading; it is to call done in the end.
	Open func() (proc, sys Dir, done func(), err error)

	mu      sync.Mutex
	ends    reading[ends]
	sockets reading[sockets]
}

// reading is what was read last, which nobody changes any more.
type reading[T any] struct {
	last  *T    // nil: nothing yet
	until int64 // by the clock of the Tables: so long it is believed
	going bool
}

// laterShare is how much of the time, as its divisor, a reading may take.
const laterShare = 20

// Going reports whether something is being read.
func (l *Later) Going() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends.going || l.sockets.going
}

// take returns what was read last, nil before the first reading, and whether it still
// is to be believed; if not, another reading begins.
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
