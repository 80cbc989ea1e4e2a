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

// TestSwitches: Perfetto's own reader finds exact states with what ended them (a thread of the process, one of
// another, a timer) and the kernel's functions in which the thread waited.
func TestSwitches(t *testing.T) {
	b := exporttest.New(t)
	b.Thread(1235, "writer").Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1"})
	th := b.Thread(1236, "reader")
	for at := int64(0); at <= 100*ms; at += 10 * ms {
		th.Look(exporttest.Look{At: at, State: stack.StateRunning, Stack: "main:1"})
	}
	b.Off(1236, 12*ms, 14*ms, 15*ms, trace.Waker{TID: 1235, PID: 1234}, 0)
	b.Off(1236, 32*ms, 34*ms, 35*ms, trace.Waker{TID: 77, PID: 77, Name: "other"}, 0)
	b.KernelStack("schedule", "pipe_read", "vfs_read")
	b.Off(1236, 52*ms, 54*ms, 55*ms, trace.Waker{}, event.ByHard|event.ByTimer)
	b.Off(1236, 200*ms, 201*ms, 202*ms, trace.Waker{}, 0)
	rows := exporttest.Ask(t, export(t, b.Finish(100*ms), view.Options{}),
		`select s.name, s.ts - 5000000000 ts, s.dur, extract_arg(s.arg_set_id, 'debug.woken_by') woken, extract_arg(s.arg_set_id, 'debug.kernel_stack') kernel, extract_arg(s.arg_set_id, 'debug.cpu_us') cpu, extract_arg(s.arg_set_id, 'debug.runnable_us') delay
			from slice s join thread_track k on k.id = s.track_id join thread t using (utid) where k.name = 'state' and s.depth = 0 and t.name = 'reader' and s.ts >= 5010000000 order by ts`,
		`select count(*) n from stats where severity in ('data_loss', 'error') and value > 0`)
	want := []string{
		"map[cpu:<nil> delay:<nil> dur:2000000 kernel:<nil> name:blocked ts:12000000 woken:writer (1235) (measured)]",
		"map[cpu:<nil> delay:1000 dur:1000000 kernel:<nil> name:runnable ts:14000000 woken:<nil>]",
		"map[cpu:17000 delay:<nil> dur:17000000 kernel:<nil> name:running ts:15000000 woken:<nil>]",
		"map[cpu:<nil> delay:<nil> dur:2000000 kernel:vfs_read;pipe_read;schedule name:blocked ts:32000000 woken:process other (77) (measured)]",
		"map[cpu:<nil> delay:1000 dur:1000000 kernel:<nil> name:runnable ts:34000000 woken:<nil>]",
		"map[cpu:17000 delay:<nil> dur:17000000 kernel:<nil> name:running ts:35000000 woken:<nil>]",
		"map[cpu:<nil> delay:<nil> dur:2000000 kernel:<nil> name:blocked ts:52000000 woken:a timer (measured)]",
		"map[cpu:<nil> delay:1000 dur:1000000 kernel:<nil> name:runnable ts:54000000 woken:<nil>]",
		"map[cpu:45000 delay:<nil> dur:45000000 kernel:<nil> name:running ts:55000000 woken:<nil>]",
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
