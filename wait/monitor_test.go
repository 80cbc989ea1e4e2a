package wait_test

import (
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/lock"
)

// While it cannot be read what a thread of Java parked for, the functions on its stack tell that it
// did not, but waits for a monitor of HotSpot's own: that is recognised, and named, like any other.
func TestMonitorUnknown(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "locks/pthread", "O2"), "cond")
	var at struct{ Waiters []stack.TID }
	say(t, p, &at)
	v := lookAs(t, p.PID, func(c *wait.Config) {
		c.Monitor = func(int32) (wait.Monitor, bool) { return wait.Monitor{Kind: lock.Park, Unknown: true}, true }
		c.MonitorOwner = func(uint64) (bool, int32) { return false, 0 }
		c.LockName = func(l *lock.Lock) string {
			if l.Kind == lock.Cond {
				return "Heap_lock"
			}
			return ""
		}
	})
	for _, c := range []struct {
		function string
		kind     lock.Kind
		name     string
	}{
		{"os::PlatformMonitor::wait", lock.Cond, "condition variable Heap_lock"},
		{"Parker::park", lock.Park, ""},
	} {
		var info *wait.Info
		for res := wait.Torn; res == wait.Torn; {
			l := v.blocked(at.Waiters[0], "futex")
			l.NSTID = int32(l.TID)
			l.Names = func() []string { return []string{"", "pthread_cond_wait", c.function} }
			info, res = v.r.Resolve(&wait.Thread{}, &l)
		}
		if l := info.Lock; l == nil || l.Kind != c.kind || c.name != "" && l.String() != c.name {
			t.Errorf("%s: %+v", c.function, l)
		}
	}
}
