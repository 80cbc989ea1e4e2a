package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session"
)

// TestTraceWithSwitches: with context switches the times of each traced call are exact and add up to its duration, and
// calls that slept have about that time off the CPUs, ended by a timer.
func TestTraceWithSwitches(t *testing.T) {
	testprog.Whole(t, "TestRecordKernel has the switches, and TestExactSlices the calls")
	if why := session.TrySwitches(); why != "" {
		testprog.Missing(t, "bpf", why)
	}
	dir := t.TempDir()
	truth, _ := recordEdges(t, dir, "--kernel=on", "-i", "10ms")
	// Of later calls than the last sample the states are not known.
	r := sliver(t, dir, "sql", "--format", "json", "run.sliver", `select * from (select row_number() over (order by ts) - 1 n, ts + dur leave, dur, on_cpu, runnable, off_cpu, times_exact, woken_by from calls)
		where leave < (select max(ts) from samples) order by n`)
	var calls []struct {
		N, Dur   int64
		OnCPU    int64 `json:"on_cpu"`
		Runnable int64
		OffCPU   int64   `json:"off_cpu"`
		Exact    *int64  `json:"times_exact"`
		Woken    *string `json:"woken_by"`
	}
	if err := json.Unmarshal([]byte(r.out), &calls); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	const sleep, most = 300_000, 50_000 // ns that every fifth call asks for; from the timer's start until the thread is off its CPU
	slept, sleeps, timer, waits := 0, 0, 0, 0
	for _, c := range calls {
		if c.Exact == nil || *c.Exact != 1 || c.OnCPU+c.Runnable+c.OffCPU != c.Dur {
			t.Errorf("call %d of %d: %+v", c.N, len(truth), c)
		}
		woken := c.Woken != nil
		switch byTimer := woken && strings.HasPrefix(*c.Woken, "a timer"); {
		case c.N%5 != 0:
			if c.OffCPU > sleep-most {
				waits++
			}
			if c.OffCPU == 0 && woken {
				t.Errorf("call %d had no wait: %+v, woken by %s", c.N, c, *c.Woken)
			}
		case byTimer:
			timer++
			fallthrough
		default:
			sleeps++
			if c.OffCPU >= sleep-most {
				slept++
			}
		}
	}
	t.Logf("%d calls of %d; of %d that slept %d have that time and %d the timer; %d others have waits of that length", len(calls), len(truth), sleeps, slept, timer, waits)
	// A thread that loses its CPU just before it sleeps may not sleep, and a stop for a sample is a wait as well.
	if len(calls) < len(truth)/2 || slept*10 < sleeps*9 || timer*10 < sleeps*9 || waits*10 > len(calls) {
		t.Errorf("%d calls of %d; of %d that slept %d have that time and %d the timer; %d others have waits of that length", len(calls), len(truth), sleeps, slept, timer, waits)
	}
}
