package firefox

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	exact "github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

// TestTracedCalls: Mozilla's loader finds each traced call as a marker of its thread, and the samples are as
// without tracing.
func TestTracedCalls(t *testing.T) {
	const ms = exporttest.Ms
	record := func(traced bool) ([]byte, *file) {
		b := exporttest.New(t)
		for i, name := range []string{"main", "worker"} {
			th := b.Thread(1234+i, name)
			for at := int64(0); at <= 100*ms; at += 10 * ms {
				th.Look(exporttest.Look{At: at, State: stack.StateRunning, Stack: "main:1 serve:2 handle:3"})
			}
		}
		if traced {
			b.Exact(1235, "libparse", "handle:3", 12*ms, 12*ms+500_000, exact.Returned)
			b.Exact(1235, "handle", "serve:2", 11*ms, 29*ms, exact.Left)
			b.Exact(99, "handle", "serve:2", 80*ms, 81*ms, exact.Jumped)
		}
		return export(t, b.Finish(100*ms), view.Options{})
	}
	data, f := record(true)
	ask := exporttest.Firefox(t, exporttest.File(t, "x.firefox.json.gz", data))
	got := ""
	for i := range f.Threads {
		var m struct {
			FlatMarkers []struct {
				Name, Label     string
				Start, Duration float64
			}
		}
		if err := json.Unmarshal(ask("thread", "markers", "--list", "--thread", fmt.Sprintf("t-%d", i)), &m); err != nil {
			t.Fatal(err)
		}
		for _, x := range m.FlatMarkers {
			got += fmt.Sprintf("%s %s %q %.2f+%.2f; ", f.Threads[i].Name, x.Name, x.Label, x.Start, x.Duration)
		}
	}
	if want := `main Call "handle" 80.00+1.00; worker Call "handle" 11.00+18.00; worker Call "libparse" 12.00+0.50; `; got != want {
		t.Errorf("markers %s\nwant %s", got, want)
	}
	want := map[string]string{"type": "Call", "function": "handle", "ended": "tail call", "caller": "serve", "module": "/opt/app/server", "thread": "thread 99"}
	if d := f.Threads[0].Markers.Data; len(d) != 1 || !reflect.DeepEqual(d[0], want) {
		t.Errorf("%v, want %v", d, want)
	}
	_, without := record(false)
	for i := range f.Threads {
		if !reflect.DeepEqual(f.Threads[i].Samples, without.Threads[i].Samples) {
			t.Errorf("samples of %s differ", f.Threads[i].Name)
		}
	}
}
