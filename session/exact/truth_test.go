package exact

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// long says that a test is to run in its long form.
func long() bool { return os.Getenv("SLIVER_LONG") != "" }

// patience bounds a wait for calls that were made.
const patience = 2 * time.Minute

// TestEnginesInRounds makes calls in rounds, each so small that the engine's buffer holds its hits however late they
// are read: no record is lost, and all calls and their ends are the program's. With SLIVER_LONG=1, 100,000 exceptions
// pass through a function of C++, and Go copies growing stacks and collects garbage for a minute.
func TestEnginesInRounds(t *testing.T) {
	testprog.Need(t, "g++", "go", "ptrace")
	for _, c := range []struct {
		program, variant, pattern, engine string
		round                             int // calls of a round
		rounds, many                      int // of the short form and of the long one; 0: as many as lasts allows
		lasts                             time.Duration
	}{
		{"cpp/throwing", "O2", "order::total", Kernel, 20_000, 2, 25, 0},
		{"cpp/throwing", "O2", "order::total", CPU, 2_000, 2, 100, 0},
		{"go/traced", "default", "main.probed", Kernel, 2_000, 2, 0, time.Minute},
	} {
		t.Run(c.pattern+" "+c.engine, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, c.program, c.variant), fmt.Sprint(c.round))
			p.Ready()
			tr := trace(t, p.PID, c.engine, c.pattern)
			rounds, lasts := c.rounds, time.Duration(0)
			if long() {
				rounds, lasts = c.many, c.lasts
			}
			n := map[calls.How]int{}
			var ended atomic.Int64 // by a return
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				done <- tr.Run(ctx, func(cs []calls.Call) {
					for i := range cs {
						if x := &cs[i]; !t.Failed() && (x.Before || x.Unsure || x.Exit < x.Enter || x.Ret == 0) {
							t.Errorf("%+v", *x)
						}
						n[cs[i].How]++
					}
					ended.Store(int64(n[calls.Returned]))
				})
			}()
			began := time.Now()
			all, returned, left := playRounds(t, p, &ended, func(r int) bool { return r < rounds || rounds == 0 && time.Since(began) < lasts })
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			t.Logf("%d calls in %v: %d returned, %d left", all, time.Since(began).Round(time.Millisecond), returned, left)
			st := tr.Stats()
			if sum := n[calls.Returned] + n[calls.Left] + n[calls.Open]; sum != all || n[calls.Returned] != returned || n[calls.Jumped] > 0 ||
				st.Lost > 0 || st.Dropped > 0 {
				t.Errorf("%v; the program made %d calls, %d returned, %d left; %d lost", n, all, returned, left, st.Lost)
			}
			p.CloseInput()
			if s := p.Wait(); !s.Success() {
				t.Errorf("the program ended with %v", s)
			}
		})
	}
}

// TestLosses leaves the hits of a program unread until the buffers overflow: each hit is there or is counted as lost, a
// call around the gap is marked, those before and after it are whole, and the program is as well as before.
func TestLosses(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	// The first round fills both engines' buffers, the second fits into them.
	const first, second = 150_000, 500
	for _, engine := range []string{CPU, Kernel} {
		t.Run(engine, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "c/traced", "O2"), "within", "1")
			p.Ready()
			tr := trace(t, p.PID, engine, "around", "probed")
			around := slices.IndexFunc(tr.Functions, func(f Function) bool { return f.Name == "around" })
			p.Say(fmt.Sprint(first))
			p.Done()

			var got []calls.Call
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			read, done := make(chan bool, 1), make(chan error, 1)
			go func() {
				done <- tr.Run(ctx, func(cs []calls.Call) {
					got = append(got, cs...)
					select {
					case read <- true: // the buffers are empty
					default:
					}
				})
			}()
			select {
			case <-read:
			case <-time.After(patience):
				t.Fatal("no calls arrive")
			}
			p.Say(fmt.Sprint(second))
			p.LineAfter(1, "done")
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}

			st := tr.Stats()
			var hits uint64
			for _, f := range st.Funcs {
				hits += f.Hits
			}
			if all := uint64(2 * (first + 1 + second + 1)); st.Lost == 0 || hits+st.Lost != all {
				t.Errorf("%d hits and %d lost; there were %d", hits, st.Lost, all)
			}
			var outer []calls.Call
			inner, unsure := 0, 0
			for _, x := range got {
				switch {
				case x.Fn == around:
					outer = append(outer, x)
				case x.Unsure:
					unsure++ // the last before the gap, of which the exit is missing
				case x.How != calls.Returned || x.Before:
					t.Errorf("%+v", x)
				default:
					inner++
				}
			}
			if len(outer) != 2 || !outer[0].Unsure || outer[0].How != calls.Left || outer[1].Unsure || outer[1].How != calls.Returned {
				t.Errorf("the calls around the others are %+v", outer)
			}
			if unsure > 1 || uint64(2*inner+unsure+3) != hits {
				t.Errorf("%d calls and %d unsure ones of %d hits", inner, unsure, hits)
			}
			p.CloseInput()
			if s := p.Wait(); !s.Success() {
				t.Errorf("the program ended with %v", s)
			}
		})
	}
}

// slack is how far the median of the edges may be off, beyond the cost of the probe.
const slack = 5 * time.Microsecond

// TestEdgesOfBoth compares the times of calls with the program's own clock readings, which lie inside. Half of the edges
// are off by at most the cost of the probe, as measured here, and slack: more than half would have to be interrupted to
// exceed that.
func TestEdgesOfBoth(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	const many = 300
	for _, engine := range []string{CPU, Kernel} {
		t.Run(engine, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "c/traced", "O2"), "edges", fmt.Sprint(many))
			p.Ready()
			tr := trace(t, p.PID, engine, "timed")
			got := run(t, tr, p)
			cost, err := measure(engine) // once more: the machine may be slower by now
			if err != nil {
				t.Fatal(err)
			}
			var before, after calls.Histogram
			n := 0
			for _, line := range p.Output() {
				var enter, leave stack.Time
				if k, _ := fmt.Sscanf(line, "call %d %d", &enter, &leave); k != 2 {
					continue
				}
				if n == len(got) {
					t.Fatalf("%d calls, the program made more", n)
				}
				c := got[n]
				if c.Enter > enter || c.Exit < leave || c.How != calls.Returned {
					t.Fatalf("call %d from %d to %d (%v), the program was in it from %d to %d", n, c.Enter, c.Exit, c.How, enter, leave)
				}
				before.Add(int64(enter - c.Enter))
				after.Add(int64(c.Exit - leave))
				n++
			}
			if n != many || len(got) != many {
				t.Fatalf("%d calls, the program wrote %d", len(got), n)
			}
			f := &tr.Functions[0]
			for _, x := range []struct {
				edge string
				off  *calls.Histogram
				cost int64
			}{
				{"enter", &before, max(cost.of(engine, f, calls.Enter), tr.Stats().Hit.of(engine, f, calls.Enter))},
				{"exit", &after, max(cost.of(engine, f, calls.Return), tr.Stats().Hit.of(engine, f, calls.Return))},
			} {
				half, most := time.Duration(x.off.Percentile(.5)), time.Duration(x.off.Percentile(.9))
				t.Logf("%s: median %v from the program's reading, p90 %v; a hit costs %v", x.edge, half, most, time.Duration(x.cost))
				if half > time.Duration(x.cost)+slack {
					t.Errorf("%s: half of the edges are off by %v or more; a hit costs %v", x.edge, half, time.Duration(x.cost))
				}
			}
		})
	}
}

// playRounds lets the program make its calls, round after round while more says so, and waits for those of each. It returns
// their numbers by the program's own account.
func playRounds(t *testing.T, p *testprog.Proc, ended *atomic.Int64, more func(r int) bool) (all, returned, left int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r := 0; more(r); r++ {
		p.Go()
		var a, ret, l int
		if _, err := fmt.Sscanf(p.LineAfter(r, "truth "), "truth %d %d %d", &a, &ret, &l); err != nil {
			t.Fatal(err)
		}
		all, returned, left = all+a, returned+ret, left+l
		for since := time.Now(); ended.Load() < int64(returned) && !t.Failed(); <-tick.C {
			if time.Since(since) > patience {
				t.Fatalf("%d calls of round %d do not arrive", int64(returned)-ended.Load(), r)
			}
		}
	}
	return all, returned, left
}
