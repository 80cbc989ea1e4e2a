package lock

import (
	"fmt"

	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// musl's layouts (1.1.16 to 1.2.5, 64-bit: src/internal/pthread_impl.h and
// src/thread/*.c of bminor/musl@86373b4999bfd9a9379bc4a3ca877b1c80a2a340, and v1.2.3).
// musl counts a lock's sleepers next to the word: while a thread sleeps, the count is
// at least 1.
const (
	muslType      = 0 // _m_type
	muslLock      = 4 // _m_lock, the futex word
	muslWaiters   = 8 // _m_waiters
	muslMutexSize = 12

	muslRecursive  = 1
	muslErrorcheck = 2
	muslRobust     = 4
	muslPI         = 8
	muslShared     = 128
	muslTypeBits   = 3 | muslRobust | muslPI | muslShared

	muslBusy = 16 // EBUSY: the word of a locked normal mutex

	muslWriteLocked = 0x7fffffff

	muslDetachJoinable = 2 // DT_JOINABLE; DT_EXITING is 1
)

// muslDetach returns the offsets of detach_state and tid in musl's struct pthread:
// arm64 has dtv and canary at its end.
func muslDetach(arch string) (state, tid uint64) {
	if arch == "arm64" {
		return 40, 32
	}
	return 56, 48
}

// muslJoin: pthread_join sleeps on the thread's detach_state.
func (r *recogniser) muslJoin() bool {
	if !r.wants(kind.LockJoin) || r.w.Op != opWait || r.w.Val == 0 || r.w.Val > muslDetachJoinable {
		return false
	}
	state, tidAt := muslDetach(r.t.Arch)
	base := r.w.Word - state
	self, ok := r.m.probe64(base)
	if !ok || self != base {
		return false
	}
	v, ok := r.m.probe32(base + tidAt)
	if !ok {
		return false
	}
	r.found(kind.LockJoin, "musl", base, ByLayout)
	r.owner(int32(v), event.KnownByWord)
	return true
}

func (r *recogniser) muslMutex() bool {
	if !r.wants(kind.LockMutex) || r.w.Op != opWait || r.w.Val&wordWaiters == 0 || r.w.Word < muslLock {
		return false
	}
	var b [muslMutexSize]byte
	if !r.m.probe(b[:], r.w.Word-muslLock) {
		return false
	}
	typ, waiters := u32(b[muslType:]), u32(b[muslWaiters:])
	if typ&^muslTypeBits != 0 || typ&3 == 3 || waiters == 0 || waiters > maxWaiters || (typ&muslShared != 0) == r.w.Private {
		return false
	}
	val := r.w.Val & wordTID
	if typ&15 == 0 && val != muslBusy || typ&15 != 0 && !r.lives(int32(val)) {
		return false
	}
	r.found(kind.LockMutex, "musl", r.w.Word-muslLock, ByLayout)
	r.l.Type = muslTypeName(typ)
	r.muslOwner()
	return true
}

func muslTypeName(typ uint32) string {
	s := [...]string{"", "recursive", "errorcheck", ""}[typ&3]
	if typ&muslRobust != 0 {
		s = join(s, "robust")
	}
	if typ&muslPI != 0 {
		s = join(s, "PI")
	}
	return s
}

// muslOwner reads the word again: it is the owner, except for a normal mutex.
func (r *recogniser) muslOwner() {
	var b [muslMutexSize]byte
	if !r.m.read(b[:], r.l.Addr) {
		return
	}
	word := u32(b[muslLock:])
	r.l.Value = word
	switch {
	case u32(b[muslType:])&15 == 0:
		r.l.Holder = Holder{Why: "musl's normal mutex keeps no owner"}
	case word&wordOwnerDied != 0:
		r.l.Holder = Holder{Why: "its owner died and no thread has taken it over"}
	case word&wordTID == 0:
		r.l.Holder = Holder{Why: "free at this moment: the thread is being woken"}
	default:
		r.owner(int32(word&wordTID), event.KnownByWord)
	}
}

// muslRWLock: {lock, waiters, shared}.
func (r *recogniser) muslRWLock() bool {
	var b [12]byte
	if !r.wants(kind.LockRW) || r.w.Op != opWait || r.w.Val&wordWaiters == 0 || !r.m.probe(b[:], r.w.Word) {
		return false
	}
	waiters, shared := u32(b[4:]), u32(b[8:])
	if waiters == 0 || waiters > maxWaiters || shared != 0 && shared != muslShared || (shared == 0) != r.w.Private {
		return false
	}
	n := r.w.Val &^ wordWaiters
	if n == 0 || n != muslWriteLocked && n > maxWaiters {
		return false
	}
	r.found(kind.LockRW, "musl", r.w.Word, Likely)
	if r.l.Type == "" && n != muslWriteLocked {
		r.l.Type = "write" // readers only wait for writers
	}
	r.muslWriter()
	return true
}

func (r *recogniser) muslWriter() {
	v, ok := r.m.u32(r.l.Addr)
	if !ok {
		return
	}
	r.l.Value = v
	switch n := v &^ wordWaiters; n {
	case muslWriteLocked:
		r.l.Holder = Holder{Why: "held by a writer; musl's rwlock does not say by whom"}
	case 0:
		r.l.Holder = Holder{Why: "free at this moment: the thread is being woken"}
	default:
		r.l.Holder = Holder{Readers: int(n), Why: fmt.Sprintf("held by readers (%d); the lock does not say who they are", n)}
	}
}

// muslSemaphore: {value, waiters, private}; the value slept on is -1, or the
// sign bit alone since 1.2.4.
func (r *recogniser) muslSemaphore() bool {
	var b [12]byte
	if !r.wants(kind.LockSemaphore) || r.w.Op != opWait || r.w.Val != 0xffffffff && r.w.Val != wordWaiters || !r.m.probe(b[:], r.w.Word) {
		return false
	}
	waiters, private := u32(b[4:]), u32(b[8:])
	if waiters == 0 || waiters > maxWaiters || private != 0 && private != 128 || (private == 128) != r.w.Private {
		return false
	}
	return r.found(kind.LockSemaphore, "musl", r.w.Word, Likely)
}

// muslCond: a private condition variable's sleeper sleeps on a word in a list node on
// its own stack. The variable holds the head and tail of that list.
func (r *recogniser) muslCond() bool {
	const (
		nodePrev, nodeNext, nodeState, nodeBarrier = 0, 8, 16, 20
		condHead, condTail                         = 8, 40
		maxNodes                                   = 4096
		waiting                                    = 2
	)
	if !r.wants(kind.LockCond) || r.w.Op != opWait {
		return false
	}
	own := r.w.SP != 0 && r.w.Word > r.w.SP && r.w.Word-r.w.SP < stackScan
	if !own {
		if r.h.kind != kind.LockCond {
			return false
		}
		// Shared with other processes: the word belongs to the variable, at offset 8.
		return r.found(kind.LockCond, "musl", r.w.Word-8, ByFunction)
	}
	if r.w.Val != waiting {
		return false
	}
	node := r.w.Word - nodeBarrier
	if r.muslSignalled(node + nodeState) {
		return true
	}
	for _, c := range r.stack() {
		if c&7 != 0 || c == node || c < 4096 {
			continue
		}
		head, ok := r.m.probe64(c + condHead)
		if !ok || head == 0 {
			continue
		}
		if tail, ok := r.m.probe64(c + condTail); !ok || tail == 0 {
			continue
		}
		for range maxNodes {
			if head == node {
				return r.found(kind.LockCond, "musl", c, ByLayout)
			}
			if head, ok = r.m.probe64(head + nodeNext); !ok || head == 0 {
				break
			}
		}
	}
	return false
}

// muslSignalled reports whether a sleeper was signalled. Such a sleeper is in no list:
// it sleeps until the one signalled before it has released the mutex.
func (r *recogniser) muslSignalled(state uint64) bool {
	const signalled = 1
	if v, ok := r.m.probe32(state); !ok || v != signalled || r.h.kind != kind.LockCond {
		return false
	}
	r.found(kind.LockCond, "musl", r.w.Word, ByFunction)
	r.l.Note = "signalled: it waits for the mutex now, behind others"
	return true
}

// muslBarrier: threads sleep on words of a struct on the stack of the first thread to
// arrive. The barrier points to it.
func (r *recogniser) muslBarrier() bool {
	if r.h.kind != kind.LockBarrier && r.h.kind != "" || r.w.Op != opWait || r.w.Val > 1 {
		return false
	}
	const barrierInst, barrierLimit, last, finished = 24, 8, 4, 12
	inst := r.w.Word - last
	if r.w.Val == 1 {
		inst = r.w.Word - finished
	}
	for _, b := range r.stack() {
		if b&7 != 0 || b < 4096 {
			continue
		}
		if p, ok := r.m.probe64(b + barrierInst); !ok || p != inst {
			continue
		}
		limit, ok := r.m.probe32(b + barrierLimit)
		if !ok || limit == 0 || limit > maxWaiters {
			continue
		}
		if arrived, ok := r.m.probe32(inst); ok && arrived <= limit {
			r.found(kind.LockBarrier, "musl", b, ByLayout)
			r.l.Note = fmt.Sprintf("%d of %d have arrived", arrived+1, limit+1)
			return true
		}
	}
	return false
}
