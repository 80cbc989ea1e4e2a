package trace

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// TestBorrow: a section without the image of its vDSO has that of the first section, if both have the same vDSO.
func TestBorrow(t *testing.T) {
	f, all, first := newSections(t)
	for i, c := range []struct{ id, own string }{{"a", "image a"}, {"a", ""}, {"a", "own image"}, {"b", ""}, {"", ""}} {
		p := first
		if i > 0 {
			p = all.Add()
		}
		w := p.Writer()
		err := w.Process(Process{PID: 10 + i, Interval: 1000})
		if err == nil {
			err = w.Maps(Maps{}, 0, []Module{{Path: "[vdso]", BuildID: c.id}})
		}
		if err == nil {
			err = w.Thread(Thread{TID: stack.TID(10 + i), Since: 1})
		}
		if err == nil && c.own != "" {
			err = w.Captured(Captured{What: VDSO, Data: []byte(c.own)})
		}
		if err == nil {
			err = w.Events(0, []event.Event{event.Make(1, event.Rate, 1000)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	rec, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	check := func(rec *Recording) {
		t.Helper()
		for i, want := range []string{"image a", "image a", "own image", "", ""} {
			got := ""
			for _, c := range rec.All()[i].Captured {
				got += string(c.Data)
			}
			if got != want {
				t.Errorf("process %d has %q, want %q", i, got, want)
			}
		}
	}
	check(rec)
	for name, write := range map[string]func(io.Writer, *Recording) error{"copy": Copy, "cut": func(w io.Writer, rec *Recording) error { return Cut(w, rec, Part{}) }} {
		var out bytes.Buffer
		if err := write(&out, rec); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := Open(bytes.NewReader(out.Bytes()), int64(out.Len()))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		check(again)
	}
}
