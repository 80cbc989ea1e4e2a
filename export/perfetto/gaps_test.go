package perfetto

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
)

// Adjacent gaps with one reason become one slice. No two overlap, whatever lengths the recording gives,
// and none begins before the recording.
func TestGapsAreSlices(t *testing.T) {
	a := exporttest.Ask(t, export(t, exporttest.Gaps(t), view.Options{}),
		`select t.tid, (s.ts - 5000000000) / 1000000 ts, s.dur / 1000000 dur, s.depth, s.name, extract_arg(s.arg_set_id, 'debug.gaps') gaps,
			extract_arg(s.arg_set_id, 'debug.missing_ns') / 1000000 missing
			from slice s join thread_track k on k.id = s.track_id join thread t using (utid) where k.name = 'not seen' order by t.tid, s.ts`,
		`select count(*) n from slice s join thread_track k on k.id = s.track_id where s.name glob 'gap*' and k.name is null`)
	var got []string
	for _, r := range a[0] {
		got = append(got, fmt.Sprintf("%d %d+%d %d %s %d of %d", r.Int("tid"), r.Int("ts"), r.Int("dur"), r.Int("depth"), r.Text("name"), r.Int("gaps"), r.Int("missing")))
	}
	// The recording begins with its first tick, at 10 ms; a gap that is too long starts there.
	want := "1234 20+20 0 gap: late 2 of 20, 1234 50+10 0 gap: late 1 of 10, 1234 60+5 0 gap: denied 1 of 30, 1235 10+10 0 gap: late 1 of 70368744"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
	if n := a[1][0].Int("n"); n != 0 {
		t.Errorf("%d among the calls", n)
	}
}
