package collapsed

import (
	"io"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/trace"
)

// TestTracedCalls: the sums are those of the samples, also if calls were traced.
func TestTracedCalls(t *testing.T) {
	for name, write := range map[string]func(io.Writer, *trace.Recording, view.Options) error{"wall": Wall, "cpu": CPU, "off": Off} {
		with, without := export(t, exporttest.Traced(t, true), write), export(t, exporttest.Traced(t, false), write)
		if with != without || !strings.Contains(without, "server;main;serve") && !strings.Contains(without, "worker;start;work;libget") {
			t.Errorf("%s\n%swithout calls\n%s", name, with, without)
		}
	}
}
