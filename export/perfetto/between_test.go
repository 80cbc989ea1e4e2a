package perfetto

import (
	"fmt"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Arrows lead from the end of a child, and from the writer of a pipe, to the end of the wait of another process.
func TestArrowsBetween(t *testing.T) {
	b := exporttest.New(t)
	b.Proc.PID, b.Proc.Comm = 10, "sh"
	th := b.Thread(10, "sh main")
	th.Look(exporttest.Look{State: stack.StateRunning, Times: 1, Stack: "main work"})
	for i, w := range []trace.Wait{{Kind: "pipe", Call: "read", File: "pipe", PeerPID: 12}, {Kind: "child", Call: "wait4", Args: "any child"}} {
		from := int64(100*(i+1)) * ms
		blocked := exporttest.Look{At: from, Times: uint64(2*i + 2), State: stack.StateBlocked, Call: 62, Way: stack.WayRead, Stack: "main work"}
		th.Look(blocked)
		th.Event(from, event.Wait, b.Wait(w))
		blocked.At, blocked.Way = from+50*ms, stack.WayUnrun
		th.Look(blocked)
		th.Look(exporttest.Look{At: from + 60*ms, Times: uint64(2*i + 3), State: stack.StateRunning, Stack: "main work"})
	}
	th.End(300*ms, stack.WhyGone)
	rec := b.Finish(300 * ms)
	other := func(pid int, gone int64) *trace.Recording {
		b := exporttest.New(t)
		b.Proc.PID, b.Proc.Parent, b.Proc.Comm, b.Proc.StartTime = pid, 10, "cc", exporttest.Start
		th := b.Thread(pid, fmt.Sprintf("cc %d", pid))
		th.Look(exporttest.Look{State: stack.StateRunning, Stack: "main work"})
		th.End(gone-5*ms, stack.WhyGone)
		one := b.Finish(gone)
		one.End.Gone = exporttest.Start + stack.Time(gone)
		return one
	}
	rec.Others = []*trace.Recording{other(11, 255*ms), other(12, 300*ms)}
	rows := exporttest.Ask(t, export(t, rec, view.Options{}),
		`select ot.name from_thread, o.name from_mark, (o.ts - 5000000000) / 1000000 from_ms, it.name to_thread, i.name to_mark, (i.ts - 5000000000) / 1000000 to_ms
			from flow f join slice o on o.id = f.slice_out join slice i on i.id = f.slice_in
			join thread_track ok on ok.id = o.track_id join thread ot on ot.utid = ok.utid
			join thread_track ik on ik.id = i.track_id join thread it on it.utid = ik.utid order by to_ms`,
		`select extract_arg(arg_set_id, 'debug.waits_for') waits_for, extract_arg(arg_set_id, 'debug.woken_by') woken_by from slice where extract_arg(arg_set_id, 'debug.waits_for') is not null order by ts`,
		`select value from stats where name in ('track_event_tokenizer_errors', 'tokenizer_skipped_packets', 'interned_data_tokenizer_errors', 'flow_duplicate_id', 'flow_no_enclosing_slice', 'flow_end_without_start')`)
	for i, want := range []string{
		"[map[from_mark:wakes sh (10) from_ms:159 from_thread:cc 12 to_mark:woken by cc (12) to_ms:160 to_thread:sh main] " +
			"map[from_mark:ended: sh (10) waited for it from_ms:255 from_thread:cc 11 to_mark:woken by cc (11) ended to_ms:260 to_thread:sh main]]",
		"[map[waits_for:cc (12) woken_by:cc (12)] map[waits_for:cc (11), cc (12) woken_by:cc (11) ended]]",
	} {
		if got := fmt.Sprint(rows[i]); got != want {
			t.Errorf("answer %d\n%s\nwant\n%s", i, got, want)
		}
	}
	for _, r := range rows[2] {
		if r.Int("value") != 0 {
			t.Error("Perfetto's reader reports damage")
		}
	}
}
