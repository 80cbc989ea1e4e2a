package naming

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// broken provides the files of modules, of which one panics.
type broken struct{}

func (broken) Open(int, *trace.Module) (io.ReaderAt, io.Closer, error) { panic("frob") }

// A panic over one file must cost its names, and must be reported.
func TestPanic(t *testing.T) {
	var b bytes.Buffer
	w, err := trace.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(w.Process(trace.Process{PID: 7, Arch: "amd64"}))
	check(w.Thread(trace.Thread{TID: 7, Main: true}))
	mod := []trace.Module{{Path: "/lib/frob.so", Segments: []trace.Segment{{Size: 0x1000}}}}
	check(w.Maps(trace.Maps{Mappings: []trace.Mapping{{Start: 0x1000, End: 0x2000}}}, 0, mod))
	frame := stack.Frame{PC: 0x1008, Func: 0x1000, Exact: true}
	check(w.Events(0, []event.Event{event.Make(110, event.Sync, 0), event.Make(120, event.Enter, uint64(event.WordOf(&frame)))}))
	check(w.End(trace.End{At: 300}))
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	check(err)
	sym, problems := Symbols(rec, broken{}, Options{})
	if sym == nil || len(problems) != 1 || !strings.Contains(problems[0], "no names for /lib/frob.so: panic: frob") {
		t.Errorf("%v, %q", sym, problems)
	}
}
