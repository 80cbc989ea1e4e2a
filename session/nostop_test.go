package session

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
)

// schedstat returns the kernel's statistics of a thread, which change whenever it runs.
func schedstat(t *testing.T, pid int, tid stack.TID) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Waiting threads must be recorded with state, call, lock and holder, and must not run
// even once because of that: nothing stops or wakes them.
func TestNothingWakes(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, c := range []struct {
		kind   string
		holder bool
		want   string
	}{{"normal", true, "mutex"}, {"recursive", true, "recursive mutex"}, {"robust", true, "robust mutex"}, {"pi", true, "PI mutex"},
		{"shared-recursive", true, "recursive mutex"}, {"rwlock-write", true, "rwlock"}, {"cond", false, "condition variable"},
		{"sem", false, "semaphore"}, {"join", true, "join"}, {"flock", true, "exclusive flock"}} {
		t.Run(c.kind, func(t *testing.T) {
			args := []string{c.kind, "3"}
			switch c.kind {
			case "flock": // a waiter keeps the lock once it has it
				args = []string{c.kind, "1", filepath.Join(t.TempDir(), "x.lock")}
			case "join":
				args[1] = "1"
			}
			p := testprog.Start(t, testprog.Build(t, "locks/pthread", "O2"), args...)
			var said struct {
				Holder  stack.TID
				Waiters []stack.TID
			}
			if err := json.Unmarshal([]byte(p.Line("{")), &said); err != nil {
				t.Fatal(err)
			}
			// They are about to wait: poll until they have not run for a while.
			before := map[stack.TID]string{}
			same := 0
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for end := time.Now().Add(time.Minute); same < 10; <-tick.C {
				same++
				for _, tid := range said.Waiters {
					if now := schedstat(t, p.PID, tid); now != before[tid] {
						before[tid], same = now, 0
					}
				}
				if time.Now().After(end) {
					t.Fatal("they do not come to rest")
				}
			}
			rec := recordWith(t, p.PID, Options{Interval: 5 * time.Millisecond, Stop: sampler.StopRunning},
				func(s stack.ThreadStats) bool { return s.Samples > 5*40 })
			ks := tracks(rec)
			for _, tid := range said.Waiters {
				if now := schedstat(t, p.PID, tid); now != before[tid] {
					t.Errorf("thread %d ran: %q, before %q", tid, now, before[tid])
				}
				last := ks[tid].at(1 << 62)
				if last.state != stack.StateBlocked || last.wait.Kind != "lock" || !strings.Contains(last.wait.Args, c.want) ||
					c.holder && last.holder != said.Holder {
					t.Errorf("thread %d: %+v, want a %s of %d", tid, last, c.want, said.Holder)
				}
			}
			p.Go()
			if st := p.Wait(); !st.Success() {
				t.Errorf("ended with %v", st)
			}
		})
	}
}
