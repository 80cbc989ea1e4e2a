package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/sampler"
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

// Lines of the summary fit 100 columns, and numbers agree with their words.
func TestSummaryWidth(t *testing.T) {
	st := stack.ThreadStats{Samples: 12313, Late: 95, CPUNS: 1}
	st.Cuts[stack.ReasonNoRule], st.Cuts[stack.ReasonUnmapped] = 7, 3
	r := session.Result{Threads: 16, Duration: time.Minute, Children: time.Hour, Reason: "target ended", Interval: 10 * time.Millisecond,
		Stats: trace.Stats{Threads: []stack.ThreadStats{st}}, Cost: sampler.Cost{Measured: true, Bound: .01, Own: .037, Stops: .012, Factor: 4, Naps: 2, CPUs: 2}}
	var b bytes.Buffer
	writeSummary(&b, &r, trace.Process{Comm: "a-server-with-a-name"})
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > summaryWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	flat := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{"looked at each 2nd tick", "the interval was stretched from 10 ms to 40 ms", "7 no unwind rule, 3 unmapped address", "95 late"} {
		if !strings.Contains(flat, want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 112: "112th"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func TestShare(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0%", 4.6e-8: "below 0.001%", 1e-5: "0.001%", .000234: "0.023%", .0012: "0.12%", .0999: "10%", .18: "18%", 1: "100%", 20: "2000%",
	} {
		if got := share(x); got != want {
			t.Errorf("share(%v) is %s, want %s", x, got, want)
		}
	}
}

func TestTracedNames(t *testing.T) {
	functions := [][2]string{{"step", "/srv/work"}, {"handle", "/srv/work"}, {"step", "/lib/libc.so.6"}}
	got := tracedNames(len(functions), func(i int) (string, string) { return functions[i][0], functions[i][1] })
	if want := []string{"step (work)", "handle", "step (libc.so.6)"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
