package trace

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Since keeps the events that a replay from t on needs, and little more.
func TestSince(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Process(Process{PID: 1}); err != nil {
		t.Fatal(err)
	}
	if err := w.Thread(Thread{TID: 1}); err != nil {
		t.Fatal(err)
	}
	at := stack.Time(1)
	for chunk := range 20 { // every fourth begins with a Sync
		var es []event.Event
		if chunk%4 == 0 {
			es = append(es, event.Make(at, event.Sync, 0))
		}
		for range 10 {
			es = append(es, event.Make(at, event.Enter, 0x1000), event.Make(at+1, event.Exit, 0))
			at += 10
		}
		if err := w.Events(0, es); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(rec.Events(0))
	for from := stack.Time(0); from < at+100; from += 37 {
		got := slices.Collect(rec.Since(from).Events(0))
		n := len(all) - len(got)
		if !slices.Equal(got, all[n:]) {
			t.Fatalf("from %d: not the end of all events", from)
		}
		if got[0].Kind() != event.Sync || from > 0 && got[0].Time > from {
			t.Errorf("from %d: it begins with %v at %d", from, got[0].Kind(), got[0].Time)
		}
		if from-got[0].Time > 500 && from < at {
			t.Errorf("from %d: it begins at %d", from, got[0].Time)
		}
	}
	if n := len(slices.Collect(rec.Events(0))); n != len(all) {
		t.Errorf("the recording itself has %d events now, had %d", n, len(all))
	}
}
