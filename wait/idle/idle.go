// Package idle decides whether a wait is idle: a thread of a runtime or of a pool, or an event
// loop, that has nothing to do until work arrives. Views that rank waits omit such waits.
//
// The decision uses the wait's kind and the thread's stack. A pool that no list names is recognized
// by its shape: its threads wait for a condition variable in their start function, or in a function
// that takes work from a queue. A wait in a function that requested something (a lock, an answer, a
// result) is not idle.
//
// All functions are pure.
package idle

import (
	"path"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/kind"
)

// Frame is one call of a thread's stack.
type Frame struct {
	Name   string
	Kind   stack.Kind
	Module string // path; "" unknown
	File   string // of the source; "" if unknown
}

// MaxFrames bounds the frames of a stack that are examined.
const MaxFrames = 256

// May reports whether a wait can be idle at all, without its stack. call is the name of
// the system call, "" if there is none; w may be nil.
func May(w *trace.Wait, call string) bool { return classOf(w, call) != never }

// Of reports whether a wait is idle. frames are the thread's stack, leaf first.
func Of(w *trace.Wait, call string, frames []Frame) bool {
	c := classOf(w, call)
	if c == never {
		return false
	}
	if c == always {
		return true
	}
	if len(frames) > MaxFrames {
		frames = frames[:MaxFrames]
	}
	for i := range frames {
		if fetches(&frames[i]) {
			return true
		}
	}
	if pythonPool(frames) {
		return true
	}
	switch c {
	case events:
		return !asked(frames)
	case several:
		return inLoop(frames)
	case told, signaled, counted:
		return pooled(frames, c)
	case restarted:
		return inLoop(frames) || pooled(frames, counted)
	}
	return false
}

// class says how waits in a call are judged.
type class uint8

const (
	never     class = iota // it waits for something specific
	always                 // whatever the stack
	events                 // for any of a set of events: an event loop, unless an asker is on the stack
	several                // for one of several descriptors, some of which may carry an answer to a request
	told                   // for a notification: a condition variable or the like
	counted                // for a semaphore, or a futex of unknown kind: either may be a lock
	signaled               // on a descriptor that another thread writes to, to wake this one
	received               // on a pipe or socket: only functions that fetch work decide
	sleeping               // for time to pass
	restarted              // a futex, poll or sleep with a timeout: the kernel continues it, and its arguments are unknown
)

// wakers are the classes of waits that their kind decides. For others, the call does.
var wakers = map[kind.Waker]class{
	kind.WakerOwn:     never,
	kind.WakerAny:     always,
	kind.WakerTold:    told,
	kind.WakerCounted: counted,
	kind.WakerWritten: signaled,
}

func classOf(w *trace.Wait, call string) class {
	sort, lock := kind.WaitNone, kind.LockNone
	if w != nil {
		sort, lock = w.Kind, w.Lock
		if w.Call != "" {
			call = w.Call
		}
	}
	if by, ok := wakers[sort.Waker()]; ok {
		return by
	}
	if by, ok := wakers[lock.Waker()]; ok {
		return by
	}
	switch call {
	case "epoll_wait", "epoll_pwait", "epoll_pwait2", "io_uring_enter":
		return events
	case "accept", "accept4", "pause", "rt_sigsuspend", "rt_sigtimedwait":
		return always
	case "poll", "ppoll", "select", "pselect6":
		if w != nil && sort == kind.WaitPoll && w.File == "" {
			if listens(w.Args) {
				return events
			}
			return several
		}
		if w != nil && strings.HasSuffix(w.File, listening) {
			return always
		}
		return loopOnly(sort)
	case "read", "readv", "recvfrom", "recvmsg":
		if sort == kind.WaitPipe || sort == kind.WaitSocket {
			return received
		}
	case "nanosleep", "clock_nanosleep":
		return sleeping
	case "futex", "futex_wait", "futex_waitv":
		return counted
	case "restart_syscall":
		return restarted
	}
	return never
}

// listening ends the description of a listening socket, as package files writes it.
const listening = " listening"

// listens reports whether a listening socket is among the descriptors of a call's description: a thread that
// waits for a connection or another event serves requests. It does not wait for the answer to one.
func listens(args string) bool {
	for d := range strings.SplitSeq(args, ", ") {
		if strings.HasSuffix(d, listening) {
			return true
		}
	}
	return false
}

// loopOnly returns the class of a poll of one descriptor.
func loopOnly(k kind.Wait) class {
	switch {
	case k.Polls():
		return several
	case k == kind.WaitSleep: // of no descriptor
		return sleeping
	}
	return never
}

// fetchers are functions that only wait for work.
var fetchers = map[string]bool{
	// Java
	"java.util.concurrent.ThreadPoolExecutor.getTask": true, "java.util.concurrent.ForkJoinPool.awaitWork": true,
	"java.util.concurrent.DelayScheduler.loop":                               true, // the timers of Java 25's ForkJoinPool
	"java.util.concurrent.ScheduledThreadPoolExecutor$DelayedWorkQueue.take": true,
	"java.util.concurrent.ScheduledThreadPoolExecutor$DelayedWorkQueue.poll": true,
	"java.lang.ref.ReferenceQueue.remove":                                    true, "java.lang.ref.ReferenceQueue.remove0": true,
	"java.lang.ref.Reference.waitForReferencePendingList": true, "JVM_WaitForReferencePendingList": true,
	"sun.nio.ch.EPollPort$EventHandlerTask.poll": true,
	// Go
	"runtime.findRunnable": true, "runtime.findrunnable": true, "runtime.stopm": true, "runtime.sysmon": true,
	"runtime.templateThread": true, "runtime.bgsweep": true, "runtime.bgscavenge": true, "runtime.forcegchelper": true,
	"runtime.runfinq": true, "runtime.runFinalizers": true, "runtime.runCleanups": true, "runtime.gcBgMarkWorker": true,
	// C
	"je_background_thread_entry": true, "background_thread_entry": true, "background_work_sleep_once": true,
	"g_thread_pool_wait_for_new_task": true,
}

func fetches(f *Frame) bool {
	if fetchers[f.Name] {
		return true
	}
	n := f.Name
	return f.Kind == stack.KindNative &&
		(strings.Contains(n, "tokio::runtime::") && strings.Contains(n, "::park") || strings.Contains(n, "rayon_core::sleep::"))
}

// loops are functions that run an event loop, by the last component of their names.
var loops = map[string]bool{
	"uv_run": true, "uv__io_poll": true, "event_base_loop": true, "event_base_dispatch": true, "ev_run": true, "ev_loop": true,
	"aeMain": true, "g_main_loop_run": true, "g_main_context_iteration": true, "g_application_run": true, "gtk_main": true, "QEventLoop::exec": true,
	"run_forever": true, "serve_forever": true, "_run_once": true, "mainloop": true, "pa_mainloop_run": true, "sd_event_loop": true,
	"ServerLoop": true,
}

// inLoop reports whether a stack is in an event loop.
func inLoop(frames []Frame) bool {
	for i := range frames {
		n := frames[i].Name
		if loops[n] || loops[base(n)] {
			return true
		}
	}
	return false
}

// askers are functions that use an event loop's calls to wait for something they requested.
var askers = map[string]bool{
	// PostgreSQL: a lock, a standby, another server's answer
	"ProcSleep": true, "WaitOnLock": true, "LWLockAcquire": true, "SyncRepWaitForLSN": true, "ConditionVariableTimedSleep": true,
	"WaitForReplicationWorkerAttach": true, "libpqsrv_get_result": true, "libpqrcv_PQgetResult": true, "pgfdw_get_result": true,
	// libcurl
	"curl_easy_perform": true, "curl_multi_poll": true, "curl_multi_wait": true,
}

// asked reports whether an asker is on a stack.
func asked(frames []Frame) bool {
	for i := range frames {
		if askers[frames[i].Name] {
			return true
		}
	}
	return false
}

// base is the last component of a qualified name: "get" of "Queue.get", "run" of "a::b::run".
func base(n string) string {
	if i := strings.LastIndexAny(n, ".:"); i >= 0 {
		return n[i+1:]
	}
	return n
}

// pooled reports whether a stack has the shape of a pool thread's: only the thread's
// own function, and functions that take work from a queue, are between the wait
// functions and the functions that start a thread.
func pooled(frames []Frame, c class) bool {
	for k := range languages {
		i := -1
		if languages[k].conditions {
			i = innermost(frames, stack.Kind(k))
		}
		if i < 0 {
			continue
		}
		if !languages[k].waits(&frames[i]) {
			return false
		}
		c = told
	}
	for k := range languages {
		if own := languages[k].pooled; own != nil {
			if i := innermost(frames, stack.Kind(k)); i >= 0 {
				return own(frames[i:])
			}
		}
	}
	if c == counted && conditional(frames) {
		c = told
	}
	if (c == told || c == counted) && ofPool(frames) {
		return true
	}
	rooted, mid := middle(frames)
	if !rooted {
		return false
	}
	queued, nameless := false, 0
	for i := range mid {
		q := takes(mid[i])
		queued = queued || q
		switch {
		case i == len(mid)-1 || q:
		case unnamed(&mid[i]) && unnamed(&mid[len(mid)-1]): // a library without symbols
			nameless++
		default:
			return false
		}
	}
	if nameless > maxNameless {
		return false
	}
	if len(mid) == 1 && threadLoops[mid[0].Name] {
		return true
	}
	if c == counted { // the thread's own function may use it as a lock
		return queued
	}
	return len(mid) <= maxMiddle
}

// poolLibraries are libraries whose threads run functions of the program: LLVM's and Intel's OpenMP, and oneTBB.
var poolLibraries = []string{"libomp.so", "libomp-", "libiomp5.so", "libtbb.so"}

// ofPool reports whether a thread of such a library is in the library's own functions alone: it has no work.
func ofPool(frames []Frame) bool {
	own, begun := false, false
	for i := range frames {
		f := &frames[i]
		module := path.Base(f.Module)
		switch {
		case slices.ContainsFunc(poolLibraries, func(l string) bool { return strings.HasPrefix(module, l) }):
			own = true
		case starts(f):
			begun = true
		case own || !waiting(f):
			return false
		}
	}
	return own && begun
}

// maxNameless bounds the unnamed functions that a library may have between its thread's
// own function and the wait.
const maxNameless = 1

// unnamed reports whether a function has no name except its location: "libx.so+0x40".
func unnamed(f *Frame) bool {
	return strings.Contains(f.Name, "+0x") || strings.HasPrefix(f.Name, "0x")
}

// conditional reports whether the innermost functions are those of a condition variable.
func conditional(frames []Frame) bool {
	const near = 6
	for i := range frames[:min(near, len(frames))] {
		n := strings.TrimLeft(frames[i].Name, "_")
		if strings.HasPrefix(n, "pthread_cond_") && strings.Contains(n, "wait") || n == "cnd_wait" || n == "cnd_timedwait" {
			return true
		}
	}
	return false
}

// maxMiddle bounds the functions between a pool's thread and its wait.
const maxMiddle = 5

// innermost returns the index of the innermost frame of a kind, -1 if there is none.
func innermost(frames []Frame, k stack.Kind) int {
	for i := range frames {
		if frames[i].Kind == k {
			return i
		}
	}
	return -1
}

// middle returns the frames between a wait and the start of a thread, leaf first. rooted is false
// if the stack does not reach the start of a thread other than the main one.
func middle(frames []Frame) (rooted bool, mid []Frame) {
	lang := stack.KindNative
	for i := range frames {
		if frames[i].Kind.Managed() {
			lang = frames[i].Kind
			break
		}
	}
	waits := true
	for i := range frames {
		f := &frames[i]
		if f.Kind == stack.KindError {
			return false, nil
		}
		if f.Kind == stack.KindKernel {
			continue
		}
		if starts(f) {
			rooted = true
			continue
		}
		if lang != stack.KindNative && f.Kind != lang {
			continue
		}
		if waits && waiting(f) || glue(f) {
			continue
		}
		waits = false
		mid = append(mid, *f)
		if len(mid) > maxMiddle {
			return false, nil
		}
	}
	return rooted, mid
}

// starts reports whether a function is a thread's start routine.
func starts(f *Frame) bool {
	if l := languageOf(f.Kind); l.starts != nil {
		return l.starts(f)
	}
	n := strings.TrimLeft(f.Name, "_")
	switch n {
	case "start_thread", "clone", "clone3", "start", "start_c", "thread_start", "pthread_create", "libc_start_main":
		return n != "start" && n != "start_c" && n != "libc_start_main" || strings.Contains(path.Base(f.Module), "musl")
	}
	return false
}

// waiting reports whether a function only forwards to a wait.
func waiting(f *Frame) bool {
	if l := languageOf(f.Kind); l.waits != nil {
		return l.waits(f)
	}
	if library(f.Module) {
		return true
	}
	n := strings.TrimLeft(f.Name, "_")
	return n == "read" || n == "poll" || hasPrefix(n, "pthread_cond_", "futex", "lll_", "syscall", "cnd_", "sem_", "new_sem_", "uv_cond_", "uv_sem_", "g_cond_",
		"absl::CondVar", "absl::lts_", "boost::condition_variable", "parking_lot", "os::PlatformMonitor", "PlatformMonitor::", "Monitor::")
}

// glue reports whether a function only calls a function that was passed to it.
func glue(f *Frame) bool {
	if l := languageOf(f.Kind); l.glue != nil {
		return l.glue(f)
	}
	n := f.Name
	if library(f.Module) {
		return true
	}
	return hasPrefix(n, "std::", "<std::", "core::", "<core::", "alloc::", "<alloc::", "__rust_", "rust_", "__gnu_cxx::", "decltype", "boost::detail::", "boost::thread",
		"execute_native_thread_routine", "uv__thread_start", "g_thread_proxy", "void std::", "thread_proxy") ||
		strings.Contains(n, "{{closure}}") || strings.Contains(n, "{closure#") || strings.Contains(n, "{lambda") || strings.Contains(n, "::operator()") ||
		strings.Contains(n, "$_") || strings.HasPrefix(n, "void* std::")
}

// threadLoops are functions of threads that wait for work on a word of their own kind.
var threadLoops = map[string]bool{"gomp_thread_start": true, "blas_thread_server": true, "__kmp_launch_worker": true, "worker_thread": true}

// words occur in names of functions that take work from a queue, or wait until there is some.
var words = []string{"queue", "pop", "deq", "idle", "getjob", "get_job", "gettask", "get_task", "getwork", "get_work", "nextjob", "next_job", "nexttask", "next_task",
	"nextwork", "next_work", "fetchjob", "fetch_job", "fetchtask", "fetch_task", "fetchwork", "fetch_work", "take", "waitforwork", "wait_for_work", "waitfortask", "wait_for_task",
	"waitforjob", "wait_for_job", "wait_for_new", "waitfornew", "until_new", "until_work", "recv", "receive"}

// takes reports whether a function takes work from a queue, judged by its name.
func takes(f Frame) bool {
	n := f.Name
	if i := strings.IndexAny(n, "<("); i > 0 { // arguments and template parameters do not describe the function
		n = n[:i]
	}
	n = strings.ToLower(n)
	b := base(n)
	for _, w := range words {
		if strings.Contains(b, w) {
			return true
		}
	}
	return strings.Contains(n, "queue") // of a class
}

func hasPrefix(n string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(n, p) {
			return true
		}
	}
	return false
}

// library reports whether a module is the C or C++ library.
func library(module string) bool {
	return hasPrefix(path.Base(module), "libc.so", "libc-2", "libpthread", "ld-linux", "ld-musl", "libc.musl", "libstdc++", "libc++", "[vdso]")
}
