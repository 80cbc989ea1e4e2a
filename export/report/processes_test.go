package report

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// build is make -j2 of three files: a and b begin together, c when a has ended, then a linker.
var build = []Process{
	{PID: 1, Name: "make", Begin: 0, End: 100},
	{PID: 2, Parent: 1, Name: "gcc a", Begin: 5, End: 40}, {PID: 3, Parent: 2, Name: "cc1 a", Begin: 6, End: 38},
	{PID: 4, Parent: 1, Name: "gcc b", Begin: 5, End: 50}, {PID: 5, Parent: 4, Name: "cc1 b", Begin: 6, End: 49},
	{PID: 6, Parent: 1, Name: "gcc c", Begin: 40, End: 90}, {PID: 7, Parent: 6, Name: "cc1 c", Begin: 41, End: 88},
	{PID: 8, Parent: 1, Name: "ld", Begin: 92, End: 99},
	{PID: 9, Parent: 0, Name: "stranger", Begin: 0, End: 100},
}

func TestCriticalPath(t *testing.T) {
	var got []string
	at, sum := int64(0), int64(0)
	for _, s := range criticalPath(build, 0) {
		got = append(got, fmt.Sprintf("%s %d..%d", s.Name, s.Begin, s.Begin+s.Duration))
		if s.Begin != at {
			t.Errorf("a step begins at %d, the one before ended at %d", s.Begin, at)
		}
		at, sum = s.Begin+s.Duration, sum+s.Duration
	}
	want := "make 0..5, gcc a 5..6, cc1 a 6..38, gcc a 38..40, gcc c 40..41, cc1 c 41..88, gcc c 88..90, make 90..92, ld 92..99, make 99..100"
	if strings.Join(got, ", ") != want || sum != 100 {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
}

// A process that seems to begin before the one that it waited for has ended.
func TestCriticalPathSlack(t *testing.T) {
	ps := []Process{{PID: 1, Name: "make", End: 100}, {PID: 2, Parent: 1, Name: "cc", Begin: 5, End: 62}, {PID: 3, Parent: 1, Name: "ld", Begin: 60, End: 101}}
	var got []string
	for _, s := range criticalPath(ps, 5) {
		got = append(got, fmt.Sprintf("%s %d..%d", s.Name, s.Begin, s.Begin+s.Duration))
	}
	if want := "make 0..5, cc 5..60, ld 60..100"; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
}

// Damaged recordings: parents in a circle, a process that is its own parent, lives that end before
// they begin, equal PIDs. Each time is in at most one step of each process.
func TestCriticalPathOfAnything(t *testing.T) {
	for _, ps := range [][]Process{
		nil,
		{{PID: 1, Parent: 1, End: 10}},
		{{PID: 1, Parent: 2, End: 10}, {PID: 2, Parent: 1, End: 9}},
		{{PID: 1, Begin: 10, End: 5}, {PID: 2, Parent: 1, Begin: 7, End: 6}},
		{{PID: 1, End: 10}, {PID: 2, Parent: 1, Begin: 1, End: 9}, {PID: 2, Parent: 2, Begin: 2, End: 8}, {PID: 2, Parent: 1, Begin: 0, End: 1}},
	} {
		last := int64(-1)
		for _, s := range criticalPath(ps, 3) {
			if s.Begin < last || s.Duration <= 0 {
				t.Errorf("%+v: step %+v after %d", ps, s, last)
			}
			last = s.Begin + s.Duration
		}
	}
}

func TestTextOfProcesses(t *testing.T) {
	r := &Report{Processes: build, CriticalPath: criticalPath(build, 0)}
	r.Processes[7].Command = "/usr/bin/ld -o " + strings.Repeat("x", 200) + " last.o"
	var out bytes.Buffer
	b := bufio.NewWriter(&out)
	r.textProcesses(b, 3)
	b.Flush()
	text := out.String()
	for _, want := range []string{"Processes (6 more", "Critical path", "(7 more", "47.0%", "cc1 c"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if got := command("ld", r.Processes[7].Command); len([]rune(got)) > maxCommand || !strings.HasPrefix(got, "ld x") || !strings.HasSuffix(got, " last.o") {
		t.Errorf("command %q", got)
	}
	if got := command("cc1", "/usr/lib/gcc/cc1 -quiet "+strings.Repeat("-f", 50)+" main.c -o /tmp/cc.s"); got != "cc1 main.c /tmp/cc.s" {
		t.Errorf("command %q", got)
	}
	if got := command("x", "  "); got != "x" {
		t.Errorf("an empty command is %q", got)
	}
	out.Reset()
	(&Report{}).textProcesses(b, 3)
	b.Flush()
	if out.Len() > 0 {
		t.Errorf("a report of one process has a table of processes: %s", out.String())
	}
}
