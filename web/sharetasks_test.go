package web_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/page"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
)

// TestShareTasks compares the spans of tasks in a file with the table task_spans of SQL; times in the file
// are in units of 100 ns.
func TestShareTasks(t *testing.T) {
	const unit = 100
	rec := recording(t, synth.Options{Seed: 3, Threads: 4, Interval: 1_000_000, Samples: 1500, Tasks: 40})
	want := sqlSpans(t, rec)
	var b bytes.Buffer
	if err := page.Write(&b, rec, view.Options{}); err != nil {
		t.Fatal(err)
	}
	h, body := shareData(t, b.String())
	var groups []struct {
		What    string
		Idle    int
		More    int
		Len     int
		Reasons []string
		Stacks  [][]struct{ Name string }
		List    []struct {
			ID         uint64
			Ran, Ready int64
			Spans      int
			Seen       [][3]int64
		}
	}
	text, err := json.Marshal(h["tasks"])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &groups); err != nil || len(groups) != 1 {
		t.Fatalf("%d groups: %v", len(groups), err)
	}
	tasks := groups[0]
	if tasks.What != "goroutine" || tasks.Idle != 3 || tasks.More != 0 || len(tasks.List)+tasks.Idle != len(want) {
		t.Fatalf("%q: %d tasks, %d idle and %d more, want %d", tasks.What, len(tasks.List), tasks.Idle, tasks.More, len(want))
	}
	col := body[len(body)-tasks.Len:]
	next := func() int64 {
		v, n := binary.Uvarint(col)
		if n <= 0 {
			t.Fatal("the spans end early")
		}
		col = col[n:]
		return int64(v)
	}
	seen := 0
	for _, x := range tasks.List {
		if x.Spans != len(want[x.ID]) {
			t.Fatalf("task %d has %d spans, want %d", x.ID, x.Spans, len(want[x.ID]))
		}
		at := int64(0)
		for _, w := range want[x.ID] {
			at += next()
			from := at
			at += next()
			value, thread, reason := next(), next()-1, next()-1
			word := ""
			if reason >= 0 {
				word = tasks.Reasons[reason]
			}
			state := map[string]stack.State{"running": stack.StateRunning, "runnable": stack.StateRunnable, "waiting": stack.StateBlocked}[w.state]
			if from != w.ts/unit || at != (w.ts+w.dur)/unit || stack.State(value&0xff) != state || thread != w.thread || word != w.reason {
				t.Fatalf("task %d has a span from %d to %d, state %d, thread %d, %q, want %+v", x.ID, from, at, value, thread, word, w)
			}
		}
		for _, s := range x.Seen {
			seen++
			if st := tasks.Stacks[s[2]]; len(st) == 0 || st[0].Name == "" || tasks.Reasons[s[1]] == "" {
				t.Errorf("task %d was seen at %v in %v", x.ID, s, st)
			}
		}
	}
	if len(col) > 0 || seen == 0 {
		t.Errorf("%d bytes are left, %d waits were seen", len(col), seen)
	}
}

// answer is what a server answered to a query.
type answer struct {
	Query client.Query    `json:"query"`
	Value json.RawMessage `json:"value"`
}

// asked answers queries as a server of rec does.
func asked(t *testing.T, rec *trace.Recording, queries ...client.Query) (out []answer) {
	t.Helper()
	s := serve(t, web.Options{Source: web.NewRecording(rec)})
	loaded(t, s)
	c := dial(t, s)
	for _, q := range queries {
		a := answer{Query: q}
		if err := c.Ask(t.Context(), q, &a.Value); err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// compareShared opens a file of rec in a browser and compares what its page answers with what a server answers: see
// page/test/share.mjs.
func compareShared(t *testing.T, rec *trace.Recording, queries ...client.Query) {
	t.Helper()
	node := need(t, "node", "node")
	chromium := need(t, "chromium", "chromium", "chromium-browser", "google-chrome")
	folder := modules(t, "playwright-core")
	dir := t.TempDir()
	var b bytes.Buffer
	if err := page.Write(&b, rec, view.Options{}); err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(asked(t, rec, queries...))
	if err != nil {
		t.Fatal(err)
	}
	html, want := filepath.Join(dir, "run.html"), filepath.Join(dir, "answers.json")
	for path, data := range map[string][]byte{html: b.Bytes(), want: list} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pictures := os.Getenv("SLIVER_PICTURES")
	if pictures == "" {
		pictures = "-"
	}
	cmd := exec.CommandContext(t.Context(), node, filepath.Join("test", "share.mjs"), "-", chromium, pictures, html, want)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ok   ") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestShareAnswers compares locks, counters and tasks.
func TestShareAnswers(t *testing.T) {
	rec := recording(t, synth.Options{Seed: 2, Threads: 6, Interval: 1_000_000, Samples: 1000, Tasks: 40})
	var queries []client.Query
	for _, n := range []int{1, 7, 300} {
		queries = append(queries, client.Query{Op: "lanes", N: n}, client.Query{Op: "lanes", N: n, T0: 200e6, T1: 700e6})
	}
	queries = append(queries, client.Query{Op: "lanes", N: 50, Threads: []int{1, 2}})
	for _, mode := range []string{"", "wait"} {
		queries = append(queries, client.Query{Op: "tasks", Mode: mode}, client.Query{Op: "tasks", Mode: mode, From: 20, Max: 10, Bin: 1e6, T0: 200e6, T1: 700e6})
	}
	for _, id := range []uint64{4, 5, 7, 12, 30} {
		for _, at := range []float64{1000, 50e6, 333e6, 990e6} {
			queries = append(queries, client.Query{Op: "task", Task: id, At: at})
		}
	}
	queries = append(queries, client.Query{Op: "analysis", ByThread: true}, client.Query{Op: "analysis", T0: 200e6, T1: 700e6}, client.Query{Op: "analysis", T0: 100e6, T1: 900e6})
	compareShared(t, rec, queries...)
}

// TestShareAnswersSeveral compares what a page says of several processes.
func TestShareAnswersSeveral(t *testing.T) {
	compareShared(t, severalProcesses(t, 3), client.Query{Op: "processes"}, client.Query{Op: "arrows"}, client.Query{Op: "path"}, client.Query{Op: "lanes", N: 7}, client.Query{Op: "analysis", ByThread: true})
}

// TestShareTasksSeveral compares the tasks of each of several processes.
func TestShareTasksSeveral(t *testing.T) {
	rec := severalOf(t, synth.Options{Seed: 6, Threads: 4, Interval: 1_000_000, Samples: 900, Tasks: 30, Processes: 3})
	rec.Others[0].Tasks = nil // one without tasks in between
	queries := []client.Query{{Op: "tasks"}, {Op: "tasks", Mode: "wait"}, {Op: "task", Task: 12, At: 50e6}}
	for _, n := range []int{0, 1, 2} {
		for _, mode := range []string{"", "wait"} {
			queries = append(queries, client.Query{Op: "tasks", Process: &n, Mode: mode}, client.Query{Op: "tasks", Process: &n, Mode: mode, From: 5, Max: 10, Bin: 1e6, T0: 100e6, T1: 300e6})
		}
		for _, id := range []uint64{4, 7, 12} {
			if n != 1 {
				queries = append(queries, client.Query{Op: "task", Process: &n, Task: id, At: 50e6}, client.Query{Op: "task", Process: &n, Task: id, At: 290e6, Mode: "wait"})
			}
		}
	}
	compareShared(t, rec, queries...)
}

// TestShareFileSeveral checks the numbers of a file of several processes: those of a server.
func TestShareFileSeveral(t *testing.T) {
	rec := severalProcesses(t, 3)
	var b bytes.Buffer
	if err := page.Write(&b, rec, view.Options{}); err != nil {
		t.Fatal(err)
	}
	h, _ := shareData(t, b.String())
	var status, analysis map[string]any
	for i, a := range asked(t, rec, client.Query{Op: "status"}, client.Query{Op: "analysis"}) {
		if err := json.Unmarshal(a.Value, []any{&status, &analysis}[i]); err != nil {
			t.Fatal(err)
		}
	}
	threads := func(list any) map[string]bool {
		out := map[string]bool{}
		for _, x := range list.([]any) {
			m := x.(map[string]any)
			out[fmt.Sprint(m["seq"], m["tid"], m["process"], m["name"])] = true
		}
		return out
	}
	if got, want := threads(h["threads"]), threads(status["threads"]); len(want) != 9 || !reflect.DeepEqual(got, want) {
		t.Errorf("threads %v, want %v", got, want)
	}
	if got := h["analysis"]; !reflect.DeepEqual(got, any(analysis)) {
		t.Errorf("the analysis is %.2000s, want %.2000s", jsonOf(t, got), jsonOf(t, analysis))
	}
	if n := len(h["among"].(map[string]any)["processes"].([]any)); n != 3 {
		t.Errorf("%d processes", n)
	}
}

// TestNotesSeveral: a file and a server have the same notes of several processes: the sums, the processes left out, then
// the notes of each process.
func TestNotesSeveral(t *testing.T) {
	rec := severalProcesses(t, 3)
	for i, one := range rec.All() {
		one.Stats.Threads = []trace.ThreadStats{{Late: uint64(2 * i)}}
		one.Problems = nil
	}
	rec.Left = &trace.LeftOut{Seen: 4, Count: 1, Processes: []trace.LeftProcess{{PID: 9, Name: "brief", Why: "a reason"}}}
	rec.Others[1].Symbols, rec.Others[1].Problems = nil, []string{"offset 7: bad"}
	want := append([]string{"6 ticks late and left out"}, rec.Left.Lines()...)
	want = append(want, "worker2 (4442): damaged: offset 7: bad", "worker1 (4342): 2 ticks late and left out", "worker2 (4442): 4 ticks late and left out",
		"worker2 (4442): the recording holds no names: functions are shown as module+offset")
	if got := web.NewRecording(rec).Notes(); !slices.Equal(got, want) {
		t.Errorf("a server has %q, want %q", got, want)
	}
	var b bytes.Buffer
	if err := page.Write(&b, rec, view.Options{}); err != nil {
		t.Fatal(err)
	}
	h, _ := shareData(t, b.String())
	if got := jsonOf(t, h["notes"]); got != jsonOf(t, want) {
		t.Errorf("a file has %s, want %q", got, want)
	}
}
