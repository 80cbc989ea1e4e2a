package flame

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
)

// TestTracedCalls: the boxes are those of the samples, also if calls were traced.
func TestTracedCalls(t *testing.T) {
	with, _ := export(t, exporttest.Traced(t, true), view.Options{})
	without, p := export(t, exporttest.Traced(t, false), view.Options{})
	if with != without || len(p.Boxes) != 9 || !strings.Contains(without, "libparse") { // two threads and their functions
		t.Errorf("%d boxes\n%s\nwithout calls\n%s", len(p.Boxes), with, without)
	}
}
