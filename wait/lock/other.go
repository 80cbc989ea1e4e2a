package lock

import (
	"fmt"

	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// priorityInheritance: the word of a PI futex is the owner's TID and two flags, which
// the kernel maintains (futex(2)).
func (r *recogniser) priorityInheritance() {
	r.found(kind.LockMutex, "kernel", r.w.Word, ByCall)
	r.l.Type = "PI"
	var b [mutexSize]byte
	tid := int32(r.v & wordTID)
	switch {
	case r.t.Libc != Musl && r.m.probe(b[:], r.w.Word) && u32(b[mutexKind:])&kindPI != 0 && u32(b[mutexKind:])&^kindBits == 0:
		// The owner field is written while holding the lock, a moment after the word.
		if o := int32(u32(b[mutexOwner:])); o == tid || o == 0 {
			r.l.Type = glibcType(u32(b[mutexKind:]))
			r.l.Shared = r.l.Shared && u32(b[mutexKind:])&kindShared != 0
		}
	case r.t.Libc != Glibc && r.w.Word >= muslLock && r.m.probe(b[:muslMutexSize], r.w.Word-muslLock) &&
		u32(b[muslType:])&muslPI != 0 && u32(b[muslType:])&^muslTypeBits == 0:
		r.l.Addr = r.w.Word - muslLock
		r.l.Type = muslTypeName(u32(b[muslType:]))
	}
	r.piWord(r.v)
}

func (r *recogniser) piWord(v uint32) {
	switch tid := int32(v & wordTID); {
	case v&wordOwnerDied != 0:
		r.l.Holder = Holder{Why: fmt.Sprintf("its owner (%d) died", tid)}
	case tid == 0:
		r.l.Holder = Holder{Why: "free at this moment: the thread is being woken"}
	default:
		r.owner(tid, event.KnownByKernel)
	}
}

// Rust's std locks (library/std/src/sys/sync/{mutex,rwlock}/futex.rs, rust-lang/rust
// 1.62 to 1.95; the states did not change):
//
//	Mutex   u32: 0 free, 1 locked, 2 locked with sleepers
//	RwLock  u32 state, u32 writer_notify; state's low 30 bits: readers, all ones: a writer
//	Parker  i32: -1 parked
const (
	rustContended = 2
	rustMask      = 1<<30 - 1
	rustParked    = 0xffffffff
)

// rustNamed adds the state in the word to a lock known by its functions.
func (r *recogniser) rustNamed() {
	if r.l.Impl != "rust" || r.l.Kind != kind.LockRW {
		return
	}
	state := r.v
	if r.l.Type == "write" { // sleeps on writer_notify
		if r.w.Word < 4 {
			return
		}
		v, ok := r.m.probe32(r.w.Word - 4)
		if !ok {
			return
		}
		state = v
		r.l.Addr = r.w.Word - 4
	}
	switch n := state & rustMask; n {
	case rustMask:
		r.l.Holder = Holder{Why: "held by a writer; Rust's RwLock does not say by whom"}
	case 0:
	default:
		r.l.Holder = Holder{Readers: int(n), Why: fmt.Sprintf("held by readers (%d); the lock does not say who they are", n)}
	}
}

// rustUnnamed: Rust sleeps with FUTEX_WAIT_BITSET without a timeout, where C libraries
// sleep with FUTEX_WAIT.
func (r *recogniser) rustUnnamed() bool {
	if r.h.kind != "" || r.w.Op != opWaitBitset || !r.w.Private {
		return false
	}
	switch {
	case r.w.Val == rustContended && r.v <= rustContended && r.w.Timeout == 0:
		return r.found(kind.LockMutex, "rust", r.w.Word, Likely)
	case r.w.Val == rustParked:
		return r.found(kind.LockPark, "rust", r.w.Word, Likely)
	}
	return false
}
