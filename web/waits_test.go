package web_test

import (
	"bytes"
	"testing"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
)

// TestWaitsAlike: equal waits are one line of the table, although each has its own
// description in the recording, with its own timeout.
func TestWaitsAlike(t *testing.T) {
	const ms = 1_000_000
	const t0 = stack.Time(1_000_000_000_000)
	p := synth.New(1, t0, ms)
	var b bytes.Buffer
	tw, err := trace.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	d := p.Describe(0, t0)
	if err := tw.Process(p.Proc); err != nil {
		t.Fatal(err)
	}
	if err := tw.Thread(d); err != nil {
		t.Fatal(err)
	}
	var df diff.Differ
	es := df.Event(t0, event.Rate, ms, nil)
	var waits []trace.Wait
	for i := range 20 {
		at := t0 + stack.Time(i*10*ms)
		x := stack.Sample{Time: at, Begin: at, State: stack.StateBlocked, Call: stack.Call{Nr: 202}, Way: stack.WayRead, Switches: uint64(i),
			Stack: []stack.Frame{{Func: 0x1000, PC: 0x1000, CFA: 0x7000, Trust: stack.TrustCFI}}}
		es = df.Step(&x, es)
		w := trace.Wait{ID: i + 1, Call: "futex", Args: "GIL at 0x10", Kind: "lock", Timeout: int64(i+1) * 1000}
		addr := uint64(0x10)
		if i%2 == 1 { // a sleep in between, without a lock
			w.Args, w.Kind, addr = "Thread.sleep", "", 0
		}
		waits = append(waits, w)
		es = df.Event(at, event.Wait, uint64(w.ID), es)
		es = df.Event(at, event.Lock, addr, es)
	}
	es = df.End(t0+200*ms, stack.WhyGone, df.Flush(es))
	if err := tw.Events(0, es); err != nil {
		t.Fatal(err)
	}
	if err := tw.Waits(waits); err != nil {
		t.Fatal(err)
	}
	if err := tw.End(trace.End{At: t0 + 200*ms, Reason: "duration"}); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, web.Options{Source: web.NewRecording(rec)})
	loaded(t, s)
	var got []struct {
		Kind, Wait string
		Count      int
		Total, Max int64
	}
	if err := dial(t, s).Ask(t.Context(), client.Query{Op: "waits"}, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	for _, w := range got {
		if w.Count != 10 || w.Total != 100*ms || w.Max != 10*ms || (w.Kind == "call" && w.Wait != "futex(Thread.sleep)") {
			t.Errorf("%+v", w)
		}
	}
}
