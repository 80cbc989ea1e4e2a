package session

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// TestInTurn: the CPU time of many threads that take turns, each of them asleep at nearly all ticks, has samples, in the
// program's own shares. A thread is copied each 5 ms of its CPU time or so, and has 20 ms of it: 2 % of the threads have no
// copy, and their CPU time is not sampled. The limit of the shares is 4.5 standard deviations above a bias of 1 point:
// chance exceeds it in less than 1 of 100,000 recordings.
func TestInTurn(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	testprog.Need(t, "ptrace")
	const threads = 200
	p := testprog.Start(t, testprog.Build(t, "c/inturn", "O2"), fmt.Sprint(threads))
	p.Ready()
	p.Go()
	rec := recordWith(t, p.PID, Options{Interval: 10 * time.Millisecond, Jitter: .2, Clock: true, MaxOverhead: .01}, func(s stack.ThreadStats) bool {
		return s.CPUNS > threads*int64(20*time.Millisecond)
	})
	p.Say("end")
	var render, query float64
	if _, err := fmt.Sscan(strings.TrimPrefix(p.Line("shares "), "shares "), &render, &query); err != nil {
		t.Fatal(err)
	}
	total := rec.Stats.Total()
	if total.Clocked == 0 {
		testprog.Missing(t, "perf", "no clock of all CPUs")
	}
	r := report.Of(rec, view.Options{}, 1000)
	var all, unseen, of int64
	for _, f := range r.OnCPU {
		all += f.Self
		switch f.Name {
		case trace.NotSampled:
			unseen = f.Self
		case "render":
			of = f.Total
		}
	}
	t.Logf("%d copies; %d of %d ms not sampled, %d in render, whose share is %.3f", total.Clocked, unseen/1e6, all/1e6, of/1e6, render/(render+query))
	if all == 0 || unseen*8 > all {
		t.Fatalf("%d of %d ms of CPU time are not sampled: %+v", unseen/1e6, all/1e6, total)
	}
	got, is := float64(of)/float64(all-unseen), render/(render+query)
	if limit := .01 + 4.5*math.Sqrt(is*(1-is)/float64(total.Clocked)); math.Abs(got-is) > limit {
		t.Errorf("render has %.3f of the CPU time, and %.3f by its own account", got, is)
	}
}
