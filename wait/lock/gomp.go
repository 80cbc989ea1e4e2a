package lock

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/wait/kind"
)

// Locks of libgomp, GCC's OpenMP library (libgomp/config/linux of gcc-mirror/gcc@254a858ae7ae1400452f1c80125c80de0778bde5;
// the barrier is the same in 198d14a1388128259c3b0a9e4fe74a50bdb33680, of 2016):
//
//	barrier    u32 total, generation; 56 bytes; u32 awaited, awaited_final. It begins a cache line; threads sleep on
//	           generation, a counter above three flags. At the end of a parallel region awaited_final counts down.
//	pool       {threads *, u32 threads_size, threads_used, last_team *, u64 threads_busy} in one cache line, before the
//	           barrier in which its threads wait for the next parallel region ("threads_dock" in libgomp.h)
//	mutex      i32: 0 free, 1 locked, -1 locked with sleepers
//	semaphore  i32: the highest bit: there are sleepers
const (
	gomp = "libgomp"

	gompLine       = 64
	gompGeneration = 4
	gompAwaited    = gompLine // in the barrier
	gompBarrier    = gompAwaited + 8
	gompPoolSize   = 8 // in the pool
	gompPoolUsed   = 12
	gompFlags      = 7
	gompContended  = 0xffffffff
	gompSleepers   = 1 << 31
)

// gompBarrier finds a barrier and whether it is the one of idle threads.
func (r *recogniser) gompBarrier() bool {
	at := r.w.Word - gompGeneration
	if !r.gomp(kind.LockBarrier) || at%gompLine != 0 || at < gompLine || (r.w.Val^r.v)&^gompFlags != 0 {
		return false
	}
	var b [gompBarrier]byte
	if !r.m.probe(b[:], at) {
		return false
	}
	total, awaited, final := u32(b[0:]), u32(b[gompAwaited:]), u32(b[gompAwaited+4:])
	within := func(n uint32) bool { return n > 0 && n < total }
	if total < 2 || total > maxWaiters || !(awaited == total && within(final) || final == total && within(awaited)) {
		return false
	}
	if final == total && r.dock(at, total) {
		r.found(kind.LockIdle, gomp, at, ByLayout)
		r.l.Note = "idle: a thread of OpenMP's pool with nothing to do"
		return true
	}
	r.found(kind.LockBarrier, gomp, at, ByLayout)
	r.l.Note = fmt.Sprintf("%d of %d have arrived", total-min(awaited, final), total)
	return true
}

// gomp reports whether the thread may wait in libgomp for a lock of kind k. libgomp sleeps without a timeout, and
// on words of its process.
func (r *recogniser) gomp(k kind.Lock) bool {
	return r.wants(k) && r.w.Op == opWait && r.w.Private && r.w.Timeout == 0
}

// dock reports whether a barrier of that number of threads is a pool's. The thread that starts a parallel region comes
// last, and is not idle if it sleeps there.
func (r *recogniser) dock(barrier uint64, total uint32) bool {
	var b [gompPoolUsed + 4]byte
	return !slices.ContainsFunc(r.w.Names, gompStarts) && r.m.probe(b[:], barrier-gompLine) &&
		u32(b[gompPoolUsed:]) == total && u32(b[gompPoolSize:]) >= total
}

// gompStarts reports whether a function starts a parallel region.
func gompStarts(name string) bool { return strings.HasPrefix(name, "GOMP_parallel") }

// gompWord finds a mutex or a semaphore, which have one word. Of glibc's locks none has these values.
func (r *recogniser) gompWord() bool {
	switch {
	case r.w.Val == gompContended && r.gomp(kind.LockMutex):
		return r.found(kind.LockMutex, gomp, r.w.Word, Likely)
	case r.w.Val == gompSleepers && r.gomp(kind.LockSemaphore):
		return r.found(kind.LockSemaphore, gomp, r.w.Word, Likely)
	}
	return false
}
