// Package lock finds out what a thread that sleeps in a futex call waits for:
// the kind of lock, the address of the lock itself (the futex word is often
// inside it) and, where that kind keeps one, its holder. It goes by the names
// of the functions that are on the stack where the caller has them, and by
// the word and its surroundings in memory: the layouts of glibc, musl and
// Rust's standard library, and the kernel's for priority inheritance.
//
// It reads memory through a small interface and knows no process; it has no
// state, so that all functions may be called concurrently as long as the
// Target allows it. Whether the thread still waits after the reading is for
// the caller to check.
package lock

import (
	"fmt"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// Kind is what sort of thing is waited for.
type Kind string

// Kinds of locks.
const (
	Unknown   Kind = "futex" // not recognised
	Mutex     Kind = "mutex"
	Cond      Kind = "condition variable"
	Semaphore Kind = "semaphore"
	RWLock    Kind = "rwlock"
	Barrier   Kind = "barrier"
	Join      Kind = "join"
	Once      Kind = "once"
	Park      Kind = "park"  // a thread that parked itself until another unparks it
	Stdio     Kind = "stdio" // the lock of a C stream
	LowLevel  Kind = "libc"  // a lock inside libc
	GoRuntime Kind = "go runtime"
	Channel   Kind = "channel"    // Go's
	Select    Kind = "select"     // Go's, on several channels
	WaitGroup Kind = "wait group" // Go's
	Sleep     Kind = "sleep"      // a goroutine's, for time to pass
	Poll      Kind = "poll"       // a goroutine's, for a descriptor
	Idle      Kind = "idle"       // no lock: a thread of a runtime's own that has nothing to do
	Safepoint Kind = "safepoint"  // Java's virtual machine has stopped its threads
	GIL       Kind = "GIL"        // CPython's global interpreter lock
	Monitor   Kind = "monitor"    // of a Java object
	// Synchronizer is a lock of java.util.concurrent that keeps its owner.
	Synchronizer Kind = "synchronizer"
	File         Kind = "file" // flock, fcntl
)

// Basis is how the kind of a lock is known.
type Basis string

// Bases, from the surest down.
const (
	ByCall     Basis = "call"     // the system call itself says so
	ByFunction Basis = "function" // a function on the stack is that kind's own
	ByLayout   Basis = "layout"   // several independent words in memory agree with that kind and no other
	Likely     Basis = "likely"   // memory agrees with that kind, but it could be chance
	ByNothing  Basis = ""
)

// Lock is what a thread waits for.
type Lock struct {
	Addr   uint64 // of the lock in the target; the futex word where the lock itself is not known; 0 for file locks
	Word   uint64 // address of the futex word
	Value  uint32 // of the word when it was read
	Kind   Kind
	Type   string // "recursive", "errorcheck", "robust PI", "read", "write", …; "" for the plain one
	Impl   string // whose it is: "glibc", "musl", "rust", "go", "kernel"; "" unknown
	Basis  Basis
	Shared bool   // it may be in use by other processes too
	Mutex  uint64 // of a condition variable: the mutex that the wait gives back; 0 unknown
	Note   string // what else is known, in words
	Holder Holder
}

// Holder is who has the lock, or whom a join waits for.
type Holder struct {
	TID     stack.TID // 0: nobody or not known, Why says which
	NSTID   int32     // as the target's PID namespace numbers it; 0 unknown
	By      event.KnownBy
	Readers int    // how many hold it for reading; who they are is not known
	Why     string // why there is no TID
}

// Memory is the target's. A short read comes with an error.
type Memory interface {
	ReadAt(b []byte, addr uint64) (int, error)
}

// Libc is the C library of the target.
type Libc uint8

// C libraries. AnyLibc has both layouts tried.
const (
	AnyLibc Libc = iota
	Glibc
	Musl
)

// Target is what must be known of the process.
type Target struct {
	Arch string // GOARCH's name
	Libc Libc
	Mem  Memory
	// Thread translates a TID of the target's own PID namespace; ok is false
	// where no such thread lives. shared: it may be one of another process.
	Thread func(nstid int32, shared bool) (tid stack.TID, ok bool)
}

// Wait is one thread in one futex call.
type Wait struct {
	Futex
	NSTID int32    // of the thread, in the target's PID namespace; 0: not known
	SP    uint64   // its stack pointer; 0: not known
	Names []string // functions of its stack, leaf first; nil: not known
	Go    bool     // the call was made by code of the Go compiler
	// Function names the function that an address lies in, if its name is one
	// that Tells: "" else. nil: not known.
	Function func(addr uint64) string
}

// MayBeIdle reports whether a thread that waits for l, as far as is known without the names of all
// functions on its stack, may be one of a runtime's own that has nothing to do: see Idle.
func (l *Lock) MayBeIdle() bool {
	switch l.Kind {
	case Unknown, Cond, Semaphore:
		return true
	}
	return false
}

// Recognise finds out what w waits for. It always has an answer, if only the
// address; err says what could not be read.
func Recognise(t *Target, w *Wait) (Lock, error) {
	l := Lock{Addr: w.Word, Word: w.Word, Kind: Unknown, Shared: !w.Private}
	m := memory{m: t.Mem}
	v, ok := m.window(w.Word)
	if !ok {
		l.Holder.Why = fmt.Sprintf("the lock word at %#x cannot be read", w.Word)
		l.fromNames(hint(w.Names), w)
		return l, m.err
	}
	l.Value = v
	h := hint(w.Names)
	r := recogniser{t: t, w: w, m: &m, l: l, h: h, v: v}
	r.run()
	if r.l.Kind == Unknown {
		r.l.fromNames(h, w)
	}
	if r.l.Holder.TID == 0 && r.l.Holder.Why == "" && r.l.Holder.Readers == 0 {
		r.l.Holder.Why = noOwner(&r.l)
	}
	return r.l, nil
}

// fromNames takes the kind from function names alone.
func (l *Lock) fromNames(h named, w *Wait) {
	if h.kind == "" {
		if w.Go {
			l.Kind, l.Impl, l.Basis = GoRuntime, "go", ByFunction
		}
		return
	}
	l.Kind, l.Type, l.Impl, l.Note, l.Basis = h.kind, h.typ, h.impl, h.note, ByFunction
	if l.Note == "" && (h.kind == Cond || h.kind == Barrier || h.kind == RWLock) && h.impl != "rust" {
		l.Note = "the address is that of the word slept on; where the lock begins is not known"
	}
}

func noOwner(l *Lock) string {
	switch l.Kind {
	case Unknown:
		return "not a known kind of lock"
	case Cond, Semaphore, Barrier, Park, Channel, Select, WaitGroup, Sleep, Poll, Idle:
		return "a " + string(l.Kind) + " has no holder"
	case GoRuntime:
		return "the Go runtime keeps no owner"
	case Safepoint:
		return "Java's virtual machine has stopped its threads"
	}
	who := l.Impl
	if who != "" {
		who += "'s "
	}
	return who + string(l.Kind) + " keeps no owner"
}

// recogniser is one run.
type recogniser struct {
	t *Target
	w *Wait
	m *memory
	l Lock
	h named
	v uint32 // the word
}

// wants reports whether names allow kind k.
func (r *recogniser) wants(k Kind) bool {
	return r.h.kind == "" || r.h.kind == k || r.h.kind == LowLevel
}

// found fills in the common part; the basis is the function's where names
// agree.
func (r *recogniser) found(k Kind, impl string, base uint64, b Basis) bool {
	r.l.Kind, r.l.Impl, r.l.Addr, r.l.Basis = k, impl, base, b
	if r.h.kind == k {
		r.l.Basis, r.l.Type, r.l.Note = ByFunction, r.h.typ, r.h.note
	}
	return true
}

func (r *recogniser) run() {
	switch {
	case r.h.kind == Idle:
		r.l.fromNames(r.h, r.w)
		return
	case r.h.kind == GoRuntime || r.h.kind == "" && r.w.Go:
		if !r.golang() {
			r.l.fromNames(r.h, r.w)
		}
		return
	case r.w.PI():
		r.priorityInheritance()
		return
	case r.h.kind == Safepoint:
		r.l.fromNames(r.h, r.w)
		return
	case r.h.impl == "rust" || r.h.kind == Once || r.h.kind == Park:
		r.l.fromNames(r.h, r.w)
		r.rustNamed()
		return
	}
	for _, try := range r.order() {
		if try() {
			return
		}
	}
	// Go's threads sleep on a word that is zero; code without a stack that
	// could be read may be Go's too.
	if r.h.kind == "" && r.w.Op == opWait && r.w.Val == 0 && r.w.Private {
		r.golang()
	}
}

// order is from what proves itself by the most words to the least.
func (r *recogniser) order() []func() bool {
	glibc := []func() bool{r.glibcJoin, r.glibcCond, r.glibcMutex, r.glibcStdio, r.arena, r.glibcRWLock, r.glibcBarrier, r.glibcSemaphore}
	musl := []func() bool{r.muslJoin, r.muslCond, r.muslMutex, r.muslRWLock, r.muslSemaphore, r.muslBarrier}
	tail := []func() bool{r.rustUnnamed}
	switch r.t.Libc {
	case Glibc:
		return append(glibc, tail...)
	case Musl:
		return append(musl, tail...)
	}
	return append(append(glibc, musl...), tail...)
}

// owner makes TID n, as the lock has it, the holder. It reports whether there
// is such a thread.
func (r *recogniser) owner(n int32, by event.KnownBy) bool {
	r.l.Holder = Holder{NSTID: n}
	tid, ok := r.t.Thread(n, r.l.Shared)
	if !ok {
		r.l.Holder.Why = fmt.Sprintf("its owner is thread %d, which does not live", n)
		return false
	}
	r.l.Holder.TID, r.l.Holder.By = tid, by
	return true
}

// lives reports whether n is a thread that may own the lock.
func (r *recogniser) lives(n int32) bool {
	if n <= 0 || n > maxTID {
		return false
	}
	_, ok := r.t.Thread(n, r.l.Shared)
	return ok
}

// Keeps reports whether Refresh may ever tell of another holder of l.
func Keeps(l *Lock) bool {
	switch l.Kind {
	case Mutex, RWLock:
		return l.Impl == "glibc" || l.Impl == "musl" || l.Impl == "kernel" && l.Kind == Mutex
	case Stdio:
		return true
	}
	return false
}

// Refresh reads who holds l now, where its kind keeps that in one word or
// struct that Recognise found; everything else stays. It is one small read.
// changed tells whether the holder is another one.
func Refresh(t *Target, l *Lock) (changed bool, err error) {
	m := memory{m: t.Mem}
	r := recogniser{t: t, m: &m, l: *l}
	old := l.Holder
	if !Keeps(l) {
		return false, nil
	}
	switch {
	case l.Kind == Mutex && l.Impl == "glibc":
		r.glibcOwner()
	case l.Kind == Mutex && l.Impl == "musl":
		r.muslOwner()
	case l.Kind == Mutex && l.Impl == "kernel":
		if v, ok := m.u32(l.Word); ok {
			r.l.Value = v
			r.piWord(v)
		}
	case l.Kind == RWLock && l.Impl == "glibc":
		r.glibcWriter()
	case l.Kind == RWLock && l.Impl == "musl":
		r.muslWriter()
	case l.Kind == Stdio:
		r.stdioOwner()
	}
	if m.err != nil {
		return false, m.err
	}
	*l = r.l
	return l.Holder != old, nil
}
