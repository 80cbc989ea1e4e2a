package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Tasks left out of goroutine scans are listed with the other losses, in text and JSON.
func TestSummaryOfLooks(t *testing.T) {
	lost := trace.LostTasks{What: "goroutine", N: 3, In: 1, Looks: 2}
	late := trace.Stats{Threads: []stack.ThreadStats{{Late: 2}}}
	for _, c := range []struct {
		r    session.Result
		want string
	}{
		{session.Result{}, ""},
		{session.Result{Tasks: lost}, "3 goroutines missing in 1 of 2 looks at all of them"},
		{session.Result{Stats: late, Tasks: lost}, "2 late, 3 goroutines missing in 1 of 2 looks at all of them"},
	} {
		total := c.r.Stats.Total()
		if got := allLosses(&total, c.r.Tasks, nil); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		var b bytes.Buffer
		var doc struct {
			Lost int `json:"tasks_lost"`
		}
		if err := writeSummaryJSON(&b, &c.r); err != nil || json.Unmarshal(b.Bytes(), &doc) != nil || doc.Lost != c.r.Tasks.N {
			t.Errorf("%v: %s", err, b.Bytes())
		}
	}
}

// The hint at children compares their CPU time with the program's, whatever its duration.
func TestSummaryOfChildren(t *testing.T) {
	for _, c := range []struct {
		children, cpu time.Duration
		hint          bool
	}{
		{childrenTold, 0, true}, // gcc waits for cc1
		{childrenTold - 1, 0, false},
		{time.Second, 10 * time.Second, true},
		{time.Second, 11 * time.Second, false},
	} {
		var b bytes.Buffer
		r := session.Result{Duration: time.Minute, Children: c.children, Stats: trace.Stats{Threads: []stack.ThreadStats{{CPUNS: int64(c.cpu)}}}}
		writeSummary(&b, &r, trace.Process{Comm: "gcc"})
		if got := strings.Contains(b.String(), "in other programs that gcc started"); got != c.hint {
			t.Errorf("%v of children, %v of its own: hint %v", c.children, c.cpu, got)
		}
	}
}

// If a recording overran by more than a twentieth, the summary has the reason.
func TestSummaryOfOverruns(t *testing.T) {
	for _, c := range []struct {
		r    session.Result
		want string
	}{
		{session.Result{Duration: 5200 * time.Millisecond}, ""},
		{session.Result{Duration: 5300 * time.Millisecond}, "the samplers had to wait for a CPU"},
		{session.Result{Duration: 5 * time.Second, Releasing: 300 * time.Millisecond}, "detaching from"},
		{session.Result{Duration: 5 * time.Second, Writing: 3 * time.Second}, "outputs written"},
	} {
		var b bytes.Buffer
		c.r.Asked, c.r.Reason = 5*time.Second, "duration"
		writeSummary(&b, &c.r, trace.Process{})
		if _, line, found := strings.Cut(b.String(), "  ended "); found != (c.want != "") || !strings.Contains(line, c.want) {
			t.Errorf("%+v: %s, want %q", c.r, b.String(), c.want)
		}
	}
}

// The duration of a program that ended soon is not zero.
func TestSummaryOfShort(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{45_678 * time.Microsecond, " for 45.7 ms, until target ended\n"},
		{120 * time.Millisecond, " for 0.1 s, until target ended\n"},
		{3 * time.Second, " for 3.0 s, until target ended\n"},
	} {
		var b bytes.Buffer
		r := session.Result{Duration: c.d, Children: c.d, Reason: "target ended"}
		writeSummary(&b, &r, trace.Process{Comm: "gcc"})
		if s := b.String(); !strings.Contains(s, c.want) || strings.Contains(s, " 0.0 s") {
			t.Errorf("%v: %s", c.d, s)
		}
	}
}
