// Package lock resolves what a thread that sleeps in a futex call waits for: the kind
// of lock, the address of the lock itself (often around the futex word) and its holder,
// if that kind of lock keeps one. It uses the names of the functions on the stack if
// the caller has them, and the word and its surroundings in memory: the layouts of
// glibc, musl, Rust's standard library and libgomp, and the kernel's for priority inheritance.
//
// It reads memory through a small interface, knows no process and has no state. All
// functions may be called concurrently if the Target allows it. The caller checks
// whether the thread still waits after the reads.
package lock

import (
	"fmt"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// Basis is the evidence for the kind of a lock.
type Basis string

// Bases, strongest first.
const (
	ByCall     Basis = "call"     // the system call itself determines the kind
	ByFunction Basis = "function" // a function on the stack belongs to that kind only
	ByLayout   Basis = "layout"   // several independent words in memory match that kind and no other
	Likely     Basis = "likely"   // memory matches that kind, perhaps by chance
	ByNothing  Basis = ""
)

// Lock describes the lock that a thread waits for.
type Lock struct {
	Addr   uint64 // of the lock in the target; the futex word if the lock itself is unknown; 0 for file locks
	Word   uint64 // address of the futex word
	Value  uint32 // of the word when it was read
	Kind   kind.Lock
	Type   string // "recursive", "errorcheck", "robust PI", "read", "write", …; "" for the plain one
	Impl   string // implementation: "glibc", "musl", "rust", "go", "kernel", "hotspot", "libgomp", "c++", Ruby; "" if unknown
	Basis  Basis
	Shared bool   // other processes may use it too
	Mutex  uint64 // of a condition variable: the mutex that the wait released; 0 if unknown
	Note   string // further facts, as text
	Holder Holder
}

// Ruby is the Impl of the locks of Ruby programs.
const Ruby = "ruby"

// Impls of the locks of Go and of Java programs.
const (
	golang  = "go"
	hotspot = "hotspot"
)

// OfRuntime reports whether a managed runtime knows the holder of the lock, which no word of the lock
// shows.
func (l *Lock) OfRuntime() bool {
	return l.Kind.Runtime() || l.Impl == Ruby && (l.Kind == kind.LockMutex || l.Kind == kind.LockJoin)
}

// OwnWord reports whether the futex word is part of the lock, so that all waits for that word are waits
// for this lock. Threads of Go, HotSpot and Ruby sleep on a word of the thread, whatever they wait for.
func (l *Lock) OwnWord() bool {
	switch l.Impl {
	case golang, hotspot, Ruby:
		return false
	}
	return !l.Kind.Runtime()
}

// Holder is the thread that holds the lock, or that a join waits for.
type Holder struct {
	TID     stack.TID // 0: no holder or unknown, see Why
	NSTID   int32     // as numbered in the target's PID namespace; 0 if unknown
	By      event.KnownBy
	Readers int    // number of read holders, whose TIDs are unknown
	Why     string // why there is no TID
}

// Memory reads the target's memory. A short read returns an error.
type Memory interface {
	ReadAt(b []byte, addr uint64) (int, error)
}

// Libc is the C library of the target.
type Libc uint8

// C libraries. AnyLibc tries both layouts.
const (
	AnyLibc Libc = iota
	Glibc
	Musl
)

// Target describes the process.
type Target struct {
	Arch string // as in GOARCH
	Libc Libc
	Mem  Memory
	// Thread translates a TID of the target's PID namespace. ok is false if no such
	// thread lives. shared: the thread may belong to another process.
	Thread func(nstid int32, shared bool) (tid stack.TID, ok bool)
}

// Wait describes one thread in one futex call.
type Wait struct {
	Futex
	NSTID  int32    // of the thread, in the target's PID namespace; 0: unknown
	SP     uint64   // stack pointer; 0: unknown
	Names  []string // functions of its stack, leaf first; nil: unknown
	Go     bool     // code from the Go compiler made the call
	Native bool     // other code did
	// Function names the function that contains addr if Tells is true for its name, and
	// returns "" otherwise. nil: unknown.
	Function func(addr uint64) string
}

// MayBeIdle reports whether a thread that waits for l may be a runtime's own thread with nothing to
// do, as far as is known without all function names of its stack: see Idle.
func (l *Lock) MayBeIdle() bool {
	switch l.Kind {
	case kind.LockUnknown, kind.LockCond, kind.LockSemaphore:
		return true
	}
	return false
}

// Recognise resolves what w waits for. The Lock always has an address at least; err
// reports what could not be read.
func Recognise(t *Target, w *Wait) (Lock, error) {
	l := Lock{Addr: w.Word, Word: w.Word, Kind: kind.LockUnknown, Shared: !w.Private}
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
	if r.l.Kind == kind.LockUnknown {
		r.l.fromNames(h, w)
	}
	if r.l.Holder.TID == 0 && r.l.Holder.Why == "" && r.l.Holder.Readers == 0 {
		r.l.Holder.Why = noOwner(&r.l)
	}
	return r.l, nil
}

// fromNames sets the kind from function names alone.
func (l *Lock) fromNames(h named, w *Wait) {
	if h.kind == "" {
		if w.Go {
			l.Kind, l.Impl, l.Basis = kind.LockGoRuntime, "go", ByFunction
		}
		return
	}
	l.Kind, l.Type, l.Impl, l.Note, l.Basis = h.kind, h.typ, h.impl, h.note, ByFunction
	if l.Note == "" && (h.kind == kind.LockCond || h.kind == kind.LockBarrier || h.kind == kind.LockRW) && h.impl != "rust" {
		l.Note = "the address is that of the word slept on; where the lock begins is not known"
	}
}

func noOwner(l *Lock) string {
	switch l.Kind {
	case kind.LockUnknown:
		return "not a known kind of lock"
	case kind.LockCond, kind.LockSemaphore, kind.LockBarrier, kind.LockPark, kind.LockEvent, kind.LockChannel, kind.LockSelect, kind.LockWaitGroup, kind.LockSleep, kind.LockPoll, kind.LockIdle:
		if l.Kind == kind.LockEvent || l.Kind == kind.LockIdle {
			return "an " + string(l.Kind) + " has no holder"
		}
		return "a " + string(l.Kind) + " has no holder"
	case kind.LockGoRuntime:
		return "the Go runtime keeps no owner"
	case kind.LockGoScheduler:
		return "the Go scheduler has not handed its goroutine over yet"
	case kind.LockSafepoint:
		return "Java's virtual machine has stopped its threads"
	}
	who := l.Impl
	if who != "" {
		who += "'s "
	}
	return who + string(l.Kind) + " keeps no owner"
}

// recogniser is the state of one call of Recognise.
type recogniser struct {
	t *Target
	w *Wait
	m *memory
	l Lock
	h named
	v uint32 // the word
}

// wants reports whether the function names allow kind k.
func (r *recogniser) wants(k kind.Lock) bool {
	return r.h.kind == "" || r.h.kind == k || r.h.kind == kind.LockLibc
}

// found sets the common fields. The basis is ByFunction if the names agree.
func (r *recogniser) found(k kind.Lock, impl string, base uint64, b Basis) bool {
	r.l.Kind, r.l.Impl, r.l.Addr, r.l.Basis = k, impl, base, b
	if r.h.kind == k {
		r.l.Basis, r.l.Type, r.l.Note = ByFunction, r.h.typ, r.h.note
	}
	return true
}

func (r *recogniser) run() {
	switch {
	case r.h.kind == kind.LockIdle:
		r.l.fromNames(r.h, r.w)
		return
	case r.h.kind == kind.LockGoRuntime || r.h.kind == "" && r.w.Go:
		if !r.golang() {
			r.l.fromNames(r.h, r.w)
		}
		return
	case r.w.PI():
		r.priorityInheritance()
		return
	case r.h.kind == kind.LockSafepoint:
		r.l.fromNames(r.h, r.w)
		return
	case r.h.impl == "rust" || r.h.kind == kind.LockOnce || r.h.kind == kind.LockPark:
		r.l.fromNames(r.h, r.w)
		r.rustNamed()
		return
	}
	for _, try := range r.order() {
		if try() {
			return
		}
	}
	// Go's threads sleep on a word with value 0. Code whose stack could not be read may
	// be Go's too.
	if r.h.kind == "" && !r.w.Native && r.w.Op == opWait && r.w.Val == 0 && r.w.Private {
		r.golang()
	}
}

// order returns the checks, starting with those that need the most words as proof.
func (r *recogniser) order() []func() bool {
	glibc := []func() bool{r.glibcJoin, r.glibcCond, r.glibcMutex, r.glibcStdio, r.arena, r.gompBarrier, r.glibcRWLock, r.glibcBarrier, r.glibcSemaphore}
	musl := []func() bool{r.muslJoin, r.muslCond, r.muslMutex, r.gompBarrier, r.muslRWLock, r.muslSemaphore, r.muslBarrier}
	tail := []func() bool{r.rustUnnamed}
	switch r.t.Libc {
	case Glibc:
		return append(append(glibc, r.gompWord), tail...)
	case Musl:
		return append(musl, tail...)
	}
	return append(append(glibc, musl...), tail...)
}

// owner makes TID n, as stored in the lock, the holder. It reports whether there is
// such a thread.
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

// lives reports whether n is a live thread that may own the lock.
func (r *recogniser) lives(n int32) bool {
	if n <= 0 || n > maxTID {
		return false
	}
	_, ok := r.t.Thread(n, r.l.Shared)
	return ok
}

// Keeps reports whether Refresh can find a new holder of l.
func Keeps(l *Lock) bool {
	switch l.Kind {
	case kind.LockMutex, kind.LockRW:
		return l.Impl == "glibc" || l.Impl == "musl" || l.Impl == "kernel" && l.Kind == kind.LockMutex
	case kind.LockStdio:
		return true
	}
	return false
}

// Refresh reads the current holder of l, if its kind keeps one in a word or struct that
// Recognise found. It costs one small read and leaves everything else as it is. changed
// reports whether the holder is a different one.
func Refresh(t *Target, l *Lock) (changed bool, err error) {
	m := memory{m: t.Mem}
	r := recogniser{t: t, m: &m, l: *l}
	old := l.Holder
	if !Keeps(l) {
		return false, nil
	}
	switch {
	case l.Kind == kind.LockMutex && l.Impl == "glibc":
		r.glibcOwner()
	case l.Kind == kind.LockMutex && l.Impl == "musl":
		r.muslOwner()
	case l.Kind == kind.LockMutex && l.Impl == "kernel":
		if v, ok := m.u32(l.Word); ok {
			r.l.Value = v
			r.piWord(v)
		}
	case l.Kind == kind.LockRW && l.Impl == "glibc":
		r.glibcWriter()
	case l.Kind == kind.LockRW && l.Impl == "musl":
		r.muslWriter()
	case l.Kind == kind.LockStdio:
		r.stdioOwner()
	}
	if m.err != nil {
		return false, m.err
	}
	*l = r.l
	return l.Holder != old, nil
}
