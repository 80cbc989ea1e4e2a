package top

import (
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/idle"
)

// TestMerge: sums of functions, threads with their process, and counts of two processes.
func TestMerge(t *testing.T) {
	s := int64(time.Second)
	one := &Table{From: 10, To: 20, Span: time.Second, Lost: 1, Folded: 2, Left: idle.Left{Threads: 1, Wait: s},
		Funcs:   []Func{{"work", "/bin/a", Values{s, s}, Values{s, s}}, {"rest", "", Values{s, 0}, Values{s, 0}}},
		Threads: []Row{{Seq: 0, TID: 7, Name: "a", Values: Values{s, s / 2}}}}
	two := &Table{From: 5, To: 25, Span: 2 * time.Second, Lost: 3, Folded: 4, Left: idle.Left{Others: 2, Other: s},
		Funcs:   []Func{{"work", "/bin/a", Values{s, 0}, Values{2 * s, s}}, {"work", "/bin/b", Values{1, 1}, Values{1, 1}}},
		Threads: []Row{{Seq: 0, TID: 8, Name: "b", Values: Values{s, s}}, {Seq: 1, TID: 9, Name: "c", State: stack.StateBlocked, Values: Values{s, 0}}}}
	var all Table
	all.Merge(one, Process{PID: 7, Comm: "first"}, func(seq int) int { return seq })
	all.Merge(two, Process{PID: 8, Comm: "second", Ended: true}, func(seq int) int { return seq + 100 })
	if all.From != 5 || all.To != 25 || all.Span != 2*time.Second || all.Lost != 4 || all.Folded != 6 ||
		all.Left != (idle.Left{Threads: 1, Wait: s, Others: 2, Other: s}) {
		t.Errorf("%+v", all)
	}
	if len(all.Funcs) != 3 || all.Funcs[0] != (Func{"work", "/bin/a", Values{2 * s, s}, Values{3 * s, 2 * s}}) {
		t.Errorf("functions %+v", all.Funcs)
	}
	if len(all.Threads) != 3 || all.Threads[0].PID != 7 || all.Threads[2].PID != 8 || all.Threads[2].Seq != 101 {
		t.Errorf("threads %+v", all.Threads)
	}
	want := []Process{{7, "first", false, 2, Values{s, s / 2}}, {8, "second", true, 2, Values{2 * s, s}}}
	if len(all.Processes) != 2 || all.Processes[0] != want[0] || all.Processes[1] != want[1] {
		t.Errorf("processes %+v", all.Processes)
	}
	var b strings.Builder
	if err := all.WriteText(&b, &Head{Comm: "2 processes", Samples: 5}, &Layout{}); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for _, line := range []string{"2 processes: 4 threads, CPU 75.0%", "      8   50.0%        2  second (ended)", "    PID     TID     CPU", "      8       9"} {
		if !strings.Contains(out, line) {
			t.Errorf("no line with %q:\n%s", line, out)
		}
	}
	if strings.Index(out, "second (ended)") > strings.Index(out, "first") {
		t.Errorf("the busiest process is not the first:\n%s", out)
	}
}
