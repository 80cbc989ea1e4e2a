package lock

import "strings"

// named is what function names say.
type named struct {
	kind Kind
	typ  string
	impl string
	note string
}

// maxNames is how far from the leaf a wait's own function may be: wrappers of
// a language's library around it add a few frames.
const maxNames = 16

// hint reads the names of a stack, leaf first. The first one that is a wait
// function decides; a lock inside libc says so only where nothing better
// follows.
func hint(names []string) named {
	var low named
	for i, n := range names {
		if i == maxNames {
			break
		}
		h := function(n)
		switch {
		case h.kind == "":
			continue
		case h.kind == LowLevel:
			low = h
			continue
		case h.kind == GoRuntime:
			var idle bool
			if h.note, idle = goReason(names); idle {
				h.kind = Idle
			}
		}
		return h
	}
	return low
}

// Tells reports whether a function's name says something about a wait that it
// is on the stack of.
func Tells(name string) bool {
	note, _ := goReason([]string{name})
	return function(name).kind != "" || note != "" || goFunction(name) != nil
}

// function reads one name. C names may have underscores before them, a
// version behind, and the words by which glibc tells its variants apart.
func function(name string) named {
	switch {
	case strings.HasPrefix(name, "runtime."):
		switch name {
		case "runtime.futex", "runtime.futexsleep", "runtime.futex.abi0", "runtime.notesleep", "runtime.notetsleep_internal",
			"runtime.mPark", "runtime.lock2", "runtime.semasleep":
			return named{kind: GoRuntime, impl: "go"}
		}
		return named{}
	case strings.Contains(name, "::"):
		return qualified(name)
	}
	n := strings.TrimLeft(name, "_")
	n, _, _ = strings.Cut(n, "@")
	switch {
	case strings.HasPrefix(n, "pthread_mutex_") && strings.Contains(n, "lock") && !strings.Contains(n, "unlock"), n == "mtx_lock", n == "mtx_timedlock":
		return named{kind: Mutex}
	case strings.HasPrefix(n, "pthread_cond_") && strings.Contains(n, "wait"), n == "cnd_wait", n == "cnd_timedwait":
		return named{kind: Cond}
	case strings.HasPrefix(n, "pthread_cond_") && (strings.Contains(n, "signal") || strings.Contains(n, "broadcast")):
		return named{kind: Cond, note: "it wakes others, and waits until they have made room; the address is that of the word slept on"}
	case strings.HasPrefix(n, "new_sem_") && strings.Contains(n, "wait"), n == "sem_wait", n == "sem_timedwait", n == "sem_clockwait":
		return named{kind: Semaphore}
	case strings.HasPrefix(n, "pthread_rwlock_"):
		switch {
		case strings.Contains(n, "rdlock"):
			return named{kind: RWLock, typ: "read"}
		case strings.Contains(n, "wrlock"):
			return named{kind: RWLock, typ: "write"}
		}
	case strings.HasPrefix(n, "pthread_barrier_wait"), n == "pshared_barrier_wait":
		return named{kind: Barrier}
	case strings.HasPrefix(n, "pthread_join"), strings.HasPrefix(n, "pthread_clockjoin"), strings.HasPrefix(n, "pthread_timedjoin"), n == "thrd_join":
		return named{kind: Join}
	case strings.HasPrefix(n, "pthread_once"), n == "call_once":
		return named{kind: Once, note: "another thread runs the initialisation"}
	case n == "flockfile":
		return named{kind: Stdio}
	case strings.HasPrefix(n, "lll_lock_wait"):
		return named{kind: LowLevel, impl: "glibc"}
	}
	return named{}
}

// qualified reads names of Rust and C++ (Rust's library: library/std/src/sys,
// rust-lang/rust 1.62 to 1.95; the module path moved, the types did not).
func qualified(name string) named {
	rust := strings.HasPrefix(name, "std::sys::") || strings.HasPrefix(name, "std::sync::") ||
		strings.HasPrefix(name, "<std::sys::") || strings.HasPrefix(name, "<std::sync::")
	switch {
	case rust && strings.Contains(name, "futex::Mutex>::lock"), rust && strings.Contains(name, "futex::Mutex::lock"),
		rust && strings.Contains(name, "futex_mutex::Mutex::lock"):
		return named{kind: Mutex, impl: "rust"}
	case rust && strings.Contains(name, "futex") && strings.Contains(name, "RwLock") && strings.Contains(name, "read_contended"):
		return named{kind: RWLock, typ: "read", impl: "rust"}
	case rust && strings.Contains(name, "futex") && strings.Contains(name, "RwLock") && strings.Contains(name, "write_contended"):
		return named{kind: RWLock, typ: "write", impl: "rust"}
	case rust && strings.Contains(name, "futex") && strings.Contains(name, "Condvar"):
		return named{kind: Cond, impl: "rust"}
	case rust && strings.Contains(name, "futex") && strings.Contains(name, "Once"):
		return named{kind: Once, impl: "rust", note: "another thread runs the initialisation"}
	case strings.HasPrefix(name, "std::thread::") && strings.Contains(name, "park"),
		strings.Contains(name, "futex::Parker"), strings.Contains(name, "parking::futex"):
		return named{kind: Park, impl: "rust"}
	case strings.HasPrefix(name, "parking_lot::"), strings.HasPrefix(name, "<parking_lot::"):
		switch {
		case strings.Contains(name, "lock_slow") || strings.Contains(name, "RawMutex"):
			return named{kind: Park, typ: "mutex", impl: "rust", note: "parking_lot: the word is the thread's own, the mutex elsewhere"}
		case strings.Contains(name, "lock_shared_slow"), strings.Contains(name, "lock_exclusive_slow"):
			return named{kind: Park, typ: "rwlock", impl: "rust", note: "parking_lot: the word is the thread's own, the lock elsewhere"}
		}
	case strings.HasPrefix(name, "std::call_once"):
		return named{kind: Once, note: "another thread runs the initialisation"}
	}
	return named{}
}

// goReason says in words why one of the Go runtime's threads sleeps. idle: it has nothing to do.
func goReason(names []string) (note string, idle bool) {
	for i, n := range names {
		if i == maxNames {
			break
		}
		switch n {
		case "runtime.stoplockedm":
			return "its goroutine, which is bound to this thread, is blocked", false
		case "runtime.stopm", "runtime.findRunnable", "runtime.findrunnable", "runtime.schedule":
			return "idle: no goroutine to run", true
		case "runtime.lock2", "runtime.lock", "runtime.lockWithRank":
			return "a lock of the runtime", false
		case "runtime.sysmon":
			return "the runtime's monitor, idle", true
		case "runtime.templateThread":
			return "the runtime's template thread, idle", true
		case "runtime.stopTheWorldWithSema", "runtime.forEachP":
			return "stops the world", false
		case "runtime.signal_recv", "os/signal.signal_recv":
			return "waits for signals", false
		case "runtime.gcstopm":
			return "stopped for the garbage collector", false
		}
	}
	return "", false
}

// ByNames is what a stack's function names, leaf first, say of a sleep on a word of the Go runtime's:
// its kind, and a note; "": nothing.
func ByNames(names []string) (Kind, string) {
	h := hint(names)
	if h.kind != Idle && h.kind != GoRuntime {
		return "", ""
	}
	return h.kind, h.note
}
