package exact

import (
	"context"
	"testing"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

func TestRate(t *testing.T) {
	r := rate{limit: Limit{Hits: 1000}}
	r.resize(2)
	at := target.Now()
	r.over(at)
	step := func(ms int, a, b int) (int, bool) {
		for range a {
			r.hit(&calls.Hit{Fn: 0}, 1)
		}
		for range b {
			r.hit(&calls.Hit{Fn: 1}, 1)
		}
		at += stack.Time(ms) * 1_000_000
		hot, over := r.over(at)
		return hot.Fn, over
	}
	if _, over := step(100, 150, 50); over { // a burst of a fifth of a second's worth
		t.Error("a burst is too much")
	}
	for range 20 {
		if _, over := step(100, 50, 49); over {
			t.Error("99 hits in 100 ms are above 1000 a second")
		}
	}
	var fn int
	over := false
	for n := 0; !over && n < 10; n++ {
		fn, over = step(100, 100, 400)
	}
	if !over || fn != 1 {
		t.Errorf("5000 hits a second are not too many, or those of %d are", fn)
	}
}

// TestRateOfCost: a function that spends a whole CPU in hits is above a limit of a fifth within 0.1 s, one below the
// limit never is, and of two functions the costlier one is too hot, not the one with more hits.
func TestRateOfCost(t *testing.T) {
	r := rate{limit: DefaultLimit, cost: Cost{Enter: time.Microsecond, Exit: 10 * time.Microsecond}}
	r.resize(2)
	began := target.Now()
	at := began
	r.over(at)
	step := func(a, b int) (Hot, bool) { // 20 ms
		for range a {
			r.hit(&calls.Hit{Fn: 0, Where: calls.Enter}, int64(r.cost.Enter))
		}
		for range b {
			r.hit(&calls.Hit{Fn: 1, Where: calls.Return}, int64(r.cost.Exit))
		}
		at += 20_000_000
		return r.over(at)
	}
	for range 100 {
		if hot, over := step(400, 350); over {
			t.Fatalf("3.9 ms of 20 ms are above the limit: %+v", hot)
		}
	}
	since := at
	for {
		hot, over := step(500, 1900)
		if at-since > 100_000_000 {
			t.Fatal("a CPU busy with hits is below the limit for 0.1 s")
		}
		if over {
			if hot.Fn != 1 || hot.Rate != 95_000 || hot.Calls != 0 || hot.Share != .95 || hot.At != at {
				t.Errorf("%+v", hot)
			}
			break
		}
	}
	r.lost(100)
	if one, all := r.sum(); one != r.cost || all < time.Second/10 {
		t.Errorf("the cost of all hits is %v, of one %+v", all, one)
	}
	before, _ := r.of(0)
	_, all := r.sum()
	r.lost(10)
	if after, _ := r.of(0); after != before {
		t.Error("lost hits are a function's")
	}
	if _, more := r.sum(); more != all+10*(r.cost.Enter+r.cost.Exit)/2 {
		t.Errorf("10 lost hits cost %v", more-all)
	}
}

// TestCost measures what hits cost here. No hit is missing, and the thread is as before.
func TestCost(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, engine := range []string{CPU, Kernel} {
		t.Run(engine, func(t *testing.T) {
			if why := kernel.Check(); engine == Kernel && why != nil {
				testprog.Missing(t, "bpf", why.Error())
			}
			at := time.Now()
			c, err := measure(engine)
			if err != nil || c.Enter <= 0 || c.Exit <= 0 || c.Assumed {
				t.Fatalf("%+v, %v", c, err)
			}
			t.Logf("%v for an entry, %v for an exit, measured in %v", c.Enter, c.Exit, time.Since(at))
			for _, cheap := range []bool{true, false} {
				f := &Function{Code: calls.Code{Cheap: cheap}}
				enter := c.Enter
				if engine == Kernel && pushed && !cheap {
					enter = c.Exit
				}
				if c.of(engine, f, calls.Enter) != int64(enter) || c.of(engine, f, calls.Return) != int64(c.Exit) {
					t.Errorf("cheap %v: %d and %d ns", cheap, c.of(engine, f, calls.Enter), c.of(engine, f, calls.Return))
				}
			}
		})
	}
}

// TestHot traces a function that is called all the time: it is detached, with the accounts of its calls and their cost,
// and the program goes on.
func TestHot(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	for _, engine := range []string{CPU, Kernel} {
		t.Run(engine, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "c/traced", "O2"), "hot", "1")
			p.Ready()
			tr := trace(t, p.PID, engine, "probed")
			tr.rate.limit = DefaultLimit
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var first stack.Time
			err := tr.Run(ctx, func(cs []calls.Call) {
				if first == 0 {
					first = cs[0].Exit
				}
				if len(tr.Hot()) > 0 {
					cancel()
				}
			})
			st := tr.Stats()
			if err != nil || len(st.Hot) != 1 {
				t.Fatalf("%v, %+v", err, st.Hot)
			}
			h := &st.Hot[0]
			t.Logf("detached after %v, at %.0f calls a second, %.2f of a CPU; all of its %d hits cost %v", time.Duration(h.At-first), h.Calls, h.Share, st.Funcs[0].Hits, st.Cost)
			if h.Calls <= 0 || h.Rate < h.Calls || h.Share <= 0 {
				t.Errorf("%+v", *h)
			}
			if f := &st.Funcs[0]; f.Hits == 0 || f.Cost <= 0 || st.Lost == 0 && f.Cost != st.Cost || st.Traced <= 0 || st.Hit != costs[engine]() || f.Cost < time.Duration(f.Hits)*min(st.Hit.Enter, st.Hit.Exit) {
				t.Errorf("%+v, %+v", *f, st)
			}
			p.CloseInput()
			if s := p.Wait(); !s.Success() {
				t.Errorf("the program ended with %v", s)
			}
		})
	}
}
