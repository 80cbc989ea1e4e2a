package wait_test

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait"
)

// TestRestarted: a thread's wait is resolved even if a signal interrupted its call before the first
// sample, so that the kernel reports restart_syscall for the rest of the wait.
func TestRestarted(t *testing.T) {
	p := testprog.Start(t, build(t, "gcc", "restart.c"))
	var s named
	say(t, p, &s)
	v := look(t, p.PID)
	for _, th := range s.Threads {
		name, _, _ := strings.Cut(th.Name, ":")
		v.blocked(th.TID, name)
	}
	if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, th := range s.Threads {
		v.until(th.TID, stack.StateStopped)
	}
	if err := syscall.Kill(p.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, th := range s.Threads {
		name, what, _ := strings.Cut(th.Name, ":")
		var state wait.Thread
		i := v.resolve(&state, th.TID, nil, "restart_syscall")
		if i.Call != name || i.Why != "" {
			t.Errorf("%s: %+v", th.Name, i)
		}
		want := map[string]string{"semaphore": "semaphore", "shared": "semaphore", "mutex": "mutex", "one": "timeout 1h", "none": "1h", "many": "timeout 1h"}[what]
		if !strings.Contains(i.Args, want) {
			t.Errorf("%s: %q lacks %q", th.Name, i.Args, want)
		}
	}
}

// until waits until a thread is in state want.
func (v *view) until(tid stack.TID, want stack.State) {
	v.t.Helper()
	th, err := v.p.Thread(tid)
	if err != nil {
		v.t.Fatal(err)
	}
	defer th.Close()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); runtime.Gosched() {
		if s, err := th.State(); err != nil || s == want {
			if err != nil {
				v.t.Fatal(err)
			}
			return
		}
	}
	v.t.Fatalf("thread %d is never %v", tid, want)
}
