package trace

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// stacksOf returns the stacks of a thread at each multiple of 1000 ns in a range.
func stacksOf(rec *Recording, seq int, from, to stack.Time) map[stack.Time]string {
	out := map[stack.Time]string{}
	s := NewSlices(NewNames(rec), discard{})
	at := from
	say := func(t stack.Time) {
		for ; at < t && at <= to; at += 1000 {
			w := []event.Word{}
			for _, f := range s.Real() {
				w = append(w, f.Word)
			}
			out[at] = fmt.Sprint(w)
		}
	}
	for e := range rec.Events(seq) {
		if e.Time >= from {
			say(e.Time)
		}
		s.Apply(e)
	}
	say(to + 1)
	return out
}

// TestCut: a part has the stacks of the whole recording, and nothing outside the range.
func TestCut(t *testing.T) {
	const n = 3000
	b, _ := record(t, n, true)
	whole := open(t, b)
	for _, p := range []Part{{}, {From: 500_000}, {To: 700_000}, {From: 1_200_000, To: 1_900_000, Threads: []int{1}}, {From: 2_999_500}} {
		var w bytes.Buffer
		if err := Cut(&w, whole, p); err != nil {
			t.Fatal(err)
		}
		part := open(t, w.Bytes())
		if part.End == nil || part.Symbols == nil || len(part.Modules) != len(whole.Modules) || part.Process.PID != 42 || len(part.Problems) > 0 {
			t.Fatalf("%+v: opened as %+v", p, part)
		}
		if len(p.Threads) > 0 && (len(part.Threads) != 1 || part.Threads[0].Seq != 1) {
			t.Errorf("%+v: threads %+v", p, part.Threads)
		}
		from, to := max(p.From, 1000), p.To
		if to == 0 {
			to = 1000 * n
		}
		for _, th := range part.Threads {
			want, got := stacksOf(whole, th.Seq, from, to), stacksOf(part, th.Seq, from, to)
			if len(want) == 0 || fmt.Sprint(want) != fmt.Sprint(got) {
				t.Errorf("%+v: thread %d: stacks differ: %d and %d", p, th.Seq, len(want), len(got))
			}
			first := true
			for e := range part.Events(th.Seq) {
				if first && p.From > 0 && e.Time != p.From {
					t.Errorf("%+v: begins at %d", p, e.Time)
				}
				first = false
				if e.Time > to+1000 {
					t.Errorf("%+v: an event at %d", p, e.Time)
				}
			}
		}
	}
}

// TestCutOfGrowing cuts a recording that is still being written.
func TestCutOfGrowing(t *testing.T) {
	b, _ := record(t, 400, false)
	var w bytes.Buffer
	if err := Cut(&w, open(t, b), Part{Reason: "kept"}); err != nil {
		t.Fatal(err)
	}
	part := open(t, w.Bytes())
	if part.End == nil || part.End.Reason != "kept" {
		t.Errorf("end %+v", part.End)
	}
}
