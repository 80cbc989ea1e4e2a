package perfetto

import (
	"fmt"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// TestIO: Perfetto's own reader finds operations on the track of their file, with their arguments, also
// where those of two threads overlap, and the findings.
func TestIO(t *testing.T) {
	b := exporttest.New(t)
	for i, name := range []string{"main", "worker"} {
		th := b.Thread(1234+i, name)
		th.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1"})
		th.Look(exporttest.Look{At: 100 * ms, State: stack.StateRunning, Stack: "main:1"})
	}
	b.Op(1234, iowatch.OpOpen, "/etc/app.conf", 5*ms, 6*ms, 0, "open load main")
	b.Op(1234, iowatch.OpRead, "/etc/app.conf", 10*ms, 25*ms, 100, "read load main")
	b.Op(1235, iowatch.OpRead, "/etc/app.conf", 20*ms, 31*ms, 50, "")
	b.Op(1235, iowatch.OpWrite, "/var/log/app", 40*ms, 42*ms, 7, "")
	b.Op(1235, iowatch.OpClose, "/var/log/app", 43*ms, 44*ms, 0, "")
	b.Miss(1235, "/data", 50*ms, 52*ms, 7)
	b.Op(1235, iowatch.OpFault, "/lib/x.so", 60*ms, 61*ms, 0, "")
	b.Finding(1234, "/etc/app.conf", 31*ms, 15*ms, "open load main", "read load main")
	rows := exporttest.Ask(t, export(t, b.Finish(100*ms), view.Options{}),
		`select k.name track, s.name, s.ts - 5000000000 ts, s.dur, s.category cat, extract_arg(s.arg_set_id, 'debug.file') file, extract_arg(s.arg_set_id, 'debug.bytes') bytes,
			extract_arg(s.arg_set_id, 'debug.requested') want, extract_arg(s.arg_set_id, 'debug.fd') fd, extract_arg(s.arg_set_id, 'debug.thread') thread, extract_arg(s.arg_set_id, 'debug.page_cache') cache,
			replace(extract_arg(s.arg_set_id, 'debug.stack'), char(10), ' < ') stack
			from slice s join track k on k.id = s.track_id join track up on up.id = k.parent_id where up.name = 'I/O' order by ts`,
		`select count(*) n from stats where severity in ('data_loss', 'error') and value > 0`)
	want := []string{
		"map[bytes:<nil> cache:<nil> cat:io dur:1000000 fd:3 file:/etc/app.conf name:open stack:open (open.c:7) < load (load.c:7) < main (main.c:7) thread:main (1234) track:/etc/app.conf ts:5000000 want:<nil>]",
		"map[bytes:100 cache:<nil> cat:io dur:15000000 fd:3 file:/etc/app.conf name:read stack:read (read.c:7) < load (load.c:7) < main (main.c:7) thread:main (1234) track:/etc/app.conf ts:10000000 want:200]",
		"map[bytes:50 cache:<nil> cat:io dur:11000000 fd:3 file:/etc/app.conf name:read stack:<nil> thread:worker (1235) track:/etc/app.conf ts:20000000 want:100]",
		"map[bytes:<nil> cache:<nil> cat:io dur:0 fd:<nil> file:/etc/app.conf name:One operation on /etc/app.conf held the main thread: move it to another thread. " +
			"stack:read (read.c:7) < load (load.c:7) < main (main.c:7) thread:main (1234) track:findings ts:31000000 want:<nil>]",
		"map[bytes:7 cache:<nil> cat:io dur:2000000 fd:4 file:/var/log/app name:write stack:<nil> thread:worker (1235) track:/var/log/app ts:40000000 want:14]",
		"map[bytes:7 cache:missed cat:io dur:2000000 fd:5 file:/data name:read stack:<nil> thread:worker (1235) track:/data ts:50000000 want:14]",
		"map[bytes:<nil> cache:<nil> cat:io dur:1000000 fd:<nil> file:/lib/x.so name:fault stack:<nil> thread:worker (1235) track:/lib/x.so ts:60000000 want:<nil>]",
	}
	if len(rows[0]) != len(want) {
		t.Errorf("%d slices, want %d: %v", len(rows[0]), len(want), rows[0])
	}
	for i := range min(len(want), len(rows[0])) {
		if got := fmt.Sprint(rows[0][i]); got != want[i] {
			t.Errorf("slice %d\n%s\nwant\n%s", i, got, want[i])
		}
	}
	if rows[1][0].Int("n") != 0 {
		t.Error("Perfetto's reader reports losses or errors")
	}
}
