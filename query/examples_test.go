package query

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// recursive returns a recording of a thread that recurses for 4 s and then sleeps for 1 s, one waiting for a lock of the first, one that
// bakes, and a goroutine. Of the 4 s it was on a CPU for 3.9 s. By the account, the nap begins 10 ms before its first sample.
func recursive(t testing.TB) *trace.Recording {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	lock := b.Wait(trace.Wait{Call: "futex", Kind: "lock", Symbol: "cache_lock", Args: "mutex"})
	nap := b.Wait(trace.Wait{Call: "clock_nanosleep", Kind: "sleep", Args: "1s"})
	m := b.Thread(1234, "main")
	deep := [...]string{"main:1 fib:2", "main:1 fib:2 fib:3", "main:1 fib:2 fib:3 fib:3"}
	for i := range int64(401) {
		m.Look(exporttest.Look{At: i * 10 * ms, CPU: i * 975 * ms / 100, State: stack.StateRunning, Stack: deep[i%3]})
	}
	m.Look(exporttest.Look{At: 4010 * ms, CPU: 3900 * ms, State: stack.StateBlocked, Call: 230, Stack: "main:1 nap:4"})
	m.Event(4010*ms, event.Wait, nap)
	m.Look(exporttest.Look{At: 5000 * ms, CPU: 3900 * ms, State: stack.StateBlocked, Call: 230, Stack: "main:1 nap:4"})
	w := b.Thread(1235, "worker-1")
	w.Look(exporttest.Look{At: 0, State: stack.StateBlocked, Call: 202, Stack: "main:1 lock:4"})
	w.Event(0, event.Wait, lock)
	w.Event(0, event.Lock, 0xcafe0)
	w.Event(0, event.Holder, event.HolderOf(1234, event.KnownByWord))
	w.Look(exporttest.Look{At: 4000 * ms, State: stack.StateBlocked, Call: 202, Stack: "main:1 lock:4"})
	w.Event(4500*ms, event.Task, event.TaskOf(stack.Task{ID: 7, State: stack.TaskRunning}))
	w.Look(exporttest.Look{At: 4500 * ms, State: stack.StateRunning, Stack: "main:1"})
	w.Event(4600*ms, event.Parked, event.TaskOf(stack.Task{ID: 7, State: stack.TaskWaiting, Reason: 1}))
	w.Event(4600*ms, event.Task, event.TaskOf(stack.Task{}))
	w.Look(exporttest.Look{At: 4600 * ms, CPU: 100 * ms, State: stack.StateRunning, Stack: "main:1"})
	w.Event(4800*ms, event.Task, event.TaskOf(stack.Task{ID: 7, State: stack.TaskRunning}))
	w.Look(exporttest.Look{At: 5000 * ms, CPU: 500 * ms, State: stack.StateRunning, Stack: "main:1"})
	h := b.Thread(1236, "worker-2")
	for i := range int64(31) { // it bakes for 300 ms
		h.Look(exporttest.Look{At: i * 10 * ms, CPU: i * 10 * ms, State: stack.StateRunning, Stack: "main:1 bake:5"})
	}
	h.Look(exporttest.Look{At: 310 * ms, CPU: 310 * ms, State: stack.StateRunning, Stack: "main:1"})
	b.Exact(1234, "fib", "main:1", 0, 4001*ms+250_000, calls.Returned)
	b.Op(1234, iowatch.OpOpen, "/etc/app.conf", 5*ms, 6*ms, 0, "open load main")
	b.Op(1234, iowatch.OpRead, "/etc/app.conf", 10*ms, 25*ms, 100, "read load main")
	rec := b.Finish(5000 * ms)
	rec.Tasks = []trace.Tasks{{At: exporttest.Start, What: "goroutine", Reasons: []string{"", "chan receive"}}}
	return rec
}

var (
	quoted = regexp.MustCompile(`sliver sql \S+ "([^"]*)"`)
	inline = regexp.MustCompile("`(select [^`]*)`")
	block  = regexp.MustCompile(`(?m)^    select .*\n(?:    .*\n)*`)
)

// TestExamples asks every question of README.md, docs and the help of sliver sql, on a recording with known answers.
func TestExamples(t *testing.T) {
	rec, several := recursive(t), parent(t)
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	var out strings.Builder
	found := map[string]int{}
	for _, path := range append([]string{"../README.md", "../cmd/sliver/sql.go"}, pages...) {
		doc := strings.TrimPrefix(path, "../")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var questions []string
		for _, re := range []*regexp.Regexp{quoted, inline} {
			for _, m := range re.FindAllStringSubmatch(string(b), -1) {
				if !strings.Contains(m[1], "…") {
					questions = append(questions, m[1])
				}
			}
		}
		if strings.HasSuffix(doc, ".md") {
			questions = append(questions, block.FindAllString(string(b), -1)...)
		}
		found[doc] = len(questions)
		for _, q := range questions {
			of := rec
			if strings.Contains(q, "waits_for is not null") { // one process waits for no other
				of = several
			}
			a, err := answer(t, of, view.Options{}, "table", q)
			if err != nil {
				t.Errorf("%s: %s: %v", doc, q, err)
				continue
			}
			if strings.Count(a, "\n") < 3 {
				t.Errorf("%s: %s: no answer", doc, q)
			}
			out.WriteString("-- " + doc + ": " + strings.Join(strings.Fields(q), " ") + "\n" + a + "\n")
		}
	}
	for doc, least := range map[string]int{"cmd/sliver/sql.go": 5, "docs/sql.md": 5, "docs/go.md": 2, "docs/results.md": 2, "docs/locks.md": 2, "docs/slow-request.md": 1} {
		if found[doc] < least {
			t.Errorf("%s: %d questions found, want at least %d", doc, found[doc], least)
		}
	}
	exporttest.Golden(t, "examples.txt", out.String())
}

// A function that recurses for 4 s counts 4 s, not the sum over its levels. The states of its thread match
// the scheduler's, up to waits that are shorter than the time between two samples.
func TestKnownAnswers(t *testing.T) {
	for q, want := range map[string]string{
		"select total_wall/1000000, self_wall/1000000, total_cpu/1000000, self_cpu/1000000 from profile where function = 'fib'":                                                                   "4001,4001,3900,3900",
		"select self_cpu, total_wall/1000000 from profile where function = 'nap'":                                                                                                                 "0,998",
		"select sum(self) = 4001250000 from slices join functions f on f.id = function where name = 'fib'":                                                                                        "1",
		"select sum(dur)/1000000 from states where thread = 0 and state = 'running'":                                                                                                              "4001",
		"select sum(dur)/1000000 from states where thread = 0":                                                                                                                                    "5000",
		"select running/1000000, blocked/1000000, observed/1000000 from thread_states where thread = 0":                                                                                           "3900,1100,5000",
		"select symbol, holder, count, dur/1000000, threads from hot_locks":                                                                                                                       "cache_lock,1234,1,4500,1",
		"select kind, count, dur/1000000 from hot_waits where kind = 'sleep'":                                                                                                                     "sleep,1,998",
		"select count(*) from (select sum(dur) d, (select running from thread_states x where x.thread = s.thread) r from states s where state = 'running' group by thread) where abs(d-r) > r/30": "0",
	} {
		got := strings.ReplaceAll(must(t, recursive(t), view.Options{}, "csv", q), "\r", "")
		if _, row, _ := strings.Cut(got, "\n"); row != want+"\n" {
			t.Errorf("%s: %q, want %q", q, row, want)
		}
	}
}
