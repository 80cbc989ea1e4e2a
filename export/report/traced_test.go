package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// tracedRecording has two threads, of which one was not sampled, and calls of 1 to 1000 µs.
func tracedRecording(t *testing.T) *trace.Recording {
	t.Helper()
	var b bytes.Buffer
	w, err := trace.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	var cs []calls.Call
	for i := range 1000 {
		c := calls.Call{TID: stack.TID(7 + i%2), Enter: stack.Time(1e9 + i*1e6), CFA: 64}
		c.Exit = c.Enter + stack.Time(1+i)*1000
		cs = append(cs, c)
	}
	cs = append(cs, calls.Call{Fn: 1, TID: 7, Enter: 5e8, Exit: 1e9, Before: true}, calls.Call{Fn: 1, TID: 7, Enter: 1e9, Exit: 2e9, How: calls.Left},
		calls.Call{Fn: 1, TID: 7, Enter: 1e9, Exit: 2e9, How: calls.Open})
	tr := &trace.Traced{Engine: "cpu", Lost: 3, Functions: []trace.TracedFunction{{Name: "handle", File: "/src/a.c", Line: 9, Calls: 5000}, {Name: "odd", Hot: 1e5, Since: 5e8}}}
	for _, err := range []error{w.Process(trace.Process{PID: 7, Comm: "x"}), w.Thread(trace.Thread{TID: 7, Name: "x", Since: 4e8}), w.Thread(trace.Thread{TID: 9, Seq: 1, Since: 4e8}), w.Traced(tr), w.Calls(cs),
		w.End(trace.End{At: 3e9, Reason: "duration"})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestTracedFunctions(t *testing.T) {
	rec := tracedRecording(t)
	r := Of(rec, view.Options{}, 0)
	if len(r.Traced) != 2 || r.Traced[0].Name != "handle" {
		t.Fatalf("%+v", r.Traced)
	}
	x := r.Traced[0]
	near := func(got, want int64) bool { return got >= want && float64(got) < 1.04*float64(want) }
	if x.Calls != 1000 || x.All != 5000 || x.Total != 1000*1001/2*1000 || x.Max != 1_000_000 || !near(x.P50, 500_000) || !near(x.P90, 900_000) || !near(x.P99, 990_000) {
		t.Errorf("%+v", x)
	}
	var sum uint64
	for _, b := range x.Histogram {
		sum += b.Calls
	}
	if sum != 1000 || len(x.Histogram) != 11 {
		t.Errorf("histogram of %d calls: %+v", sum, x.Histogram)
	}
	if y := r.Traced[1]; y.Calls != 3 || y.Before != 1 || y.Left != 1 || y.Open != 1 || y.Total != 0 {
		t.Errorf("%+v", y)
	}
	if n := len(x.Slowest); n != maxSlowest || x.Slowest[0].Duration != 1_000_000 || x.Slowest[n-1].Duration != int64(1000-maxSlowest+1)*1000 || x.Slowest[0].At != 1e9+999e6-4e8 {
		t.Errorf("slowest: %+v", x.Slowest)
	}
	if x.Timed != 0 || x.Slowest[0].CPU != nil {
		t.Errorf("without samples, times are known: %+v", x)
	}
	losses := strings.Join(r.Losses, "\n")
	if !strings.Contains(losses, "3 entries and exits of traced functions lost") || !strings.Contains(losses, "odd no longer traced: 100000 entries") ||
		!strings.Contains(losses, "1 traced function of files that were loaded later") {
		t.Error(losses)
	}
	var text, page, js bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{text.String(), page.String()} {
		if !strings.Contains(out, "handle") || !strings.Contains(out, "a.c:9") {
			t.Errorf("not shown: %.3000s", out)
		}
	}
	var back Report
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || len(back.Traced) != 2 {
		t.Error(err)
	}
	// A part has fewer calls, and those of the thread that was chosen alone.
	r = Of(rec, view.Options{From: 1e9 + 100e6, To: 1e9 + 199e6, Threads: []int{0}}, 0)
	if n := r.Traced[0].Calls; n < 40 || n > 60 {
		t.Errorf("%d calls in a tenth of one thread", n)
	}
}

// TestTracedTimes: a function's calls have their times on and off the CPUs, and the slowest one says what it waited for.
func TestTracedTimes(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	th := b.Thread(1235, "worker")
	for at := int64(0); at <= 100*ms; at += 10 * ms {
		th.Look(exporttest.Look{At: at, CPU: at, State: stack.StateRunning, Stack: "main:1"})
	}
	b.Off(1235, 1*ms, 1*ms, 1*ms, trace.Waker{}, 0)
	b.Off(1235, 10*ms, 12*ms, 13*ms, trace.Waker{TID: 77, PID: 1234}, 0)
	b.Off(1235, 200*ms, 201*ms, 202*ms, trace.Waker{}, 0)
	b.Exact(1235, "handle", "main:1", 9*ms, 14*ms, calls.Returned)
	b.Exact(1235, "handle", "main:1", 20*ms, 21*ms, calls.Returned)
	b.Exact(1235, "handle", "main:1", 22*ms, 29*ms, calls.Left)
	r := Of(b.Finish(100*ms), view.Options{}, 0)
	if len(r.Traced) != 1 {
		t.Fatalf("%+v", r.Traced)
	}
	x := &r.Traced[0]
	if x.CPU != 3*ms || x.Delay != 1*ms || x.Off != 2*ms || x.Timed != 2 || !x.Exact || len(x.Slowest) != 2 {
		t.Errorf("%+v", x)
	}
	if c := &x.Slowest[0]; c.Duration != 5*ms || c.CPU == nil || *c.CPU != 2*ms || *c.Delay != 1*ms || *c.Off != 2*ms || !strings.Contains(c.Woken, "77") || c.Caller != "main" || c.Thread != "worker" {
		t.Errorf("%+v", c)
	}
	var text, page bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "Slowest calls of handle\n") || !strings.Contains(page.String(), "<tr><td>9.00ms<td>5.00ms<td>2.00ms<td>1.00ms<td>2.00ms<td class=\"w\">main<") {
		t.Errorf("%s\n%s", text.String(), page.String())
	}
}

// Times that are not known are null in JSON: a function's calls may all have been left by longjmp.
func TestTracedUnknown(t *testing.T) {
	for _, c := range []struct {
		x           Traced
		times, cpus string
	}{
		{Traced{}, "null", "null"},
		{Traced{Histogram: []Bucket{{}}}, "0", "null"},
		{Traced{Histogram: []Bucket{{}}, Timed: 1}, "0", "0"},
	} {
		b, err := json.Marshal(&Report{Traced: []Traced{c.x}})
		var r struct{ Traced []map[string]json.RawMessage }
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil || len(r.Traced) != 1 {
			t.Fatalf("%v: %s", err, b)
		}
		for field, want := range map[string]string{"total_ns": c.times, "mean_ns": c.times, "p50_ns": c.times, "p999_ns": c.times, "max_ns": c.times,
			"on_cpu_ns": c.cpus, "runnable_ns": c.cpus, "off_cpu_ns": c.cpus, "calls": "0"} {
			if got := string(r.Traced[0][field]); got != want {
				t.Errorf("%+v: %s is %q, want %s", c.x, field, got, want)
			}
		}
	}
}
