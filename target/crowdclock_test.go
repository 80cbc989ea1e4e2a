package target

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// TestCrowdClock: threads that share buffers have copies of their own, in proportion to their CPU time, in order of time. With the
// last of them, all descriptors are closed.
func TestCrowdClock(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/inturn", "O2"), "4")
	p.Ready()
	p.Go()
	proc, err := Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	tids, err := proc.Threads(nil)
	if err != nil {
		t.Fatal(err)
	}
	const period = 1_000_000
	threads := map[stack.TID]*Thread{}
	for _, tid := range tids {
		th, err := proc.Thread(tid)
		if err != nil {
			t.Fatal(err)
		}
		defer th.Close()
		threads[tid] = th
	}
	used := func(tid stack.TID) int64 {
		var c Counters
		if err := threads[tid].Counters(&c); err != nil {
			t.Fatal(err)
		}
		return c.CPU
	}
	before := openFiles(t)
	clocks, counts := map[stack.TID]*Clock{}, map[stack.TID]int{}
	last, from := map[stack.TID]stack.Time{}, map[stack.TID]int64{}
	for tid, th := range threads {
		c, err := th.OpenCrowdClock(period, 4096)
		if errors.Is(err, ErrClockDenied) {
			testprog.Lack(t, "perf", err.Error())
		}
		if err != nil {
			t.Fatal(err)
		}
		clocks[tid], from[tid] = c, used(tid)
		if _, err := th.OpenCrowdClock(period, 4096); err == nil {
			t.Fatal("a second clock of a thread")
		}
	}
	enough := func() bool {
		all := int64(0)
		for tid := range threads {
			all += used(tid) - from[tid]
		}
		return all > 1000*period
	}
	for begin := time.Now(); !enough() && time.Since(begin) < time.Minute; {
		fds := []unix.PollFd{{Fd: -1}}
		_, _ = unix.Poll(fds, 5)
		for tid, c := range clocks {
			for {
				x, lost, ok := c.Take()
				counts[tid] += int(lost)
				if !ok {
					break
				}
				counts[tid]++
				if x.At < last[tid] || len(x.Stack) == 0 || x.Regs.PC == 0 {
					t.Fatalf("copy of %d at %v after %v, %d bytes of stack, PC %#x", tid, x.At, last[tid], len(x.Stack), x.Regs.PC)
				}
				last[tid] = x.At
			}
		}
	}
	for tid, c := range clocks {
		ran := float64(used(tid)-from[tid]) / period
		// The periods of two events differ by up to a half of their mean each, and all threads' buffers are read after some ms.
		if got := float64(counts[tid]); ran > 100 && (got < ran*.5 || got > ran*2) {
			t.Errorf("%.0f copies of thread %d in %.0f periods", got, tid, ran)
		}
		c.Close()
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files open, %d before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
