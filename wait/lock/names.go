package lock

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/wait/kind"
)

// named is the information in function names.
type named struct {
	kind kind.Lock
	typ  string
	impl string
	note string
}

// maxNames bounds how far from the leaf a wait's own function may be: the wrappers of a
// language's library add a few frames.
const maxNames = 16

// hint reads the names of a stack, leaf first. The first wait function decides. A lock
// inside libc decides only if no other wait function follows.
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
		case h.kind == kind.LockLibc:
			low = h
			continue
		case h.kind == kind.LockGoRuntime:
			var idle bool
			if h.note, idle = goReason(names); idle {
				h.kind = kind.LockIdle
			}
		case h.kind == kind.LockCond || h.kind == kind.LockSemaphore:
			if note := idleIn(names[i:], h.kind); note != "" {
				return named{kind: kind.LockIdle, note: note}
			}
		}
		return h
	}
	return low
}

// wrappers bounds the functions of a runtime between the one that it sleeps in and the one that has
// nothing to do: PlatformMonitor::wait, Monitor::wait_without_safepoint_check. With one more, the
// thread waits in the middle of work.
const wrappers = 2

// idleIn describes an idle thread of a runtime by the names of its stack, which start
// with those of a wait of kind k. "": the thread may be working.
func idleIn(names []string, k kind.Lock) string {
	last := 0
	for i, n := range names[:min(len(names), maxNames)] {
		switch h := function(n); {
		case h.kind == k:
			last = i
		case i > last+wrappers+1:
			return ""
		case idlers[n] != "":
			return idlers[n]
		case n == poolWorker && i > 0 && names[i-1] == poolWait:
			return pools
		}
	}
	return ""
}

const (
	collects = "idle: a thread of Java's garbage collector with nothing to do"
	serves   = "idle: a thread of Java's virtual machine with nothing to do"
	nodes    = "idle: a thread of Node's with nothing to do"
	pools    = "idle: a thread of libuv's pool with nothing to do"
	// The functions that each of those runs and sleeps in (deps/uv/src/threadpool.c of Node 18 to
	// 24). The name of the first identifies it only together with the second.
	poolWorker, poolWait = "worker", "uv_cond_wait"
)

// idlers are the functions in which threads of HotSpot 17 to 25 and of Node 18 to 24
// wait for work. In other functions such a wait may be for work in progress.
var idlers = map[string]string{
	"GangWorker::loop": collects, "WorkerThread::run": collects, "G1ConcurrentMarkThread::run_service": collects,
	"G1ConcurrentMarkThread::wait_for_next_cycle": collects, "G1ConcurrentRefineThread::run_service": collects,
	"G1PrimaryConcurrentRefineThread::wait_for_completed_buffers": collects, "G1ConcurrentRefineThread::wait_for_completed_buffers": collects,
	"G1ServiceThread::sleep_before_next_cycle": collects, "G1ServiceThread::wait_for_task": collects,
	"XDriver::run_service": collects, "XMetronome::wait_for_tick": collects, "XUncommitter::run_service": collects, "XUnmapper::run_service": collects,
	"ZDirector::run_thread": collects, "ZDriver::run_service": collects, "ZDriverPort::receive": collects, "ZMetronome::wait_for_tick": collects,
	"ZUncommitter::run_service": collects, "ZUncommitter::wait": collects, "ZUnmapper::run_service": collects,
	"JVM_WaitForReferencePendingList": serves, "CompileQueue::get": serves, "MonitorDeflationThread::monitor_deflation_thread_entry": serves,
	"NMethodSweeper::sweeper_loop": serves, "NotificationThread::notification_thread_entry": serves, "ServiceThread::service_thread_entry": serves,
	"VMThread::wait_for_operation": serves, "WatcherThread::sleep": serves, "os::signal_wait": serves,
	"node::inspector::(anonymous namespace)::StartIoThreadMain": nodes, "node::(anonymous namespace)::PlatformWorkerThread": nodes,
}

// Functions of HotSpot that identify other waits. HotSpot waits for its own monitors in
// nativeWait, or the same function of os; monitors of objects use other functions.
const safepointWait, nativeWait = "LinuxWaitBarrier::wait", "PlatformMonitor::wait"

// NativeMonitor reports whether a stack of these functions waits for one of HotSpot's own monitors.
func NativeMonitor(names []string) bool { return slices.ContainsFunc(names, nativeMonitor) }

func nativeMonitor(name string) bool { return strings.TrimPrefix(name, "os::") == nativeWait }

// tellingParts are parts of mangled names of functions that wait. Each has four bytes or more. Of the names above
// it is the longest component, with its length before it, as mangling puts it.
var tellingParts = func() []string {
	parts := []string{"futex", "Futex", "park", "Once", "once", "Mutex", "5latch", "barrier", "semaphore", "__atomic_base", "atomic_flag"}
	for _, n := range append(slices.Sorted(maps.Keys(idlers)), safepointWait, nativeWait) {
		longest := ""
		for p := range strings.SplitSeq(n, "::") {
			if len(p) > len(longest) && p[0] != '(' {
				longest = p
			}
		}
		parts = append(parts, fmt.Sprint(len(longest), longest))
	}
	return parts
}()

// tellingStarts are tellingParts by the hash of their first four bytes.
var tellingStarts = func() (starts [1 << startBits][]string) {
	for _, p := range tellingParts {
		h := startHash(uint32(p[0])<<24 | uint32(p[1])<<16 | uint32(p[2])<<8 | uint32(p[3]))
		starts[h] = append(starts[h], p)
	}
	return starts
}()

const startBits = 12

// startHash hashes four bytes.
func startHash(w uint32) uint32 { return w * 0x9e3779b1 >> (32 - startBits) }

// MayTell reports whether a function's name, possibly mangled, may be one for which
// Tells is true. It filters out most mangled names, which are slow to demangle, and reads
// a name once, not once for each part: programs have a hundred thousand names.
func MayTell(name []byte) bool {
	if len(name) < 2 || name[0] != '_' || name[1] != 'Z' && name[1] != 'R' {
		return true
	}
	w := uint32(0)
	for i, c := range name {
		w = w<<8 | uint32(c)
		for _, p := range tellingStarts[startHash(w)] {
			if i >= 3 && len(name)-(i-3) >= len(p) && string(name[i-3:i-3+len(p)]) == p {
				return true
			}
		}
	}
	return false
}

// Tells reports whether a function's name identifies a wait when it is on the stack.
func Tells(name string) bool {
	note, _ := goReason([]string{name})
	return function(name).kind != "" || note != "" || goFunction(name) != nil || idlers[name] != "" || name == poolWorker || name == poolWait || nativeMonitor(name) || gompStarts(name)
}

// function parses one name. C names may have leading underscores, a version suffix, and
// the words that glibc uses to distinguish its variants.
func function(name string) named {
	switch {
	case strings.HasPrefix(name, "runtime."):
		switch name {
		case "runtime.futex", "runtime.futexsleep", "runtime.futex.abi0", "runtime.notesleep", "runtime.notetsleep_internal",
			"runtime.mPark", "runtime.lock2", "runtime.semasleep":
			return named{kind: kind.LockGoRuntime, impl: "go"}
		}
		return named{}
	case strings.Contains(name, "::"):
		return qualified(name)
	}
	n := strings.TrimLeft(name, "_")
	n, _, _ = strings.Cut(n, "@")
	switch {
	case strings.HasPrefix(n, "pthread_mutex_") && strings.Contains(n, "lock") && !strings.Contains(n, "unlock"), n == "mtx_lock", n == "mtx_timedlock":
		return named{kind: kind.LockMutex}
	case strings.HasPrefix(n, "pthread_cond_") && strings.Contains(n, "wait"), n == "cnd_wait", n == "cnd_timedwait":
		return named{kind: kind.LockCond}
	case strings.HasPrefix(n, "pthread_cond_") && (strings.Contains(n, "signal") || strings.Contains(n, "broadcast")):
		return named{kind: kind.LockCond, note: "it wakes others, and waits until they have made room; the address is that of the word slept on"}
	case strings.HasPrefix(n, "new_sem_") && strings.Contains(n, "wait"), n == "sem_wait", n == "sem_timedwait", n == "sem_clockwait":
		return named{kind: kind.LockSemaphore}
	case strings.HasPrefix(n, "pthread_rwlock_"):
		switch {
		case strings.Contains(n, "rdlock"):
			return named{kind: kind.LockRW, typ: "read"}
		case strings.Contains(n, "wrlock"):
			return named{kind: kind.LockRW, typ: "write"}
		}
	case strings.HasPrefix(n, "pthread_barrier_wait"), n == "pshared_barrier_wait":
		return named{kind: kind.LockBarrier}
	case strings.HasPrefix(n, "pthread_join"), strings.HasPrefix(n, "pthread_clockjoin"), strings.HasPrefix(n, "pthread_timedjoin"), n == "thrd_join":
		return named{kind: kind.LockJoin}
	case strings.HasPrefix(n, "pthread_once"), n == "call_once":
		return named{kind: kind.LockOnce, note: "another thread runs the initialisation"}
	case n == "flockfile":
		return named{kind: kind.LockStdio}
	case n == "g_mutex_lock":
		return named{kind: kind.LockMutex, impl: glib}
	case n == "g_cond_wait", n == "g_cond_wait_until":
		return named{kind: kind.LockCond, impl: glib}
	case strings.HasPrefix(n, "GOMP_critical_"), n == "GOMP_atomic_start", n == "omp_set_lock", n == "omp_set_nest_lock":
		return named{kind: kind.LockMutex, impl: gomp}
	case strings.HasPrefix(n, "lll_lock_wait"):
		return named{kind: kind.LockLibc, impl: "glibc"}
	}
	return named{}
}

// qualified parses names of Rust and C++ (Rust's library: library/std/src/sys,
// rust-lang/rust 1.62 to 1.95; the module path moved, the types did not).
func qualified(name string) named {
	rust := strings.HasPrefix(name, "std::sys::") || strings.HasPrefix(name, "std::sync::") ||
		strings.HasPrefix(name, "<std::sys::") || strings.HasPrefix(name, "<std::sync::")
	switch {
	case rust && strings.Contains(name, "futex::Mutex>::lock"), rust && strings.Contains(name, "futex::Mutex::lock"),
		rust && strings.Contains(name, "futex_mutex::Mutex::lock"):
		return named{kind: kind.LockMutex, impl: "rust"}
	case rust && strings.Contains(name, "futex") && strings.Contains(name, "RwLock") && strings.Contains(name, "read_contended"):
		return named{kind: kind.LockRW, typ: "read", impl: "rust"}
	case rust && strings.Contains(name, "futex") && strings.Contains(name, "RwLock") && strings.Contains(name, "write_contended"):
		return named{kind: kind.LockRW, typ: "write", impl: "rust"}
	case rust && strings.Contains(name, "futex") && strings.Contains(name, "Condvar"):
		return named{kind: kind.LockCond, impl: "rust"}
	case rust && strings.Contains(name, "futex") && strings.Contains(name, "Once"):
		return named{kind: kind.LockOnce, impl: "rust", note: "another thread runs the initialisation"}
	case strings.HasPrefix(name, "std::thread::") && strings.Contains(name, "park"),
		strings.Contains(name, "futex::Parker"), strings.Contains(name, "parking::futex"):
		return named{kind: kind.LockPark, impl: "rust"}
	case strings.HasPrefix(name, "parking_lot::"), strings.HasPrefix(name, "<parking_lot::"):
		switch {
		case strings.Contains(name, "lock_slow") || strings.Contains(name, "RawMutex"):
			return named{kind: kind.LockPark, typ: "mutex", impl: "rust", note: "parking_lot: the word is the thread's own, the mutex elsewhere"}
		case strings.Contains(name, "lock_shared_slow"), strings.Contains(name, "lock_exclusive_slow"):
			return named{kind: kind.LockPark, typ: "rwlock", impl: "rust", note: "parking_lot: the word is the thread's own, the lock elsewhere"}
		}
	case name == safepointWait:
		return named{kind: kind.LockSafepoint, impl: "hotspot"}
	case strings.HasPrefix(name, "std::call_once"):
		return named{kind: kind.LockOnce, note: "another thread runs the initialisation"}
	}
	return standardCpp(name)
}

// The Impl of GLib's locks, and of those of C++'s standard libraries.
const glib, cpp = "glib", "c++"

// standardCpp parses names of C++'s standard libraries (libstdc++ 11 to 16: atomic_futex.h, atomic_wait.h, atomic_base.h,
// latch, barrier, semaphore_base.h; libc++, whose names have an inner namespace).
func standardCpp(name string) named {
	n, ok := strings.CutPrefix(name, "std::")
	if !ok {
		return named{}
	}
	n = strings.TrimPrefix(n, "__1::")
	has := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(n, p) })
	}
	switch {
	case has("__atomic_futex_unsigned"):
		return named{kind: kind.LockEvent, typ: "future", impl: cpp}
	case has("latch::wait", "latch::arrive_and_wait"):
		return named{kind: kind.LockEvent, typ: "latch", impl: cpp}
	case has("barrier<", "__tree_barrier<", "__barrier_base<"):
		return named{kind: kind.LockBarrier, impl: cpp}
	case has("counting_semaphore<", "__atomic_semaphore::", "__atomic_semaphore_base::", "__platform_semaphore::"):
		return named{kind: kind.LockSemaphore, impl: cpp}
	case has("atomic<", "__atomic_base<", "atomic_flag::", "atomic_ref<") && strings.HasSuffix(n, "::wait"):
		return named{kind: kind.LockPark, typ: "atomic", impl: cpp, note: "it waits until the value changes"}
	}
	return named{}
}

// goReason describes why one of the Go runtime's threads sleeps. idle: it has nothing to do.
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

// ByNames returns the kind and a note for a sleep on a word of a runtime, from the
// function names of the stack, leaf first. "": unknown.
func ByNames(names []string) (kind.Lock, string) {
	h := hint(names)
	if h.kind != kind.LockIdle && h.kind != kind.LockGoRuntime {
		return "", ""
	}
	return h.kind, h.note
}
