package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
)

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
