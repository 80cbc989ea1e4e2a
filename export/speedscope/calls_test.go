package speedscope

import (
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
)

// TestTracedCalls: the profile has each traced call once, inside its caller, and every other function and wait for as
// long as without tracing.
func TestTracedCalls(t *testing.T) {
	record := func(calls bool) []exporttest.Call {
		rec := exporttest.Traced(t, calls)
		b, f := export(t, rec, view.Options{})
		validate(t, b)
		return read(t, f, rec, int64(exporttest.Start))
	}
	exporttest.OnceTraced(t, record(true), record(false))
}
