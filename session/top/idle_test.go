package top

import (
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// An event loop's waits and an idle pool thread are omitted from a table and counted, unless ShowIdle is
// set.
func TestIdleOutOfTable(t *testing.T) {
	names := fake{map[int]trace.Wait{1: {Call: "epoll_wait", Kind: "poll"}, 2: {Call: "futex", Kind: "idle"}, 3: {Call: "read", Kind: "file", File: "/var/db"}}}
	m := New(time.Second)
	const base = 10_000 * ms
	a, b, c := thread(m, 11, "main"), thread(m, 12, "pool"), thread(m, 13, "reader")
	for at := base; at <= base+5000*ms; at += 10 * ms {
		if (at-base)%(100*ms) < 50*ms {
			a.sample(at, stack.StateRunning, int64(10*ms), 1, 2)
		} else {
			a.sample(at, stack.StateBlocked, 0, 1, 3)
			a.event(at, event.Wait, 1)
		}
		b.sample(at, stack.StateBlocked, 0, 4, 5)
		b.event(at, event.Wait, 2)
		c.sample(at, stack.StateBlocked, 0, 6)
		c.event(at, event.Wait, 3)
	}
	for _, r := range []*recorded{a, b, c} {
		r.flush()
	}
	tb := m.Table(base+5000*ms, names)
	if tb.Left.Threads != 1 || tb.Left.Wait != int64(1000*ms) || tb.Left.Others != 1 || tb.Left.Other < int64(400*ms) || tb.Left.Other > int64(600*ms) {
		t.Errorf("left out %+v", tb.Left)
	}
	if len(tb.Threads) != 2 || len(tb.Funcs) != 3 {
		t.Errorf("threads %+v, functions %+v", tb.Threads, tb.Funcs)
	}
	if f := find(t, tb, "f6"); f.Self.Wall != int64(1000*ms) {
		t.Errorf("the reader has %+v", f)
	}
	var out strings.Builder
	if err := tb.WriteText(&out, &Head{PID: 11}, &Layout{}); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "3 threads") || !strings.Contains(s, "left out: 1 idle thread, 1.00 s, and idle waits of 1 other thread, ") ||
		!strings.Contains(s, "; --idle shows them") {
		t.Error(s)
	}
	m.ShowIdle(true)
	tb = m.Table(base+5000*ms, names)
	if tb.Left.Any() || len(tb.Threads) != 3 || find(t, tb, "f5").Self.Wall != int64(1000*ms) {
		t.Errorf("with idle ones: left out %+v, threads %+v, functions %+v", tb.Left, tb.Threads, tb.Funcs)
	}
}

// The threads of a pool are idle for 99.5 % of the time each. Together they use half of a CPU, which the head and the
// process have although no row does.
func TestIdlePoolCPU(t *testing.T) {
	names := fake{map[int]trace.Wait{2: {Call: "futex", Kind: "idle"}}}
	m := New(time.Second)
	const base = 10_000 * ms
	for i := range 100 {
		r := thread(m, stack.TID(12+i), "pool")
		for at := base; at <= base+5000*ms; at += 10 * ms {
			r.sample(at, stack.StateBlocked, 50_000, 4, 5)
			r.event(at, event.Wait, 2)
		}
		r.flush()
	}
	tb := m.Table(base+5000*ms, names)
	if tb.Left.Threads != 100 || len(tb.Threads) != 0 || tb.CPU() != int64(500*ms) {
		t.Errorf("left out %+v, threads %+v, %d ns of CPU", tb.Left, tb.Threads, tb.CPU())
	}
	var all Table
	all.Merge(tb, Process{PID: 7, Comm: "pool"}, func(seq int) int { return seq })
	if all.CPU() != tb.CPU() || all.Processes[0].CPU != tb.CPU() || all.Processes[0].Wall != 0 {
		t.Errorf("merged: %d ns of CPU, %+v", all.CPU(), all.Processes)
	}
	var out strings.Builder
	if err := tb.WriteText(&out, &Head{PID: 7, Comm: "pool"}, &Layout{}); err != nil || !strings.HasPrefix(out.String(), "PID 7 (pool): 100 threads, CPU 50.0%") {
		t.Errorf("%v: %s", err, out.String())
	}
}
