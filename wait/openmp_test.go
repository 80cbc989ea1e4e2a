package wait_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
)

// The threads of OpenMP's pool are idle between parallel regions, and wait for the slowest of them within one.
func TestOpenMP(t *testing.T) {
	for _, c := range []struct {
		kind string
		want kind.Lock // "": they are idle
		name string    // a function on the stack
	}{{"pool", "", ""}, {"barrier", kind.LockBarrier, "GOMP_barrier"}, {"end", kind.LockBarrier, ""},
		{"critical", kind.LockMutex, "GOMP_critical_start"}, {"ordered", kind.LockSemaphore, "GOMP_ordered_start"}} {
		t.Run(c.kind, func(t *testing.T) {
			p := testprog.Start(t, build(t, "openmp", "openmp.c"), c.kind)
			var s said
			say(t, p, &s)
			v := look(t, p.PID)
			for _, tid := range s.Waiters {
				for _, names := range [][]string{nil, {"libgomp.so.1.0.0+0x1f5e0", c.name, "main._omp_fn.0"}} {
					// It may still be in another wait, on its way to this one.
					var i *wait.Info
					got := func() bool {
						var th wait.Thread
						i = v.resolve(&th, tid, names, "futex")
						if c.want == "" {
							return i.Kind == kind.WaitIdle && i.Lock == nil
						}
						return i.Kind == kind.WaitLock && i.Lock != nil && i.Lock.Kind == c.want && i.Lock.Impl == "libgomp" && i.Lock.Holder.Why != ""
					}
					for deadline := time.Now().Add(time.Minute); !got(); runtime.Gosched() {
						if time.Now().After(deadline) {
							t.Fatalf("names %v: %+v %+v", names, i, i.Lock)
						}
					}
				}
			}
			p.Go()
			if st := p.Wait(); !st.Success() {
				t.Errorf("ended with %v", st)
			}
		})
	}
}
