package wait_test

import (
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait"
)

// BenchmarkLook measures the cost of a sample of a blocked thread: an unchanged wait, a
// refresh of the holder, and a new wait.
func BenchmarkLook(b *testing.B) {
	p := testprog.Start(b, build(b, "gcc", "pthread.c"), "recursive")
	var s said
	say(b, p, &s)
	v := look(b, p.PID)
	l := v.blocked(s.Waiters[0], "futex")
	l.Still = nil
	var th wait.Thread
	v.r.Resolve(&th, &l)
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			v.r.Resolve(&th, &l)
		}
	})
	b.Run("one bare read of the lock", func(b *testing.B) {
		var buf [20]byte
		for b.Loop() {
			if _, err := v.p.ReadAt(buf[:], hexa(b, s.Lock)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("refresh", func(b *testing.B) {
		for b.Loop() {
			v.r.Refresh(&th)
		}
	})
	b.Run("new futex", func(b *testing.B) {
		for b.Loop() {
			l.Switches++
			v.r.Resolve(&th, &l)
		}
	})
	b.Run("new read of a pipe", func(b *testing.B) {
		c := l
		c.Call = stack.Call{Nr: number(b, "read"), Args: [6]uint64{0, 0, 1}}
		for b.Loop() {
			c.Switches++
			v.r.Resolve(&th, &c)
		}
	})
}
