package perfetto

import (
	"fmt"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
)

// TestProcesses: Perfetto's own reader finds each process with its threads, calls and callstack
// samples, and mixes none of them.
func TestProcesses(t *testing.T) {
	rec := exporttest.Several(t)
	second := rec.Others[0]
	rows := exporttest.Ask(t, export(t, rec, view.Options{}), calls,
		`select pid, p.name as process, count(distinct tid) as threads from process p join thread t using (upid) where pid > 0 group by 1, 2 order by pid`,
		`select pid, count(*) as n, sum(case when f.name = 'only_here' then 1 else 0 end) as here from perf_sample s join thread using (utid) join process using (upid)
			join stack_profile_callsite c on c.id = s.callsite_id join stack_profile_frame f on f.id = c.frame_id group by 1 order by pid`,
		`select value from stats where name in ('track_event_tokenizer_errors', 'tokenizer_skipped_packets', 'interned_data_tokenizer_errors')`)
	var first, other []exporttest.Row
	for _, r := range rows[0] {
		if r.Int("tid") == 900 {
			other = append(other, r)
		} else {
			first = append(first, r)
		}
	}
	exporttest.Match(t, exporttest.Calls(rec), read(rec, first))
	exporttest.Match(t, exporttest.Calls(second), read(second, other))
	var got string
	for _, r := range rows[1] {
		got += fmt.Sprintf("%d %s %d\n", r.Int("pid"), r.Text("process"), r.Int("threads"))
	}
	want := fmt.Sprintf("900 worker 1\n%d %s %d\n", rec.Process.PID, rec.Process.Comm, len(rec.Threads))
	if rec.Process.PID < 900 {
		want = fmt.Sprintf("%d %s %d\n900 worker 1\n", rec.Process.PID, rec.Process.Comm, len(rec.Threads))
	}
	if got != want {
		t.Errorf("processes\n%swant\n%s", got, want)
	}
	if len(rows[2]) != 2 {
		t.Errorf("callstack samples of %d processes, want 2", len(rows[2]))
	}
	for _, r := range rows[2] {
		if own := r.Int("pid") == 900; own != (r.Int("here") == r.Int("n")) || !own && r.Int("here") > 0 || r.Int("n") == 0 {
			t.Errorf("process %d: %d samples, %d in only_here", r.Int("pid"), r.Int("n"), r.Int("here"))
		}
	}
	for _, r := range rows[3] {
		if r.Int("value") != 0 {
			t.Error("Perfetto's reader reports damage")
		}
	}
}
