package exact

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/testprog"
)

// TestPreempted lets the CPU engine count the calls of goroutines that the runtime preempts at the breakpoints. A
// preempted goroutine hits an entry or an exit twice, and a function that panics in a loop has two entries in a row
// as well: with a breakpoint inside, the counts are the program's. Without one, calls that may be two are marked.
func TestPreempted(t *testing.T) {
	testprog.Need(t, "go", "ptrace")
	for _, c := range []struct {
		scenario string
		round    int  // calls, of which the buffers hold the hits however late they are read
		inside   bool // there is a breakpoint left
	}{
		{"leaf", 600, true},
		{"framed", 600, true},
		{"panics", 600, true},
		{"recursing", 600, true},
		{"exits", 400, false},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "go/preempted", "default"), c.scenario, fmt.Sprint(c.round))
			p.Ready()
			tr := trace(t, p.PID, CPU, "main."+c.scenario)
			if f := &tr.Functions[0]; f.inside != c.inside {
				t.Fatalf("%d places, a breakpoint inside: %v", f.Places(), f.inside)
			}
			rounds := 20
			if long() {
				rounds = 1000
			}
			n, unsure := map[calls.How]int{}, 0
			var ended atomic.Int64
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				done <- tr.Run(ctx, func(cs []calls.Call) {
					for i := range cs {
						x := &cs[i]
						if x.Before || x.Exit < x.Enter || x.Ret == 0 {
							t.Errorf("%+v", *x)
						}
						n[x.How]++
						if x.Unsure {
							unsure++
						}
					}
					ended.Store(int64(n[calls.Returned]))
				})
			}()
			all, returned, left := playRounds(t, p, &ended, func(r int) bool { return r < rounds })
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			st := tr.Stats()
			t.Logf("%d calls, %d hits were repeated, %d calls are unsure", all, st.Odd, unsure)
			if n[calls.Returned] != returned || n[calls.Left]+n[calls.Open] != left || n[calls.Jumped] > 0 || st.Lost > 0 || st.Dropped > 0 {
				t.Errorf("%v; the program made %d calls, %d returned, %d left; %d lost", n, all, returned, left, st.Lost)
			}
			if c.inside && unsure > 0 || !c.inside && uint64(unsure) > st.Odd {
				t.Errorf("%d calls are unsure", unsure)
			}
			p.CloseInput()
			if s := p.Wait(); !s.Success() {
				t.Errorf("the program ended with %v", s)
			}
		})
	}
}
