package wait_test

import (
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait"
)

// TestGILOwn: a thread that waits for an interpreter's lock can be in the place of its holder, until the one
// that took it enters itself. It does not wait for itself.
func TestGILOwn(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "locks/pthread", "O2"), "cond")
	var at struct{ Waiters []stack.TID }
	say(t, p, &at)
	self, other := at.Waiters[0], stack.TID(p.PID)
	holder := self
	v := lookAs(t, p.PID, func(c *wait.Config) {
		c.GIL = func(_ int32, word uint64) (wait.GIL, bool) {
			return wait.GIL{Addr: word, Impl: "python", Locked: true, Holder: int32(holder)}, true
		}
	})
	th := &wait.Thread{}
	var info *wait.Info
	for res := wait.Torn; res == wait.Torn; {
		l := v.blocked(self, "futex")
		l.NSTID = int32(self)
		info, res = v.r.Resolve(th, &l)
	}
	if info.Lock == nil || info.Lock.Holder.TID != 0 {
		t.Fatalf("it waits for itself: %+v", info.Lock)
	}
	for _, c := range []struct{ holder, want stack.TID }{{self, 0}, {other, other}, {self, 0}} {
		holder = c.holder
		v.r.Refresh(th)
		l := info.Lock
		if l == nil || l.Holder.TID != c.want || (l.Holder.Why == "") != (c.want != 0) {
			t.Errorf("with %d in the place of the holder: %+v", c.holder, l)
		}
	}
}
