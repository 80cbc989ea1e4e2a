package live

import (
	"encoding/json"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/engine/ptrace"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// A thread that has run since its sample waited for the lock of its futex word, if one was read a moment
// ago. A thread of Go sleeps on one word for all that it waits for, so there the word says nothing.
func TestTornWord(t *testing.T) {
	for _, c := range []struct {
		name, program, variant, arg string
		kind                        stack.Kind
		want                        int
	}{
		{"pthread", "locks/pthread", "O2", "cond", stack.KindNative, 1},
		{"go", "locks/gosync", "default", "", stack.KindGo, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, c.program, c.variant), c.arg)
			said := struct{ Waiters []stack.TID }{}
			if err := json.Unmarshal([]byte(p.Line("{")), &said); err != nil {
				t.Fatal(err)
			}
			proc, err := target.Open(p.PID)
			if err != nil {
				t.Fatal(err)
			}
			defer proc.Close()
			tg, err := New(proc, nil)
			if err != nil {
				t.Fatal(err)
			}
			vars := tg.Variables(nil)
			defer vars.Close()
			w := tg.Waits(&Descriptions{Put: func(trace.Wait) bool { return true }}, vars, func() {}).(*waits)
			defer w.Close()
			th, err := proc.Thread(said.Waiters[0])
			if err != nil {
				t.Fatal(err)
			}
			defer th.Close()
			x := &ptrace.Thread{Thread: th}
			in := stack.ThreadInfo{TID: said.Waiters[0]}
			// look samples the thread; back is how many switches before its present ones.
			look := func(back uint64) (locks int) {
				for limit := time.Now().Add(time.Minute); time.Now().Before(limit); runtime.Gosched() {
					g := &sampler.Glance{State: stack.StateBlocked, Sample: &stack.Sample{Time: target.Now(), Way: stack.WayRead},
						Frames: []stack.Frame{{PC: 0x1000, Kind: c.kind, Exact: true}}}
					if x.Counters(&g.Counters) != nil {
						continue
					}
					if running, err := x.Call(&g.Call); err != nil || running || g.Call.Nr != syscall.SYS_FUTEX {
						continue
					}
					g.Counters.Switches -= back
					g.Sample.Switches, g.Sample.Call = g.Counters.Switches, g.Call
					sink := &told{}
					w.Look(x, &in, g, sink)
					for _, e := range sink.events {
						if e.Kind() == event.Lock && e.Payload() != 0 {
							locks++
						}
					}
					return locks
				}
				t.Fatal("it does not wait")
				return 0
			}
			if n := look(0); n != 1 {
				t.Fatalf("%d locks of a thread that waits", n)
			}
			if n := look(1); n != c.want {
				t.Errorf("%d locks of a thread that has run since, want %d", n, c.want)
			}
		})
	}
}
