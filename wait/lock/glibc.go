package lock

import (
	"encoding/binary"
	"fmt"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// glibc's layouts, little-endian 64-bit, the same on amd64 and arm64 except for the
// offset of a thread's TID. Sources: glibc 2.36 (debug information of the release) and
// bminor/glibc@2642002380aafb71a1d3b569b6d7ebeab3284816:
//
//	pthread_mutex_t   sysdeps/nptl/bits/thread-shared-types.h, struct __pthread_mutex_s
//	pthread_cond_t    same file, struct __pthread_cond_s; futex words moved in 2.41
//	pthread_rwlock_t  sysdeps/{x86,aarch64}/nptl/bits/struct_rwlock.h
//	pthread_barrier_t sysdeps/nptl/internaltypes.h, struct pthread_barrier (since 2.25)
//	sem_t             same file, struct new_sem, 64-bit atomics
//	struct pthread    nptl/descr.h
//	_IO_lock_t        sysdeps/nptl/stdio-lock.h
const (
	mutexLock   = 0
	mutexOwner  = 8
	mutexNusers = 12
	mutexKind   = 16
	mutexSize   = 20 // the part that is read

	// Bits of __kind (nptl/pthreadP.h).
	kindType    = 3
	kindRobust  = 16
	kindPI      = 32
	kindPP      = 64
	kindShared  = 128
	kindElision = 256 | 512
	kindBits    = kindType | kindRobust | kindPI | kindPP | kindShared | kindElision

	// The owner field of a robust mutex in an inconsistent state.
	ownerInconsistent   = 0x7fffffff
	ownerNotRecoverable = 0x7ffffffe
	ppWord              = 1<<19 - 1 // of a priority-protected mutex's word; the ceiling is in the bits above

	lowLocked = 2 // lll_lock: taken, with waiters (sysdeps/nptl/lowlevellock.h)

	rwReaders      = 0
	rwWrphase      = 8
	rwWritersFutex = 12
	rwPad          = 16
	rwCurWriter    = 24
	rwShared       = 28
	rwRest         = 32 // zeros: room for lock elision
	rwFlags        = 48 // preference for readers or writers, 0 to 2
	rwSize         = 52
	rwReaderShift  = 3 // number of readers in __readers
	rwWaiting      = 4 // PTHREAD_RWLOCK_RWAITING
	rwWrlocked     = 2
	rwWrphaseBit   = 1

	barrierRound = 4 // the futex word
	barrierSize  = 20

	semWaiters = 4
	semPrivate = 8
	semSize    = 16
	maxWaiters = 1 << 22

	ioOwner = 8 // of _IO_lock_t: int lock, int count, void *owner
)

// condWords are the offsets of pthread_cond_t's two futex words: since 2.41, and from
// 2.25 to 2.40.
var condWords = [...]uint64{32, 36, 40, 44}

// pthreadTID returns the offset of a thread's TID in struct pthread: after the TCB
// (amd64: 704 bytes; arm64, whose TCB is elsewhere: 24 words of padding) and a list
// node.
func pthreadTID(arch string) uint64 {
	if arch == "arm64" {
		return 24*8 + 16
	}
	return 704 + 16
}

// pthreadSelf is the offset of amd64's TCB pointer to itself; arm64 has none.
const pthreadSelf = 16

// isPthread reports whether p is a glibc thread and returns its TID.
func (r *recogniser) isPthread(p uint64) (tid int32, ok bool) {
	if p == 0 || p&7 != 0 {
		return 0, false
	}
	if r.t.Arch == "amd64" {
		if self, ok := r.m.probe64(p + pthreadSelf); !ok || self != p {
			return 0, false
		}
	}
	v, ok := r.m.probe32(p + pthreadTID(r.t.Arch))
	if !ok || !r.lives(int32(v)) {
		return 0, false
	}
	return int32(v), true
}

// glibcJoin: when a thread ends, the kernel clears its TID and wakes the sleepers on
// that word. pthread_join sleeps on it, with the TID as the value.
func (r *recogniser) glibcJoin() bool {
	if !r.wants(kind.LockJoin) || r.w.Private || r.w.Val == 0 || r.w.Val != r.v || r.w.Op != opWait && r.w.Op != opWaitBitset {
		return false
	}
	base := r.w.Word - pthreadTID(r.t.Arch)
	tid, ok := r.isPthread(base)
	if !ok || tid != int32(r.v) {
		return false
	}
	r.found(kind.LockJoin, "glibc", base, ByLayout)
	if r.t.Arch != "amd64" && r.h.kind != kind.LockJoin {
		r.l.Basis = Likely
	}
	r.l.Shared = false // set by the kernel: only threads of the process join
	r.owner(tid, event.KnownByWord)
	return true
}

func (r *recogniser) glibcMutex() bool {
	if h := r.h; h.kind == kind.LockCond && r.w.Val == lowLocked && r.w.Op == opWait {
		// The thread was woken and now takes the mutex on its way out of
		// pthread_cond_wait. That happens in an inner function, which may have no name.
		r.h = named{}
		if r.glibcMutex() {
			return true
		}
		r.h = h
		return false
	}
	if !r.wants(kind.LockMutex) || r.w.Op != opWait && r.w.Op != opWaitBitset {
		return false
	}
	var b [mutexSize]byte
	if !r.m.probe(b[:], r.w.Word) {
		return false
	}
	flags, owner, users := u32(b[mutexKind:]), int32(u32(b[mutexOwner:])), u32(b[mutexNusers:])
	robust := flags&kindRobust != 0
	switch {
	case flags&^kindBits != 0, users > maxWaiters:
		return false
	case robust:
		if r.w.Val&wordWaiters == 0 {
			return false
		}
	case flags&kindPP != 0:
		if r.w.Val&ppWord != lowLocked {
			return false
		}
	case r.w.Val != lowLocked:
		return false
	}
	basis := ByLayout
	switch {
	case robust && r.w.Val&wordTID != 0:
		// The word is the owner, which may have changed since the thread went to sleep.
		// The owner field follows a moment later. Both must name threads.
		if now := int32(r.v & wordTID); now != 0 && !r.lives(now) && r.v&wordOwnerDied == 0 {
			return false
		}
		if owner != 0 && owner != ownerInconsistent && owner != ownerNotRecoverable && !r.lives(owner) && r.v&wordOwnerDied == 0 {
			return false
		}
	case owner != 0:
		if users == 0 || !r.lives(owner) {
			if r.h.kind != kind.LockMutex {
				return false
			}
		}
	default:
		// No owner at this moment. Any internal lock of libc has this pattern.
		if users == 0 && r.h.kind != kind.LockMutex || r.h.kind == kind.LockLibc {
			return false
		}
		basis = Likely
	}
	r.found(kind.LockMutex, "glibc", r.w.Word, basis)
	r.l.Type = glibcType(flags)
	r.l.Shared = r.l.Shared && (flags&kindShared != 0 || !robust) // robust mutexes always sleep as if shared
	r.ownerOf(b[:])
	return true
}

func glibcType(flags uint32) string {
	typ := [...]string{"", "recursive", "errorcheck", "adaptive"}[flags&kindType]
	for _, f := range []struct {
		bit  uint32
		name string
	}{{kindRobust, "robust"}, {kindPI, "PI"}, {kindPP, "priority-protected"}} {
		if flags&f.bit != 0 {
			typ = join(typ, f.name)
		}
	}
	return typ
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + " " + b
}

// glibcOwner reads a mutex again.
func (r *recogniser) glibcOwner() {
	var b [mutexSize]byte
	if r.m.read(b[:], r.l.Addr) {
		r.ownerOf(b[:])
	}
}

// ownerTries bounds how often an empty owner field of a taken lock is read again: the
// two writes are a few instructions apart.
const ownerTries = 4

// ownerOf reads the owner of a mutex. Only the owner writes the field, after it took
// the lock and before it releases it. The thread in the field therefore held the lock
// when it was read.
func (r *recogniser) ownerOf(b []byte) {
	for try := 0; ; try++ {
		word, flags := u32(b[mutexLock:]), u32(b[mutexKind:])
		r.l.Value = word
		n := int32(u32(b[mutexOwner:]))
		if flags&(kindRobust|kindPI) != 0 {
			n = int32(word & wordTID)
			if word&wordOwnerDied != 0 {
				r.l.Holder = Holder{Why: "its owner died and no thread has taken it over"}
				return
			}
		}
		switch {
		case n != 0:
			r.owner(n, event.KnownByWord)
			return
		case word == 0:
			r.l.Holder = Holder{Why: "free at this moment: the thread is being woken"}
			return
		case try == ownerTries:
			r.l.Holder = Holder{Why: "changing hands: the lock is taken and its owner field empty"}
			return
		}
		if !r.m.read(b, r.l.Addr) {
			r.l.Holder = Holder{Why: "its owner field could not be read"}
			return
		}
	}
}

// glibcCond: pthread_cond_wait keeps {sequence, cond, mutex, private} on its stack for
// its cancellation handler, and the address of that in a cleanup buffer
// (nptl/pthread_cond_wait.c, struct _condvar_cleanup_buffer). Together they prove the
// condition variable and the mutex.
func (r *recogniser) glibcCond() bool {
	if !r.wants(kind.LockCond) || r.w.Op != opWaitBitset && (r.w.Op != opWait || r.w.Val != 0) { // before 2.34 it slept with FUTEX_WAIT on 0
		return false
	}
	words := r.stack()
	for i := 1; i+2 < len(words); i++ {
		base := words[i]
		for _, off := range condWords {
			if base+off != r.w.Word || base&7 != 0 {
				continue
			}
			at := r.w.SP + uint64(i-1)*8
			for _, arg := range words {
				if arg == at {
					r.found(kind.LockCond, "glibc", base, ByLayout)
					r.l.Mutex = words[i+1]
					return true
				}
			}
		}
	}
	return false
}

func (r *recogniser) glibcRWLock() bool {
	if !r.wants(kind.LockRW) || r.w.Op != opWait && r.w.Op != opWaitBitset {
		return false
	}
	// Find out which word of the rwlock was slept on. A consistent set of words proves it. If none
	// is consistent and function names prove an rwlock, use the possible offsets.
	if r.glibcRWWord(true) {
		return true
	}
	if r.h.kind != kind.LockRW || !r.glibcRWWord(false) {
		return false
	}
	r.l.Basis = Likely // which word it is remains a guess; that it is an rwlock is certain
	return true
}

func (r *recogniser) glibcRWWord(strict bool) bool {
	for _, off := range []uint64{rwWrphase, rwWritersFutex, rwReaders} {
		var b [rwSize]byte
		if r.w.Word < off || !r.m.probe(b[:], r.w.Word-off) {
			continue
		}
		readers, writer := u32(b[rwReaders:]), int32(u32(b[rwCurWriter:]))
		shared := u32(b[rwShared:])
		switch {
		case u64(b[rwPad:]) != 0, shared > 1, (shared == 1) == r.w.Private:
			continue
		// The value slept on: __wrphase_futex and __writers_futex are flags whose bit 1
		// every sleeper sets; __readers has RWAITING set.
		case off == rwReaders && r.w.Val&rwWaiting == 0, off != rwReaders && (r.w.Val > 3 || r.w.Val&2 == 0):
			continue
		case writer != 0 && !r.lives(writer):
			continue
		case strict && writer == 0 && readers>>rwReaderShift == 0:
			continue // free: nothing identifies the lock
		case readers>>rwReaderShift > maxWaiters:
			continue
		case strict && !consistent(readers, writer, r.w, off, b[:]):
			continue
		}
		basis := ByLayout
		if writer == 0 {
			basis = Likely
		}
		r.found(kind.LockRW, "glibc", r.w.Word-off, basis)
		if r.l.Type == "" {
			// Writers queue on their own word. They wait for the end of a read phase
			// with the phase word at 2.
			r.l.Type = "read"
			if off == rwWritersFutex || off == rwWrphase && r.w.Val == 2 {
				r.l.Type = "write"
			}
		}
		r.writerOf(b[:])
		return true
	}
	return false
}

// consistent reports whether the words of an rwlock agree with each other, which is the
// only evidence without a function name. A sleeper is not the writer itself (the lock
// would refuse that). A writer in the field requires both writer bits of __readers, and
// readers that hold the lock require that the write phase is over.
func consistent(readers uint32, writer int32, w *Wait, off uint64, b []byte) bool {
	const writing = rwWrlocked | rwWrphaseBit
	if u64(b[rwRest:]) != 0 || u64(b[rwRest+8:]) != 0 || u32(b[rwFlags:]) > 2 || writer != 0 && writer == w.NSTID {
		return false
	}
	if writer != 0 {
		return readers&writing == writing && (off != rwWrphase || w.Val == 3)
	}
	return readers&rwWrphaseBit == 0
}

func (r *recogniser) glibcWriter() {
	var b [rwSize]byte
	if r.m.read(b[:], r.l.Addr) {
		if off := r.l.Word - r.l.Addr; off <= rwSize-4 {
			r.l.Value = u32(b[off:])
		}
		r.writerOf(b[:])
	}
}

// writerOf reads the holder of an rwlock.
func (r *recogniser) writerOf(b []byte) {
	readers, writer := u32(b[rwReaders:]), int32(u32(b[rwCurWriter:]))
	switch n := readers >> rwReaderShift; {
	case writer != 0:
		r.owner(writer, event.KnownByWord)
	case n > 0 && readers&rwWrphaseBit == 0:
		r.l.Holder = Holder{Readers: int(n), Why: fmt.Sprintf("held by %s; the lock does not say who they are", plural.Of(n, "reader"))}
		if n == 1 {
			r.l.Holder.Why = "held by one reader; the lock does not say who it is"
		}
	default:
		r.l.Holder = Holder{Why: "changing hands"}
	}
}

// glibcBarrier: {in, round, count, shared, out}; threads sleep on round.
func (r *recogniser) glibcBarrier() bool {
	if !r.wants(kind.LockBarrier) || r.w.Val != r.v || r.w.Word < barrierRound || r.w.Op != opWait && r.w.Op != opWaitBitset {
		return false
	}
	var b [barrierSize]byte
	if !r.m.probe(b[:], r.w.Word-barrierRound) {
		return false
	}
	in, round, count, shared, out := u32(b[0:]), u32(b[4:]), u32(b[8:]), u32(b[12:]), u32(b[16:])
	arrived := in - round
	if count < 2 || count > maxWaiters || arrived == 0 || arrived >= count || shared != 0 && shared != 128 ||
		(shared == 128) == r.w.Private || out > in {
		return false
	}
	r.found(kind.LockBarrier, "glibc", r.w.Word-barrierRound, Likely)
	r.l.Note = fmt.Sprintf("%d of %d have arrived", arrived, count)
	return true
}

// glibcSemaphore: {value, waiters, private, 0}.
func (r *recogniser) glibcSemaphore() bool {
	if !r.wants(kind.LockSemaphore) || r.w.Op != opWaitBitset || r.w.Val != 0 {
		return false
	}
	var b [semSize]byte
	if !r.m.probe(b[:], r.w.Word) {
		return false
	}
	n, private := u32(b[semWaiters:]), u32(b[semPrivate:])
	if n == 0 || n > maxWaiters || private != 0 && private != 128 || (private == 0) != r.w.Private {
		return false
	}
	r.found(kind.LockSemaphore, "glibc", r.w.Word, Likely)
	return true
}

// glibcStdio: a stream's recursive lock contains its owner's struct pthread.
func (r *recogniser) glibcStdio() bool {
	if !r.wants(kind.LockStdio) || r.w.Op != opWait || r.w.Val != lowLocked {
		return false
	}
	p, ok := r.m.probe64(r.w.Word + ioOwner)
	if !ok {
		return false
	}
	tid, ok := r.isPthread(p)
	if !ok {
		return false
	}
	r.found(kind.LockStdio, "glibc", r.w.Word, ByLayout)
	if r.t.Arch != "amd64" {
		r.l.Basis = Likely
	}
	r.owner(tid, event.KnownByWord)
	return true
}

func (r *recogniser) stdioOwner() {
	var b [8]byte
	if !r.m.read(b[:], r.l.Addr+ioOwner) {
		return
	}
	p := u64(b[:])
	if tid, ok := r.isPthread(p); ok {
		r.owner(tid, event.KnownByWord)
		return
	}
	r.l.Holder = Holder{Why: "changing hands"}
}

// malloc's arenas start with their lock. Their array of bins identifies them: an empty
// bin points to itself, twice (malloc/malloc.c, struct malloc_state; bins start at 112
// since 2.27 and at 104 before).
const (
	arenaBins  = 127
	arenaEmpty = 64 // minimum of empty bins: most always are
)

// arena recognises the lock of a malloc arena.
func (r *recogniser) arena() bool {
	if !r.wants(kind.LockLibc) || r.w.Op != opWait || r.w.Val != lowLocked || !r.w.Private {
		return false
	}
	for _, off := range []uint64{112, 104} {
		var b [arenaBins * 16]byte
		if !r.m.probe(b[:], r.w.Word+off) {
			continue
		}
		empty := 0
		for i := range arenaBins {
			self := r.w.Word + off + uint64(i)*16 - 16
			if binary.LittleEndian.Uint64(b[i*16:]) == self && binary.LittleEndian.Uint64(b[i*16+8:]) == self {
				empty++
			}
		}
		if empty >= arenaEmpty {
			r.found(kind.LockLibc, "glibc", r.w.Word, ByLayout)
			r.l.Type, r.l.Note = ArenaType, ""
			return true
		}
	}
	return false
}

// ArenaType is the type of a LowLevel lock that guards a malloc arena.
const ArenaType = "malloc arena"
