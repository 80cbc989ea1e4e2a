package files

import (
	"runtime"
	"sync"
	"syscall"
)

// Later does the slow reads for the Tables of one process, which must not delay the
// sampling of threads on time: the processes that have each pipe or socket open, on the
// whole machine, and the kernel's socket tables. It runs a goroutine while a read is in
// progress. Its methods may be called from any goroutine.
type Later struct {
	// Open opens /proc/PID and /proc for one reading. The reader calls done at the end.
	Open func() (proc, sys Dir, done func(), err error)
	// Ends reads the descriptors of all processes for the Laters of several processes. nil: this one does.
	Ends *Later
	// Near returns the processes whose descriptors are also read by themselves, which takes a small part of the time:
	// pipes often connect the processes of a recording. nil: there are none.
	Near func() []int
	// Skip reports processes whose descriptors are not read, as those of another one are the same. nil: there are none.
	Skip func(pid int) bool

	mu      sync.Mutex
	near    reading[ends]
	ends    reading[ends]
	sockets reading[sockets]
}

// reading is the last result. It is immutable.
type reading[T any] struct {
	last  *T    // nil: nothing yet
	begun int64 // by the clock of the Tables: when the read of last began
	until int64 // when it expires
	rest  int64 // when the next read may begin, if it is needed before
	going bool
	need  bool // last is too old for a descriptor, and the next read may not begin yet
}

// A reading for a descriptor that the last one lacks takes at most 1/laterShare of a CPU, and one that refreshes known
// descriptors 1/freshShare: the ends of a pipe seldom change.
const laterShare, freshShare = 20, 100

// ofEnds returns the Later that reads descriptors.
func (l *Later) ofEnds() *Later {
	if l.Ends != nil {
		return l.Ends
	}
	return l
}

// Going reports whether a read is in progress, or needed and not due yet. now is the time by the clock of the Tables.
func (l *Later) Going(now int64) bool {
	e := l.ofEnds()
	e.mu.Lock()
	ends := e.ends.awaited(now) || e.near.awaited(now)
	e.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return ends || l.sockets.awaited(now)
}

func (r *reading[T]) awaited(now int64) bool { return r.going || r.need && now < r.rest }

// take returns the last result, nil before the first one, and whether it is still
// valid. If it is not, take starts another reading.
func take[T any](l *Later, r *reading[T], now func() int64, ttl int64, read func(proc, sys Dir) *T) (last *T, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.last != nil && now() < r.until {
		return r.last, true
	}
	start(l, r, now, ttl, read)
	return r.last, false
}

// since reports whether the last result was read after t. If not, it starts another reading as soon as its share of
// the time allows.
func since[T any](l *Later, r *reading[T], t int64, now func() int64, ttl int64, read func(proc, sys Dir) *T) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.last != nil && r.begun >= t {
		return true
	}
	if r.need = true; now() >= r.rest {
		start(l, r, now, ttl, read)
	}
	return false
}

// start begins a reading, unless one is in progress. The caller holds l.mu.
func start[T any](l *Later, r *reading[T], now func() int64, ttl int64, read func(proc, sys Dir) *T) {
	if r.going {
		return
	}
	r.going = true
	go func() {
		runtime.LockOSThread() // whose CPU time is what the reading costs, however long it waits for a CPU
		defer runtime.UnlockOSThread()
		begun, at := cpuTime(), now()
		x := new(T)
		if proc, sys, done, err := l.Open(); err == nil {
			x = read(proc, sys)
			done()
		}
		took := cpuTime() - begun
		l.mu.Lock()
		defer l.mu.Unlock()
		r.last, r.begun, r.going, r.need = x, at, false, false
		r.rest = now() + laterShare*took
		r.until = now() + max(ttl, freshShare*took)
	}()
}

// cpuTime returns the CPU time of the calling thread in ns (getrusage(2)).
func cpuTime() int64 {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if syscall.Getrusage(thread, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
