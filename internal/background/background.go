// Package background keeps sliver's own work from disturbing the target: its garbage
// collections, the encoding of events, the pages it serves. While a thread of the target waits
// for a CPU that they use, it neither runs nor stops.
//
// On Linux each thread has its own priority. An unprivileged user may only lower it, and a new
// thread inherits that of its creator. So the threads that must keep theirs, which stop other
// threads or start other programs, are reserved before the rest is lowered.
package background

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Nice is what Lower adds to the nice value: a thread with it that competes with one of
// ordinary priority gets about a quarter of the CPU.
const Nice = 5

var (
	mu    sync.Mutex
	jobs  = make(chan func() bool) // jobs for reserved threads
	idle  atomic.Int64             // number of idle reserved threads
	first sync.Once
	calls = make(chan func()) // calls for the thread of Do

	started, _ = nice(0) // the nice value at the start
)

// urgentNice is the nice value of reserved threads, if permitted (CAP_SYS_NICE, or a limit on
// nice): beside thirty threads of ordinary priority such a thread gets a quarter of a CPU
// instead of a thirtieth. Its work takes the same time but is done when due. With 64 target
// threads on two CPUs, at 100 Hz beside other load, samplers of ordinary priority were late for
// 40 to 60 ticks of 100, urgent ones for 3 to 8.
const urgentNice = -10

// raise gives the calling OS thread the priority of a reserved one, or otherwise the priority
// at the program's start.
func raise() {
	if unix.Setpriority(unix.PRIO_PROCESS, 0, min(started, urgentNice)) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, started) // after lowering it only with privileges
	}
}

// Lower reserves the given number of OS threads for Go and permanently lowers the priority of
// all others, except the OS threads in but.
func Lower(threads int, but ...int) error {
	mu.Lock()
	defer mu.Unlock()
	tids := make(chan int)
	for range threads {
		go func() {
			runtime.LockOSThread() // it ends with the goroutine
			raise()
			tids <- unix.Gettid()
			for f := range jobs {
				if !f() {
					return
				}
				idle.Add(1)
			}
		}()
	}
	for range threads {
		but = append(but, <-tids)
	}
	Do(func() { but = append(but, unix.Gettid()) })
	idle.Add(int64(threads))
	// The next pass handles threads created during this one.
	for {
		changed, err := lowerRest(but)
		if err != nil || !changed {
			return err
		}
	}
}

// lowerRest lowers all threads except some, and reports whether it changed any.
func lowerRest(but []int) (changed bool, err error) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false, fmt.Errorf("own threads: %w", err)
	}
	want := min(started+Nice, 19)
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(but, tid) {
			continue
		}
		if now, err := nice(tid); err != nil || now >= want {
			continue // it has ended, or is lowered already
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, want); err != nil && err != unix.ESRCH {
			return false, fmt.Errorf("lower the priority of thread %d: %w", tid, err)
		}
		changed = true
	}
	return changed, nil
}

// nice returns the nice value of a thread. The system call counts from 20 downwards.
func nice(tid int) (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	return 20 - n, err
}

// Go runs f on an OS thread to which its goroutine is locked: a reserved one, if one is left.
// The OS thread is reused only if f returns true, and ends otherwise.
func Go(f func() (again bool)) {
	if idle.Add(-1) >= 0 {
		jobs <- f
		return
	}
	idle.Add(1)
	go func() {
		runtime.LockOSThread()
		raise()
		f()
	}()
}

// Raised runs f on a new OS thread of the priority of a reserved one, which ends with f. It is for
// programs that do one thing: it takes no reserved thread, and defers no collections.
func Raised(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		raise()
		f()
	}()
	<-done
}

// Urgent runs f, which is short and has a deadline, on a reserved OS thread. It returns when f
// has; f may call it. A panic of f continues in the caller, as a Panicked.
//
// Garbage collection is deferred while f runs, unless there is too much garbage. To begin and
// end a collection, the whole program stops until its running threads reach a safe point. On a
// busy machine, where they wait for a CPU to get there, that has taken 300 ms.
func Urgent(f func()) {
	done := make(chan struct{})
	var fell *Panicked
	Go(func() (again bool) {
		defer close(done)
		garbage.keep()
		fell = Contain(f)
		garbage.letGo()
		return true
	})
	<-done
	if fell != nil {
		panic(fell)
	}
}

// ballast is memory that is never touched, so it uses only address space.
//
//lint:ignore U1000 that it is there is its use
var ballast []byte

// CollectRarely permits the given bytes of additional garbage between collections, permanently:
// memory that a program with a small heap, which would collect every few megabytes, can afford.
// A collection stops the whole program, samplers too, until each of its threads has reached a
// safe point; a lowered thread waits for a CPU first. With a large heap it has no effect, as
// that much garbage is permitted anyway.
func CollectRarely(bytes int) {
	// Go collects when the heap has grown by as much as the last collection left. So large an allocation would begin one.
	later := garbage.first(bytes)
	ballast = make([]byte, bytes)
	if !later {
		runtime.GC()
	}
}

// leastHeap is the size in bytes below which Go does not collect, at a percentage of 100 (heapminimum of
// runtime/mgcpacer.go).
const leastHeap = 4 << 20

// mostGarbage is how much memory, in bytes, this program may use before garbage is collected
// despite urgent work.
const mostGarbage = 128 << 20

// collector controls when garbage is collected.
type collector struct {
	mu      sync.Mutex
	keeping int
	percent int   // previous setting
	limit   int64 // previous setting, bytes
	raised  bool  // until the next collection
	usual   int   // percentage after it
}

var garbage collector

// first lets the next collection, which finds the ballast, come when the heap has grown by bytes beyond it, and reports
// whether it could. A collection at once would take 4 to 8 ms, in which a command waits for its start.
func (c *collector) first(bytes int) bool {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Uint64() > leastHeap { // the percentage is of this
		return false
	}
	return c.raise(2 * bytes / (leastHeap / 100))
}

// CollectLater lets the next collection come when the heap has grown by the given bytes more than it would otherwise. It
// is for the last work of a program that ends after it. With a large heap, for which this is little, it has no effect.
func CollectLater(bytes int) { garbage.later(uint64(bytes)) }

func (c *collector) later(bytes uint64) {
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(heap)
	live := max(heap[0].Value.Uint64(), leastHeap)
	if left := max(heap[1].Value.Uint64(), live) - live; bytes > left/2 {
		c.raise(int(min(100*(left+bytes)/live, mostPercent)))
	}
}

// mostPercent bounds percentages.
const mostPercent = 10_000

// raise sets the percentage until the next collection has ended, and reports whether it applies.
func (c *collector) raise(percent int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	usual := c.set(percent)
	if usual < 0 || usual > percent { // collections are rarer or off
		c.set(usual)
		return true
	}
	if c.raised {
		return true
	}
	c.raised, c.usual = true, usual
	runtime.AddCleanup(new([16]byte), func(c *collector) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raised = false
		c.set(c.usual)
	}, c)
	return true
}

// set sets the percentage for the time when nothing is urgent, and returns the previous one. c.mu is held.
func (c *collector) set(percent int) (was int) {
	if c.keeping > 0 {
		was, c.percent = c.percent, percent
		return was
	}
	return debug.SetGCPercent(percent)
}

// keep defers collections until letGo has been called as often.
func (c *collector) keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeping++; c.keeping > 1 {
		return
	}
	// The limit counts the memory that the whole runtime uses now.
	used := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(used)
	now := int64(used[0].Value.Uint64() - used[1].Value.Uint64())
	c.limit = debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(c.limit, now+mostGarbage))
	// Not off: that would wait for the end of a running collection.
	const rare = 10_000
	c.percent = debug.SetGCPercent(rare)
}

func (c *collector) letGo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeping--; c.keeping == 0 {
		debug.SetGCPercent(c.percent)
		debug.SetMemoryLimit(c.limit)
	}
}

// Do runs f, which must not call Do, always on the same OS thread, whose priority is never
// lowered: a program started there has the priority with which this one was started.
func Do(f func()) {
	first.Do(func() {
		go func() {
			runtime.LockOSThread()
			for f := range calls {
				f()
			}
		}()
	})
	done := make(chan struct{})
	calls <- func() {
		defer close(done)
		f()
	}
	<-done
}
