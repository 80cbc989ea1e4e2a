package view

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// Interval is a time that a thread spent in one state; a wait, if it was blocked. Two consecutive waits are
// two intervals.
type Interval struct {
	Begin, End stack.Time
	// Seen is when the interval was last confirmed. It ended after Seen and at or before End.
	Seen    stack.Time
	Samples int
	// CPU is the time on a CPU and Delay the time waiting for one, in ns. Switches is how often the thread
	// was switched in. CPU time used before a wait was first observed counts for the previous interval.
	CPU, Delay int64
	Switches   uint64
	// Exact says that the kernel's context switches show the interval: Begin, End and CPU are exact.
	Exact bool
	// Woken is the payload of the Waker event that ended the wait; 0: unknown.
	Woken uint64
	// Kernel is the number of the kernel's part of the stack in the wait: see View.KernelStack. 0: unknown.
	Kernel uint64
	// Waiting is as known at the end of the interval, which is most complete.
	Waiting diff.Waiting
}

// Edge returns how much earlier than End it may have ended, in ns.
func (i *Interval) Edge() int64 { return max(int64(i.End-i.Seen), 0) }

// Fitted reports whether no sample found the interval: the scheduler's account says that there were one or more such
// waits, and how long they were in all.
func (i *Interval) Fitted() bool { return i.Samples == 0 && !i.Exact && i.Waits() }

// Waits reports whether the thread was off the CPUs.
func (i *Interval) Waits() bool {
	s, _ := i.Waiting.State()
	return Waits(s)
}

// Sum returns a thread's number of intervals, the last one, and its CPU time in ns.
func (v *View) Sum(th *Thread) (n int, last Interval, cpu int64) {
	in := &Intervals{Yield: func(i *Interval) { n, last, cpu = n+1, *i, cpu+i.CPU }}
	in.Close(v.Slices(th, others{in}))
	return n, last, cpu
}

// Idled reports whether a thread with cpu ns on a CPU, whose last interval is last, is a nearly idle thread
// of a runtime.
func (v *View) Idled(last *Interval, cpu int64) bool {
	w := v.Rec.Waits[last.Waiting.Wait()]
	return w.Idled(cpu, int64(v.End()-v.Begin()))
}

// others passes on events that do not change a stack's shape.
type others struct{ *Intervals }

func (others) Begin(stack.Time, int, *trace.Slice) {}
func (others) End(stack.Time, int, *trace.Slice)   {}

// Intervals splits a replay into intervals. An interval is yielded when the next one ends, or by Close. They
// come in order and are reused. Times with an unknown state are in none.
type Intervals struct {
	Yield func(*Interval)

	now, before Interval
	open, held  bool
	cpu, delay  int64 // of exact intervals since the last Seen, and the last Sched
	switches    uint64
}

// Other handles the events of a replay.
func (x *Intervals) Other(e event.Event) {
	switch e.Kind() {
	case event.Seen:
		_, n, cpu := event.SeenFields(e.Payload())
		if x.open {
			x.now.Seen = max(x.now.Seen, e.Time)
			x.now.Samples += n
			x.spent().add(cpu-x.cpu, 0, 0)
			x.cpu = 0
		}
	case event.Sched:
		n, delay := event.SchedFields(e.Payload())
		if x.open {
			x.spent().add(0, delay-x.delay, n-min(n, x.switches))
			x.delay, x.switches = 0, 0
		}
	case event.State:
		x.end(e.Time)
		if s, _ := event.StateFields(e.Payload()); s != stack.StateUnknown && s != stack.StateDead {
			x.open = true
			x.now = Interval{Begin: e.Time, Seen: e.Time}
			x.now.Waiting.Apply(e)
			x.now.Exact = x.now.Waiting.Exact()
		}
	case event.Waker:
		x.now.Woken = e.Payload()
	case event.Kernel:
		x.now.Kernel = e.Payload()
	case event.Gap:
		if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
			x.end(e.Time)
		}
	case event.Mark:
		if why := stack.Why(e.Payload()); why == stack.WhyGone {
			x.end(e.Time)
		}
	default:
		x.now.Waiting.Apply(e)
	}
}

// spent returns the interval that receives the time up to now.
func (x *Intervals) spent() *Interval {
	if x.held && x.now.Waits() && x.before.End == x.now.Begin {
		return &x.before
	}
	return &x.now
}

func (x *Intervals) end(t stack.Time) {
	if !x.open {
		return
	}
	if x.held {
		x.Yield(&x.before)
	}
	x.open, x.held = false, true
	again := x.before.Exact && x.before.End == x.now.Begin && x.before.running()
	x.before = x.now
	x.before.End = max(t, x.before.Begin)
	x.now = Interval{}
	if b := &x.before; b.Exact {
		x.exact(b, again)
	}
}

// exact sets the CPU time of an exact interval. The scheduler's next account is for other intervals as far as it
// has more. again says that it continues one in which the thread ran.
func (x *Intervals) exact(b *Interval, again bool) {
	b.Seen = b.End
	ns := int64(b.End - b.Begin)
	switch s, _ := b.Waiting.State(); {
	case s == stack.StateRunnable:
		b.Delay = ns
		x.delay += ns
	case b.running():
		b.CPU = ns
		if x.cpu += ns; !again {
			b.Switches = 1
			x.switches++
		}
	}
}

func (i *Interval) running() bool {
	s, _ := i.Waiting.State()
	return s == stack.StateRunning
}

// add counts for an interval what the scheduler's account has of it. An exact one has its own.
func (i *Interval) add(cpu, delay int64, switches uint64) {
	if !i.Exact {
		i.CPU, i.Delay, i.Switches = i.CPU+max(cpu, 0), i.Delay+max(delay, 0), i.Switches+switches
	}
}

// Open reports whether an interval is in progress: Close cuts it and yields it last.
func (x *Intervals) Open() bool { return x.open }

// Close ends an open interval at t, the end of the replay.
func (x *Intervals) Close(t stack.Time) {
	x.end(t)
	if x.held {
		x.held = false
		x.Yield(&x.before)
	}
}

// waits holds the descriptions of waits, made when they are asked for.
type waits struct {
	byID  map[int]*trace.Wait
	files map[string]string // FileGroup by path; nil: not yet asked for
}

// Wait returns the description of a wait; nil: the recording has none.
func (v *View) Wait(w *diff.Waiting) *trace.Wait {
	id := w.Wait()
	if id == 0 {
		return nil
	}
	d, ok := v.waits.byID[id]
	if !ok {
		if x, there := v.Rec.Waits[id]; there {
			d = &x
		}
		v.waits.byID[id] = d
	}
	return d
}

// FileGroup returns the file that a wait is for, or the pattern of several with alike names
// (iowatch.Alike), such as temporary files, that threads waited for; "": it is for another object.
func (v *View) FileGroup(w *trace.Wait) string {
	if w.Kind.Group() != kind.GroupFile {
		return ""
	}
	if v.waits.files == nil {
		v.waits.files = map[string]string{}
		for _, x := range v.Rec.Waits {
			if x.Kind.Group() == kind.GroupFile && strings.HasPrefix(x.File, "/") {
				v.waits.files[x.File] = ""
			}
		}
		paths := slices.Sorted(maps.Keys(v.waits.files))
		for i, pattern := range iowatch.Alike(paths) {
			v.waits.files[paths[i]] = Text(cmp.Or(pattern, paths[i]), maxWhat)
		}
	}
	return v.waits.files[w.File]
}

// maxWhat limits the description of a wait, in bytes.
const maxWhat = 512

// What briefly describes a thread's wait; "" if unknown: see trace.Wait.
func (v *View) What(w *diff.Waiting) string {
	if w.Lock() == 0 && w.Wait() == 0 {
		return ""
	}
	return Text(v.Wait(w).What(w.Lock()), maxWhat)
}

// LockOf describes the lock that a thread waits for; "" if none.
func (v *View) LockOf(w *diff.Waiting) string {
	d := v.Wait(w)
	if w.Lock() == 0 && (d == nil || d.Lock == "") {
		return ""
	}
	return Text(d.LockName(w.Lock()), maxWhat)
}

// ThreadName describes the thread with a TID: "worker-1 (1240)".
func (v *View) ThreadName(tid stack.TID) string {
	if i, ok := v.byTID()[tid]; ok {
		return v.Threads[i].Label + " (" + strconv.Itoa(int(tid)) + ")"
	}
	for i := range v.Rec.Threads {
		if t := &v.Rec.Threads[i]; t.TID == tid {
			return Text(t.Name, maxThreadName) + " (" + strconv.Itoa(int(tid)) + ")"
		}
	}
	if v.others == nil {
		v.others = map[stack.TID]string{}
		for _, w := range v.Rec.Waits {
			if w.HolderName != "" {
				v.others[w.HolderTID] = Text(w.HolderName, maxWhat)
			}
		}
	}
	if name := v.others[tid]; name != "" {
		return name
	}
	if tid == 0 { // of traced calls: see calls.Call
		return "no known thread"
	}
	return "thread " + strconv.Itoa(int(tid))
}

// ByTID returns the thread of the view with a TID, the newest of several.
func (v *View) ByTID(tid stack.TID) (*Thread, bool) {
	i, ok := v.byTID()[tid]
	if !ok {
		return nil, false
	}
	return &v.Threads[i], true
}

func (v *View) byTID() map[stack.TID]int {
	if v.tids == nil {
		v.tids = map[stack.TID]int{}
		for i := range v.Threads {
			t := &v.Threads[i]
			if j, ok := v.tids[t.TID]; !ok || v.Threads[j].Since <= t.Since {
				v.tids[t.TID] = i
			}
		}
	}
	return v.tids
}

// Detail is a fact about a wait, for formats that can show it.
type Detail struct{ Name, Value string }

// Names of details.
const (
	DetailCall      = "call"
	DetailArgs      = "args"
	DetailFile      = "file"
	DetailPeer      = "peer"
	DetailTimeout   = "timeout"
	DetailLock      = "lock"
	DetailAddress   = "address"
	DetailModule    = "module"
	DetailLockKnown = "lock_known_by"
	DetailHolder    = "holder"
	DetailKnownBy   = "holder_known_by"
	DetailNoHolder  = "no_holder"
	DetailWhy       = "not_known"
)

// Details appends the known facts about a wait, in a fixed order.
func (v *View) Details(w *diff.Waiting, out []Detail) []Detail {
	add := func(name, val string) {
		if val != "" {
			out = append(out, Detail{name, Text(val, maxWhat)})
		}
	}
	_, nr := w.State()
	d := v.Wait(w)
	add(DetailCall, v.Call(nr))
	if d != nil {
		add(DetailArgs, d.Args)
		add(DetailFile, d.File)
		add(DetailPeer, d.Peer)
		add(DetailTimeout, Duration(d.Timeout))
	}
	add(DetailLock, v.LockOf(w))
	if w.Lock() != 0 {
		add(DetailAddress, "0x"+strconv.FormatUint(w.Lock(), 16))
	}
	if d != nil {
		if d.Symbol != "" {
			add(DetailModule, d.Module)
		}
		add(DetailLockKnown, d.KnownBy)
	}
	if tid, by := w.Holder(); tid != 0 {
		add(DetailHolder, v.ThreadName(tid))
		add(DetailKnownBy, by.String())
	} else if d != nil {
		add(DetailNoHolder, d.NoHolder)
	}
	if d != nil {
		add(DetailWhy, d.Why)
	}
	return out
}

// Asker returns the call that caused the wait of a stack (outermost first): the innermost one outside the C
// library, a language's runtime and locking libraries. Java, Python and JavaScript calls wait inside their
// runtime. -1: there is none.
func (v *View) Asker(st []trace.Slice) int {
	var runs trace.Kinds // of the functions of runtimes on the stack
	for i := range st {
		if st[i].Loc != nil && st[i].Loc.Word.Kind().Managed() {
			runs |= 1 << st[i].Loc.Word.Kind()
		}
	}
	for i := len(st) - 1; i >= 0; i-- {
		s := &st[i]
		if s.Loc == nil {
			continue
		}
		kind := s.Loc.Word.Kind()
		if kind == stack.KindError || kind == stack.KindKernel {
			continue
		}
		if m := v.ModuleOf(s); m >= 0 && !kind.Managed() && (library(v.Rec.Modules[m].Path) || runtimeOwn(runs, v.Rec.Modules[m].Path)) {
			continue
		}
		f := v.Names.Func(&s.Frame)
		if kind.Locks(f.Name, f.File) {
			continue
		}
		if !locking(f.Name) {
			return i
		}
	}
	return -1
}

// runtimeOwn reports whether a module belongs to a runtime of which functions of these kinds are on the stack.
func runtimeOwn(kinds trace.Kinds, module string) bool {
	for _, k := range stack.Kinds() {
		if kinds>>k&1 != 0 && k.RuntimeFile(module) {
			return true
		}
	}
	return false
}

// libraries are the file names of libraries that lock for their callers.
var libraries = []string{"libc.so", "libc-2", "libpthread", "ld-linux", "ld-musl", "libc.musl", "libstdc++", "libc++", "[vdso]"}

func library(module string) bool {
	name := path.Base(module)
	for _, l := range libraries {
		if strings.HasPrefix(name, l) {
			return true
		}
	}
	return false
}

// locks are name prefixes of functions that only forward a wait: of the C library, the standard libraries and
// runtimes of C++, Rust, Go, Java and Ruby, and libuv. "[" begins the names of code that HotSpot generates for
// itself.
var locks = []string{"pthread_", "__pthread", "___pthread", "__GI_", "__lll", "__futex", "futex", "sem_", "__new_sem", "__sem", "syscall", "__syscall",
	"__clock_", "clock_nanosleep", "std::", "__gnu_cxx::", "__gthread", "<std::", "core::", "<core::", "alloc::", "parking_lot", "lock_api::", "sync.",
	"internal/sync.", "runtime.", "internal/runtime/", "internal/poll.", "syscall.", "poll", "__poll", "epoll_", "read", "write", "__libc_", "__read", "__write",
	"[", "Java_", "PosixSemaphore::", "os::Platform", "Parker::", "Mutex::", "Monitor::", "ObjectMonitor::", "LinuxWaitBarrier::", "jdk.internal.misc.Unsafe.",
	"java.lang.Object.wait", "java.lang.Thread.sleep", "java.lang.Thread.join", "java.util.concurrent.locks.", "java.util.concurrent.Semaphore.",
	"java.util.concurrent.CountDownLatch.", "java.util.concurrent.CompletableFuture", "java.util.concurrent.FutureTask.", "java.util.concurrent.ForkJoinTask.",
	"java.util.concurrent.CyclicBarrier.", "java.util.concurrent.Phaser", "java.util.concurrent.Exchanger", "java.util.concurrent.ForkJoinPool.managedBlock", "java.util.concurrent.ForkJoinPool.invoke",
	"java.util.concurrent.ForkJoinPool.unmanagedBlock", "sun.nio.ch.", "uv_",
	"Thread::Mutex#", "Thread::ConditionVariable#", "Monitor#", "Thread#join", "Thread#value", "Kernel#sleep"}

func locking(name string) bool {
	for _, l := range locks {
		if !strings.HasPrefix(name, l) {
			continue
		}
		switch l {
		case "read", "write", "poll", "syscall", "futex":
			if name == l {
				return true
			}
		default:
			return true
		}
	}
	return false
}
