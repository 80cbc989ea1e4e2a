package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/foreign"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// A trace of another tool has calls alone: the report has their functions, and no tables that only samples fill.
func TestImported(t *testing.T) {
	var file, out bytes.Buffer
	const in = `[{"ph":"B","ts":3,"name":"main","pid":1,"tid":1},{"ph":"X","ts":4,"dur":5,"name":"parse","pid":1,"tid":1},{"ph":"E","ts":23,"pid":1,"tid":1}]`
	if _, err := foreign.ReadChrome(strings.NewReader(in), &file, foreign.Options{Name: "run"}); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if err := Of(rec, view.Options{}, 10).WriteText(&out); err != nil {
		t.Fatal(err)
	}
	const want = `run (1): 20.0µs

Elapsed, by function: Chrome JSON has calls, and no CPU times and waits
    self  with calls  function
  15.0µs      20.0µs  main
  5.00µs      5.00µs  parse
`
	if got := out.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// The locks of several processes are listed as those of one: first those that a thread can hold, however short the waits for
// them were.
func TestMergedLocks(t *testing.T) {
	one := func(process string, locks ...Lock) Merged {
		return Merged{Report: &Report{top: 3, Locks: locks}, Process: process}
	}
	r := Merge([]Merged{
		one("a (1)", Lock{Name: "condition variable c", Total: 9e9, Waits: 1, Unknown: "a condition variable has no holder"}, Lock{Name: "condition variable d", Total: 8e9, Waits: 1}),
		one("b (2)", Lock{Name: "mutex m", Total: 1e6, Waits: 1, Excludes: true}, Lock{Name: "condition variable e", Total: 7e9, Waits: 1}),
	})
	var out bytes.Buffer
	r.textLocks(&out)
	text := out.String()
	held, signals, ok := strings.Cut(text, "\nBy condition, channel and the like, which no thread holds (1 more; --rows shows more)\n")
	if !ok || !strings.Contains(held, "\nBy lock\n") || !strings.Contains(held, "mutex m") || strings.Contains(held, "condition") ||
		!strings.Contains(signals, "condition variable c") || !strings.Contains(signals, "condition variable d") || strings.Contains(text, "has no holder") {
		t.Error(text)
	}
}

// Waits in the same call are listed together, also if each thread waits for a lock of its own.
func TestLongestAlike(t *testing.T) {
	wait := func(tid, at string, more ...Frame) Wait {
		lock := "condition variable at " + at
		return Wait{Thread: "pool " + tid, Duration: 5e9, State: "blocked: futex", Stack: append([]Frame{{Func: "wait"}}, more...),
			Facts: []Fact{{view.DetailLock, lock}, {"address", at}}}
	}
	r := &Report{Longest: []Wait{wait("1", "0x7f00"), wait("2", "0x7f10"), wait("3", "0x7f20", Frame{Func: "other"})}}
	var out bytes.Buffer
	r.textLongest(&out)
	text := out.String()
	if one, rest, _ := strings.Cut(text, "pool 3"); strings.Count(one, "      wait\n") != 1 || strings.Contains(one, "0x7") || !strings.Contains(one, "pool 2") ||
		!strings.Contains(one, "condition variable at 0x…") || !strings.Contains(rest, "address          0x7f20") {
		t.Error(text)
	}
}

// CPU time that the kernel counted for a process, and no sample has, is beside the sum of the threads.
func TestUnsampledCPU(t *testing.T) {
	const ms = 1_000_000
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range int64(11) {
		th.Look(exporttest.Look{At: i * 10 * ms, CPU: i * 10 * ms, Times: uint64(i), State: stack.StateRunning, Stack: "main:1 burn:1"})
	}
	rec := b.Finish(100 * ms)
	rec.Stats.Threads = []trace.ThreadStats{{TID: 1234, CPUNS: 100 * ms}}
	rec.End.CPU = 130 * ms
	const line = "1 thread: 100ms on a CPU (100% of one) and 30.0ms more that no sample has\n"
	text := func(r *Report) string {
		var out bytes.Buffer
		r.textTogether(&out)
		return out.String()
	}
	if got := text(Of(rec, view.Options{}, 0)); got != line {
		t.Errorf("%q", got)
	}
	if got := text(Of(rec, view.Options{From: exporttest.Start + 50*ms}, 0)); strings.Contains(got, "more") {
		t.Errorf("of a part: %q", got)
	}
	if got := text(Merge([]Merged{{Report: Of(rec, view.Options{}, 0), Process: "a (1)"}, {Report: Of(rec, view.Options{}, 0), Process: "b (2)"}})); !strings.Contains(got, "60.0ms more") {
		t.Errorf("of two: %q", got)
	}
}

// The first lines show that a program was stopped.
func TestStoppedInSum(t *testing.T) {
	const ms = 1_000_000
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range int64(11) {
		th.Look(exporttest.Look{At: i * 10 * ms, CPU: 0, Times: 1, State: stack.StateStopped, Call: 34, Stack: "main:1 pause:1"})
	}
	r := Of(b.Finish(100*ms), view.Options{}, 0)
	var out bytes.Buffer
	if r.textTogether(&out); out.String() != "1 thread: - on a CPU (0% of one), 100ms stopped\n" {
		t.Errorf("%q", out.String())
	}
}

// TestTextOfGoroutines: a wait of a goroutine is known from the sample that saw it leave its thread to the one that saw it run again, so
// the text does not call the longest of them the longest wait.
func TestTextOfGoroutines(t *testing.T) {
	r := Report{Tasks: &Tasks{What: "goroutine", Waits: []TaskWait{{For: "sync.Mutex", Func: "main.hold", Waits: 7, Tasks: 2, Total: 9e9, Longest: 2e9}}}}
	var out bytes.Buffer
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(out.String(), "Waits of goroutines")
	if head := strings.Fields(text); len(head) < 4 || strings.Join(head[:4], " ") != "total up to seen" {
		t.Errorf("the table begins with %q", text[:min(len(text), 60)])
	}
}
