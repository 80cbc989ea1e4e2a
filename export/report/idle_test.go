package report_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// pool returns a recording of a thread that reads a file, two pool threads without work, and one pool
// thread that works half of the time.
func pool(t testing.TB) *trace.Recording {
	b := exporttest.New(t)
	disk := b.Wait(trace.Wait{Call: "read", Args: "3 /var/db, 4096 bytes", File: "/var/db", Kind: "file"})
	cond := b.Wait(trace.Wait{Call: "futex", Args: "condition variable work_cv", Kind: "lock", Lock: "condition variable", KnownBy: "function", Symbol: "work_cv"})
	const waits = "clone3:1 start_thread:1 work:1 pthread_cond_wait:1"
	main := b.Thread(1234, "main")
	main.Look(exporttest.Look{At: 0, State: stack.StateBlocked, Call: 1, Times: 1, Stack: "main:1 load:2 read:1"})
	main.Event(0, event.Wait, disk)
	main.Look(exporttest.Look{At: 1000 * ms, State: stack.StateBlocked, Call: 1, Times: 1, Way: stack.WayUnrun})
	for i := range 3 {
		th := b.Thread(1240+i, "pool")
		th.Look(exporttest.Look{At: 0, State: stack.StateBlocked, Call: 203, Times: 1, Stack: waits})
		th.Event(0, event.Wait, cond)
		th.Event(0, event.Lock, 0x9000)
		if i == 2 {
			th.Look(exporttest.Look{At: 500 * ms, State: stack.StateRunning, Times: 2, Stack: "clone3:1 start_thread:1 work:1 crunch:1"})
			th.Look(exporttest.Look{At: 1000 * ms, State: stack.StateRunning, CPU: 500 * ms, Times: 2, Stack: "clone3:1 start_thread:1 work:1 crunch:1"})
			continue
		}
		th.Look(exporttest.Look{At: 1000 * ms, State: stack.StateBlocked, Call: 203, Times: 1, Way: stack.WayUnrun})
	}
	return b.Finish(1000 * ms)
}

// Idle pool threads are in no table unless requested, and the report says how much it omitted.
func TestIdle(t *testing.T) {
	r := report.Of(pool(t), view.Options{}, 0)
	if r.Idle.Threads != 2 || r.Idle.Wait != 2000*ms || r.Idle.Others != 1 || r.Idle.Other != 500*ms {
		t.Errorf("left out %+v", r.Idle)
	}
	if len(r.Threads) != 2 || len(r.Locks) != 0 || len(r.Calls) != 1 || len(r.Functions) != 1 || len(r.Longest) != 1 {
		t.Errorf("%d threads, locks %+v, calls %+v, functions %+v, longest %+v", len(r.Threads), r.Locks, r.Calls, r.Functions, r.Longest)
	}
	if th := r.Threads[0]; th.TID != 1242 || th.CPU != 500*ms || th.Idle != 500*ms || th.Blocked != 500*ms || th.Waits != 0 {
		t.Errorf("thread %+v", th)
	}
	var text, page strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, doc := range []string{text.String(), page.String()} {
		if !strings.Contains(doc, "2 idle threads, 2.00 s, and idle waits of 1 other thread, 500 ms; --idle shows them") {
			t.Errorf("it does not say what was left out:\n%s", doc)
		}
	}
	if line := "\n4 threads: 500ms on a CPU (50% of one), 1.00s waiting\n"; !strings.Contains(text.String(), line) {
		t.Errorf("the sum has the waits that are left out:\n%s", text.String())
	}
	r = report.Of(pool(t), view.Options{Idle: true}, 0)
	text.Reset()
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "\n4 threads: 500ms on a CPU (50% of one), 3.50s waiting\n") {
		t.Errorf("with idle waits, %v:\n%s", err, text.String())
	}
	if r.Idle.Any() || len(r.Threads) != 4 || len(r.Locks) != 1 || r.Locks[0].Total != 2500*ms || len(r.Longest) != 4 {
		t.Errorf("with idle waits: left out %+v, %d threads, locks %+v", r.Idle, len(r.Threads), r.Locks)
	}
	if f := r.Functions[0]; f.Kind != kind.GroupIdle || f.KindTotal != 2500*ms {
		t.Errorf("function %+v", f)
	}
}

// Waits of a function are counted by object: sleeps of 300 different lengths count as one.
func TestMostlyFor(t *testing.T) {
	b := exporttest.New(t)
	gil := b.Wait(trace.Wait{Call: "futex", Args: "GIL", Kind: "lock", Lock: "GIL", KnownBy: "layout"})
	th := b.Thread(1234, "main")
	at, times := int64(0), uint64(1)
	wait := func(ms_, call int64, id, lock uint64) {
		th.Look(exporttest.Look{At: at * ms, State: stack.StateBlocked, Call: int32(call), Times: times, Stack: fmt.Sprintf("main:1 step:1 call%d:1", call)})
		th.Event(at*ms, event.Wait, id)
		if lock != 0 {
			th.Event(at*ms, event.Lock, lock)
		}
		at, times = at+ms_, times+1
	}
	for i := range int64(300) {
		length := fmt.Sprintf("%d.%dms", 10, i)
		wait(10, 36, b.Wait(trace.Wait{Call: "nanosleep", Args: length, Kind: "sleep"}), 0)
		if i%2 == 0 {
			wait(11, 203, gil, 0x7000)
		}
	}
	th.Look(exporttest.Look{At: at * ms, State: stack.StateRunning, Times: times, Stack: "main:1 step:1"})
	r := report.Of(b.Finish(at*ms), view.Options{}, 0)
	kinds := map[kind.Group]int64{}
	for _, c := range r.Calls {
		kinds[c.Kind] += c.Total
	}
	if kinds[kind.GroupSleep] != 3000*ms || kinds[kind.GroupGIL] != 1650*ms {
		t.Errorf("calls %+v", r.Calls)
	}
	if f := r.Functions[0]; f.Kind != kind.GroupSleep || f.For != "sleep" || f.KindTotal != 3000*ms {
		t.Errorf("functions %+v", r.Functions)
	}
}

// A pool's thread without work waits for no lock, although its queue's semaphore may be one.
func TestIdleIsForNoLock(t *testing.T) {
	b := exporttest.New(t)
	sem := b.Wait(trace.Wait{Call: "futex", Args: "semaphore jobs", Kind: "lock", Lock: kind.LockSemaphore, KnownBy: "function", Symbol: "jobs"})
	mutex := b.Wait(trace.Wait{Call: "futex", Args: "mutex m", Kind: "lock", Lock: kind.LockMutex, KnownBy: "function", Symbol: "m"})
	th := b.Thread(1234, "pool")
	at := func(ms_ int64, wait, lock uint64, stack_ string) {
		const work = "clone3:1 start_thread:1 work:1 "
		th.Look(exporttest.Look{At: ms_ * ms, State: stack.StateRunning, Times: uint64(ms_), CPU: ms_, Stack: work})
		th.Look(exporttest.Look{At: ms_*ms + 1, State: stack.StateBlocked, Call: 203, Times: uint64(ms_), CPU: ms_, Stack: work + stack_})
		th.Event(ms_*ms+1, event.Wait, wait)
		th.Event(ms_*ms+1, event.Lock, lock)
	}
	at(0, sem, 0x9000, "queue_pop:1 sem_wait:1")
	at(300, mutex, 0x8000, "store:1 pthread_mutex_lock:1")
	at(400, sem, 0x9000, "queue_pop:1 sem_wait:1")
	th.Look(exporttest.Look{At: 1000 * ms, State: stack.StateBlocked, Call: 203, Times: 400, CPU: 400, Way: stack.WayUnrun})
	rec := b.Finish(1000 * ms)
	for shows, want := range map[bool]int64{false: 100 * ms, true: 1000 * ms} {
		r := report.Of(rec, view.Options{Idle: shows}, 0)
		near := func(got, want int64) bool { return got > want-1000 && got <= want } // it runs for some ns between them
		if len(r.Threads) != 1 || !near(r.Threads[0].Locks, want) || !near(r.Threads[0].Idle, 900*ms) {
			t.Errorf("idle waits shown %v: %+v, want %d ns for locks", shows, r.Threads, want)
		}
	}
}

// The threads of a pool are idle for 99.5 % of the time each. The first line has the half of a CPU that they use together.
func TestIdlePoolCPU(t *testing.T) {
	b := exporttest.New(t)
	cond := b.Wait(trace.Wait{Call: "futex", Args: "condition variable work_cv", Kind: "lock", Lock: "condition variable", KnownBy: "function", Symbol: "work_cv"})
	for i := range 100 {
		th := b.Thread(1240+i, "pool")
		for at := range int64(101) {
			th.Look(exporttest.Look{At: at * 10 * ms, CPU: at * ms / 20, State: stack.StateBlocked, Call: 203, Times: uint64(at), Stack: "clone3:1 start_thread:1 work:1 pthread_cond_wait:1"})
			th.Event(at*10*ms, event.Wait, cond)
			th.Event(at*10*ms, event.Lock, 0x9000)
		}
	}
	r := report.Of(b.Finish(1000*ms), view.Options{}, 0)
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || len(r.Threads) != 0 || r.Idle.Threads != 100 || !strings.Contains(text.String(), "\n100 threads: 500ms on a CPU (50% of one)\n") {
		t.Errorf("%v, %d threads, left out %+v:\n%s", err, len(r.Threads), r.Idle, text.String())
	}
}
