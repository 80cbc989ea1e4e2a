package wait_test

import (
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// While the object that a Java thread parked for cannot be read, the functions on its
// stack show that it did not park but waits for one of HotSpot's own monitors. That
// monitor must be recognised and named like any other.
func TestMonitorUnknown(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "locks/pthread", "O2"), "cond")
	var at struct{ Waiters []stack.TID }
	say(t, p, &at)
	v := lookAs(t, p.PID, func(c *wait.Config) {
		c.Monitor = func(int32) (wait.Monitor, bool) { return wait.Monitor{Kind: kind.LockPark, Unknown: true}, true }
		c.MonitorOwner = func(uint64) (bool, int32) { return false, 0 }
		c.LockName = func(l *lock.Lock) string {
			if l.Kind == kind.LockCond {
				return "Heap_lock"
			}
			return ""
		}
	})
	for _, c := range []struct {
		function string
		kind     kind.Lock
		name     string
	}{
		{"os::PlatformMonitor::wait", kind.LockCond, "condition variable Heap_lock"},
		{"Parker::park", kind.LockPark, ""},
	} {
		info := v.resolveAs(&wait.Thread{}, at.Waiters[0], func(l *wait.Look) {
			l.NSTID = int32(l.TID)
			l.Names = func() []string { return []string{"", "pthread_cond_wait", c.function} }
		}, "futex")
		if l := info.Lock; l == nil || l.Kind != c.kind || c.name != "" && l.String() != c.name {
			t.Errorf("%s: %+v", c.function, l)
		}
	}
}

// HotSpot 25 has its mutexes in the data of libjvm.so, each inside a larger variable: they get the
// virtual machine's names too. A lock that is a variable by itself keeps the variable's name.
func TestLockNameInData(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "locks/pthread", "O2"), "cond")
	var at struct{ Waiters []stack.TID }
	say(t, p, &at)
	for _, c := range []struct {
		symbol wait.Symbol
		own    string
		want   string
	}{
		{wait.Symbol{Name: "mutex_init()::Heap_lock_storage", Module: "/lib/libjvm.so", Offset: 48}, "Heap_lock", "condition variable Heap_lock"},
		{wait.Symbol{Module: "/lib/libjvm.so", Offset: 0x1230}, "Heap_lock", "condition variable Heap_lock"},
		{wait.Symbol{Module: "/lib/libjvm.so", Offset: 0x1230}, "", "condition variable libjvm.so+0x1230"},
		{wait.Symbol{Name: "queue", Module: "/srv/app", Offset: 16}, "", "condition variable queue+0x10"},
		{wait.Symbol{Name: "ready", Module: "/srv/app"}, "unlocked", "condition variable ready"},
	} {
		v := lookAs(t, p.PID, func(x *wait.Config) {
			x.Data = func(uint64) (wait.Symbol, bool) { return c.symbol, true }
			x.LockName = func(*lock.Lock) string { return c.own }
		})
		info := v.resolveAs(&wait.Thread{}, at.Waiters[0], func(l *wait.Look) {
			l.NSTID = int32(l.TID)
			l.Names = func() []string { return []string{"", "pthread_cond_wait"} }
		}, "futex")
		if l := info.Lock; l == nil || l.String() != c.want {
			t.Errorf("%+v, called %q: %+v, want %q", c.symbol, c.own, l, c.want)
		}
	}
}
