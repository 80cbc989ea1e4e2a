// Package background keeps this program's own work out of the way of what it
// watches: its garbage collections, the encoding of events, the pages it
// serves. While a thread of the target waits for the CPU that they use, it
// neither runs nor stops.
//
// Linux has a priority for each thread. An ordinary user may only lower it, and
// a new thread has that of the one it was made by. So the threads that are to
// keep theirs, those that stop other threads or start other programs, are put
// aside before the rest is lowered.
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

// Nice is what Lower adds to the nice value: with it, a thread that competes
// with one of ordinary priority has about a quarter of the CPU.
const Nice = 5

var (
	mu    sync.Mutex
	jobs  = make(chan func() bool) // for threads put aside
	idle  atomic.Int64             // of them
	first sync.Once
	calls = make(chan func()) // for the thread of Do

	started, _ = nice(0) // what this program was started with
)

// urgentNice is the nice value of threads put aside, where there is the right to it
// (CAP_SYS_NICE, or a limit on nice): beside thirty threads of ordinary priority such a one has
// a quarter of a CPU in place of a thirtieth. What it does takes no more time for that, but is
// done when it is due: of 64 threads that want two CPUs, at 100 Hz beside other load,
// samplers of ordinary priority were late for 40 to 60 ticks of 100, others for 3 to 8.
const urgentNice = -10

// raise gives the calling OS thread the priority of one put aside, or else that with which
// this program was started.
func raise() {
	if unix.Setpriority(unix.PRIO_PROCESS, 0, min(started, urgentNice)) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, started) // only the privileged may, once it is lowered
	}
}

// Lower puts so many OS threads aside for Go and lowers the priority of all
// others for good, but for the OS threads in but.
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
	// A thread that is made meanwhile is seen by the next pass.
	for {
		changed, err := lowerRest(but)
		if err != nil || !changed {
			return err
		}
	}
}

// lowerRest lowers all threads but some, and reports whether it met one that was
// not yet.
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
			continue // it has ended, or has it
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, want); err != nil && err != unix.ESRCH {
			return false, fmt.Errorf("lower the priority of thread %d: %w", tid, err)
		}
		changed = true
	}
	return changed, nil
}

// nice of a thread. The system call counts from 20 downwards.
func nice(tid int) (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	return 20 - n, err
}

// Go runs f on an OS thread to which its goroutine is locked: one that was put
// aside, if one is left. The OS thread is used again only if f says so, and
// ends otherwise.
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

// Urgent runs f, which takes a moment and has a time by which it is to be done, on an
// OS thread that was put aside. It returns when f has; f may call it. A panic of f goes on
// in the caller, as a Panicked.
//
// No garbage is collected meanwhile, unless there is much of it: to begin and to end a
// collection all of this program stops, until those of its threads that were at work
// come to a point where they may. On a busy machine, where they have to wait for a CPU to
// get there, that has taken 300 ms.
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

// ballast is memory that nobody touches, so that it takes up addresses alone.
//
//lint:ignore U1000 that it is there is its use
var ballast []byte

// CollectRarely lets so many bytes of garbage more pile up before it is collected, for
// good: memory that a program with little in it, which would collect each few megabytes,
// may take on instead. A collection stops all of this program, samplers too, until each of
// its threads has come to a point where it may; one that was lowered waits for a CPU first.
// With much in use it changes nothing, as the garbage may then be as much as that anyway.
func CollectRarely(bytes int) {
	// Go collects once there is as much that is new as what the last collection left.
	ballast = make([]byte, bytes)
	runtime.GC() // which finds it
}

// mostGarbage is how much memory, in bytes, this program may take on before garbage is
// collected in spite of what is urgent.
const mostGarbage = 128 << 20

// collector says when garbage is collected.
type collector struct {
	mu      sync.Mutex
	keeping int
	percent int   // as it was before
	limit   int64 // bytes; as it was before
}

var garbage collector

// keep has garbage stay until letGo has been called as often.
func (c *collector) keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeping++; c.keeping > 1 {
		return
	}
	// What all of the runtime has now is what the limit counts.
	used := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(used)
	now := int64(used[0].Value.Uint64() - used[1].Value.Uint64())
	c.limit = debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(c.limit, now+mostGarbage))
	// Not off: that would wait for the end of a collection that is under way.
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

// Do runs f, which must not call Do, on one and the same OS thread each time,
// whose priority is never lowered: a program that is started there has the
// priority that this one was started with.
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
