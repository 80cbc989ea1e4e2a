package nanoscope

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
)

// TestTracedCalls: the traces have each traced call once, inside its caller, every other function for as long as without
// tracing, and the same states.
func TestTracedCalls(t *testing.T) {
	record := func(calls bool) (out []exporttest.Call, states string) {
		rec := exporttest.Traced(t, calls)
		var b strings.Builder
		for i := range rec.Threads {
			v, text := export(t, rec, view.Options{}, i)
			found := read(t, text, i, v.Begin())
			if n := lint(t, text); n != len(found) {
				t.Errorf("lint found %d calls, want %d", n, len(found))
			}
			out = append(out, found...)
			if err := WriteStates(&b, v, &v.Threads[i]); err != nil {
				t.Fatal(err)
			}
		}
		return out, b.String()
	}
	with, states := record(true)
	without, plain := record(false)
	exporttest.OnceTraced(t, with, without)
	if states != plain || strings.Count(states, "\n") < 3 {
		t.Errorf("states\n%swithout calls\n%s", states, plain)
	}
}
