package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestFidelityManyThreads: with 4,000 threads, beside twenty that compute, `stack` shows each of them without waiting
// for a CPU most of the time, and a recording is as long as asked and counts the threads that it has not looked at. Without the priority of samplers, which root has,
// `stack` took thirty times its CPU time there.
func TestFidelityManyThreads(t *testing.T) {
	testprog.Whole(t, "TestFidelityDeep and others have fewer threads")
	testprog.Need(t, "ptrace")
	if os.Geteuid() != 0 {
		t.Skip("needs the right to a higher priority")
	}
	if _, err := build(); err != nil { // before the machine is busy
		t.Fatal(err)
	}
	dir, threads := t.TempDir(), 4000
	spin := testprog.Build(t, "c/spin", "O0")
	p := testprog.Start(t, testprog.Build(t, "c/sleepers", "O2"), "--sleepers", fmt.Sprint(threads-1), "--seconds", "3600", "--wait-go")
	p.Ready()
	p.Go()
	testprog.Start(t, spin, "--threads", "20", "--seconds", "3600")
	waitFor(t, func() bool {
		ds, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID))
		return err == nil && len(ds) == threads
	})

	cmd := slivercmd(t, dir, "stack", pidOf(p))
	began := time.Now()
	r := runCmd(t, cmd)
	took, cpu := time.Since(began), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	t.Logf("stack: %v, of them %v on a CPU", took, cpu)
	if n := strings.Count(r.out, " TID "); r.status != 0 || n != threads {
		t.Errorf("status %d, %d threads: %s", r.status, n, r.errors)
	}
	if took > 8*cpu {
		t.Errorf("stack took %v, and %v on a CPU", took, cpu)
	}

	r = sliver(t, dir, "record", "--json", "-d", "5s", "-p", pidOf(p), "-o", "many.sliver")
	var sum struct {
		Threads, Unrecorded int
		DurationNs          int64 `json:"duration_ns"`
		AskedNs             int64 `json:"asked_ns"`
	}
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil || r.status != 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	t.Logf("record: %v of %v asked, %d threads, %d not looked at", time.Duration(sum.DurationNs), time.Duration(sum.AskedNs), sum.Threads, sum.Unrecorded)
	// The bound on its own CPU time is a tenth of a CPU, for which the first look at all threads is too much.
	if sum.Threads == 0 || sum.Threads+sum.Unrecorded != threads || sum.DurationNs > sum.AskedNs*21/20 {
		t.Errorf("%d threads for %v: %s", sum.Threads, time.Duration(sum.DurationNs), r.out)
	}
}
