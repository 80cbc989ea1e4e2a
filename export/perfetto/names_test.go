package perfetto

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

// TestThreadNames: a thread that was renamed has a track with its names; others have none.
func TestThreadNames(t *testing.T) {
	b := exporttest.New(t)
	b.Thread(1234, "main").Look(exporttest.Look{State: stack.StateRunning, Stack: "main:1"})
	th := b.Thread(1235, "one")
	for at := int64(0); at <= 100; at += 10 {
		th.Look(exporttest.Look{At: at * ms, CPU: at * ms, State: stack.StateRunning, Stack: "main:1 work:2"})
	}
	th.Rename(30*ms, "two")
	th.Rename(70*ms, "one")
	a := exporttest.Ask(t, export(t, b.Finish(100*ms), view.Options{}),
		`select s.ts - 5000000000 ts, s.dur, s.name from slice s join track k on k.id = s.track_id where k.name = 'thread name' order by s.ts`)
	var got []string
	for _, r := range a[0] {
		got = append(got, fmt.Sprintf("%d+%d %s", r.Int("ts")/ms, r.Int("dur")/ms, r.Text("name")))
	}
	if want := "0+30 one, 30+40 two, 70+30 one"; strings.Join(got, ", ") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, ", "), want)
	}
}
