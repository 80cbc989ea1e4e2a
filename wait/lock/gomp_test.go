package lock

import (
	"testing"

	"github.com/sliverprof/sliver/wait/kind"
)

// The thread that starts a parallel region waits for the pool's threads there, and is not idle.
func TestPoolsStarter(t *testing.T) {
	for name, want := range map[string]kind.Lock{"GOMP_parallel": kind.LockBarrier, "GOMP_parallel_loop_dynamic": kind.LockBarrier, "start_thread": kind.LockIdle} {
		m, target := fixture("amd64", Glibc)
		m.put32(base+0xc0, base+0x1000, 0, 5, 4)
		m.put32(base+0x100, 4, 24)
		m.put32(base+0x140, 2, 4)
		names := []string{"syscall", "libgomp.so.1+0x1cc40", name}
		l, err := Recognise(target, &Wait{Futex: Futex{Word: base + 0x104, Val: 24, Private: true}, Names: names})
		if err != nil || l.Kind != want || l.Impl != gomp || l.Note == "" {
			t.Errorf("below %s: %+v %v, want %s", name, l, err, want)
		}
	}
	if !Tells("GOMP_parallel") {
		t.Error("the name of the function is not asked for")
	}
}
