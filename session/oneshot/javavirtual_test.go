package oneshot

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/kind"
)

// TestJavaVirtual: a thread that carries a virtual one must show which. Its stack must
// have the frames that were left in the heap. The holder of a virtual thread's lock
// must be its carrier, if it has one.
func TestJavaVirtual(t *testing.T) {
	gcs := []string{"-XX:+UseG1GC"}
	if os.Getenv("SLIVER_LONG") != "" {
		gcs = append(gcs, "-XX:+UseZGC", "-XX:+UseShenandoahGC", "-XX:+UseSerialGC")
	}
	for _, v := range []string{"java21", "java25"} {
		for _, gc := range gcs {
			t.Run(v+gc, func(t *testing.T) {
				p := startJava(t, v, "Virtual", "ready", "-Xmx64m", gc, "-Djdk.virtualThreadScheduler.parallelism=2")
				spins := func(th *stacks.Thread) bool {
					return strings.HasPrefix(th.Carries, "virtual thread #") && strings.HasSuffix(th.Carries, ` "spins"`)
				}
				s := until(t, Options{}, "the stack of who carries it", func(s []*stacks.Snapshot) bool { // on a busy machine a stop may fail
					return slices.ContainsFunc(s[0].Threads, func(th stacks.Thread) bool { return spins(&th) && len(th.Frames) > 0 })
				}, open1(t, p.PID))[0]
				find := func(is func(*stacks.Thread) bool) *stacks.Thread {
					t.Helper()
					i := slices.IndexFunc(s.Threads, func(th stacks.Thread) bool { return is(&th) })
					if i < 0 {
						t.Fatal("there is no such thread")
					}
					return &s.Threads[i]
				}
				carrier := find(spins)
				deep := 0
				for _, f := range carrier.Frames {
					if f.Func == "Virtual.deep" {
						deep++
					}
					if f.Kind == stack.KindError {
						t.Errorf("a gap: %s", f.Func)
					}
				}
				if deep != 21 || carrier.Truncated != stack.ReasonNone {
					t.Errorf("%d of 21 calls in the heap, %v", deep, carrier.Truncated)
				}
				for _, x := range []string{"spins", "sleeps"} {
					w := find(func(th *stacks.Thread) bool { return th.OwnName == "wants-"+x }).Wait
					if w == nil || w.Lock == nil || w.Lock.Kind != kind.LockSynchronizer {
						t.Errorf("wants-%s waits for %+v", x, w)
						continue
					}
					h := w.Lock.Holder
					if x == "spins" && (h.TID != carrier.TID || w.Lock.Note != carrier.Carries) {
						t.Errorf("what %q has is held by %+v, %q", x, h, w.Lock.Note)
					}
					if x == "sleeps" && (h.TID != 0 || !strings.Contains(h.Why, `"sleeps" has it`)) {
						t.Errorf("what %q has is held by %+v", x, h)
					}
				}
			})
		}
	}
}
