package view_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

const ms = exporttest.Ms

// log records a replay and checks its guarantees.
type log struct {
	t     testing.TB
	b     strings.Builder
	at    stack.Time
	depth int
	names *trace.Names
}

func (l *log) time(t stack.Time) int64 {
	if t < l.at || t < 0 {
		l.t.Fatalf("time %d behind %d", t, l.at)
	}
	l.at = t
	return int64(t-exporttest.Start) / ms
}

func (l *log) Begin(t stack.Time, depth int, s *trace.Slice) {
	if depth != l.depth {
		l.t.Fatalf("begins at depth %d, %d are open", depth, l.depth)
	}
	l.depth++
	fmt.Fprintf(&l.b, "%d+%s ", l.time(t), l.names.Func(&s.Frame).Name)
}

func (l *log) End(t stack.Time, depth int, s *trace.Slice) {
	l.depth--
	if depth != l.depth {
		l.t.Fatalf("ends at depth %d, %d are open", depth, l.depth+1)
	}
	fmt.Fprintf(&l.b, "%d-%s ", l.time(t), l.names.Func(&s.Frame).Name)
}

func (l *log) Other(e event.Event) {
	if k := e.Kind(); k == event.State || k == event.Lock || k == event.Seen {
		fmt.Fprintf(&l.b, "%d%s ", l.time(e.Time), k)
	} else {
		l.time(e.Time)
	}
}

func replay(t testing.TB, rec *trace.Recording, o view.Options, gaps bool) string {
	t.Helper()
	v := view.New(rec, o)
	l := &log{t: t, names: v.Names}
	if gaps {
		g := v.WithGaps(l)
		g.Close(v.Slices(&v.Threads[0], g))
	} else {
		v.Slices(&v.Threads[0], l)
	}
	if l.depth != 0 {
		t.Fatalf("%d slices left open: %s", l.depth, l.b.String())
	}
	return strings.TrimSpace(l.b.String())
}

func simple(t testing.TB) *trace.Recording {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	run := stack.StateRunning
	th.Look(exporttest.Look{At: 0, State: run, Stack: "a:1"})
	th.Look(exporttest.Look{At: 10 * ms, State: run, Stack: "a:1 b:1"})
	th.Look(exporttest.Look{At: 20 * ms, State: stack.StateBlocked, Stack: "a:1 b:1"})
	th.Sync()
	th.Look(exporttest.Look{At: 30 * ms, State: run, Stack: "a:1"})
	th.Look(exporttest.Look{At: 40 * ms, State: run, Stack: "a:1"})
	return b.Finish(40 * ms)
}

func TestRange(t *testing.T) {
	rec := simple(t)
	at := func(n int64) stack.Time { return exporttest.Start + stack.Time(n*ms) }
	for _, c := range []struct {
		from, to stack.Time
		want     string
	}{
		{0, 0, "0state 0+a 0seen 10+b 10seen 20state 20seen 30state 30-b 40seen 40-a"},
		{at(5), at(25), "5+a 5state 10+b 10seen 20state 20seen 25-b 25-a"},
		{at(15), at(17), "15+a 15+b 15state 17-b 17-a"},
		{at(10), at(30), "10+a 10state 10+b 10seen 20state 20seen 30state 30-b 40seen 40-a"},
		{at(50), 0, ""},
		{0, at(-5), ""},
		{at(25), at(25), "25+a 25+b 25state 25-b 25-a"},
	} {
		got := replay(t, rec, view.Options{From: c.from, To: c.to}, false)
		if c.to == at(30) { // the range includes both ends
			c.want = "10+a 10state 10+b 10seen 20state 20seen 30state 30-b 30-a"
		}
		if got != c.want {
			t.Errorf("%d..%d: %s, want %s", (c.from-exporttest.Start)/ms, (c.to-exporttest.Start)/ms, got, c.want)
		}
	}
}

func TestGaps(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	th.Look(exporttest.Look{At: 0, Stack: "a:1"})
	th.Gap(30*ms, stack.WhyLate, 20*ms)
	th.Gap(40*ms, stack.WhyTimeout, 900*ms) // reaches back to the first known time
	th.Look(exporttest.Look{At: 50 * ms, Stack: "a:1 b:1"})
	th.Lose(60 * ms)
	th.Lose(61 * ms)
	th.Look(exporttest.Look{At: 70 * ms, Stack: "a:1"})
	th.Sync()
	th.Look(exporttest.Look{At: 80 * ms, Stack: "a:1"})
	th.Lose(90 * ms)
	got := replay(t, b.Finish(90*ms), view.Options{}, true)
	want := "0+a 10+[gap: late] 30-[gap: late] 30+[gap: stop timed out] 40-[gap: stop timed out] 50+b 60-b 60-a 60+[gap: overwritten] " +
		"70-[gap: overwritten] 70+a 90-a 90+[gap: overwritten] 90-[gap: overwritten]"
	if got = regexp.MustCompile(`\d+(seen|state) `).ReplaceAllString(got, ""); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// sum receives steps and checks their guarantees.
type sum struct {
	t     testing.TB
	total int64
	at    stack.Time
}

func (s *sum) Spent(_ []diff.Frame, _ bool, at stack.Time, ns int64) {
	if ns <= 0 || at < s.at {
		s.t.Fatalf("%d ns from %d on, behind %d", ns, at, s.at)
	}
	s.at = at + stack.Time(ns)
	s.total += ns
}
func (s *sum) Ran([]diff.Frame, bool, stack.Time, int64) {}
func (s *sum) Unseen(view.Unsampled)                     {}
func (s *sum) Changed(int)                               {}
func (s *sum) Other(e event.Event, _ []diff.Frame, _ bool) {
	if e.Time < s.at {
		s.t.Fatalf("%v behind %d", e, s.at)
	}
}

func TestStepsCoverTheSpan(t *testing.T) {
	for what, rec := range map[string]*trace.Recording{"simple": simple(t), "sample": exporttest.Sample(t), "big": exporttest.Big(t, 20_000, 2)} {
		for _, o := range []view.Options{{}, {From: exporttest.Start + 12*ms, To: exporttest.Start + 33*ms}} {
			v := view.New(rec, o)
			for i := range v.Threads {
				s := &sum{t: t}
				n := v.Steps(&v.Threads[i], s)
				first, last := int64(0), int64(0)
				for _, c := range exporttest.Calls(rec) {
					if c.Thread == v.Threads[i].Seq {
						if first == 0 {
							first = c.Begin
						}
						last = max(last, c.End)
					}
				}
				want := last - first
				if o.From > 0 {
					want = min(last, int64(o.To)) - max(first, int64(o.From))
				}
				if n != s.total || n != want {
					t.Errorf("%s %v thread %d: %d ns, handed out %d, want %d", what, o, i, n, s.total, want)
				}
			}
		}
	}
}

func FuzzReplay(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		rec := exporttest.Raw(t, data)
		for _, o := range []view.Options{{}, {From: exporttest.Start + 5*ms}, {To: exporttest.Start + 50*ms}, {From: exporttest.Start, To: exporttest.Start + ms}, {Side: view.OnCPU}, {Side: view.OffCPU, From: exporttest.Start + 5*ms},
			{From: exporttest.Start + 5*ms, To: exporttest.Start + 90*ms, Focus: regexp.MustCompile("server|a")}} {
			replay(t, rec, o, false)
			replay(t, rec, o, true)
			v := view.New(rec, o)
			s := &sum{t: t}
			if n := v.Steps(&v.Threads[0], s); n != s.total {
				t.Fatalf("%d ns, handed out %d", n, s.total)
			}
		}
	})
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"plain", 10, "plain"}, {"", 10, ""}, {"a\tb\nc\rd", 20, "a b c d"}, {"a\x00b", 20, "a\ufffdb"}, {"\xff", 10, "\ufffd"},
		{"\x1b[31m", 20, "\ufffd[31m"}, {"a\u202eb", 20, "a\ufffdb"}, {"x\u2028y", 20, "x y"}, {"漢字", 20, "漢字"}, {"漢字漢字", 9, "漢字…"},
		{"0123456789", 10, "0123456789"}, {"0123456789a", 10, "0123456…"}, {"ééé", 6, "ééé"},
	} {
		if got := view.Text(c.in, c.limit); got != c.want {
			t.Errorf("%q, %d: %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, n := range exporttest.HostileNames {
		f.Add(n, 40)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(limit%200, 8)
		if limit < 8 {
			limit = 8
		}
		x := view.Text(s, limit)
		if !utf8.ValidString(x) || len(x) > limit || strings.ContainsAny(x, "\x00\n\r\t\x1b\u2028\u202e\ufeff") {
			t.Fatalf("%q gives %q", s, x)
		}
		if view.Text(x, limit) != x {
			t.Fatalf("%q gives %q, which gives %q", s, x, view.Text(x, limit))
		}
		var back string
		if err := json.Unmarshal(view.JSON(s, limit), &back); err != nil || back != x {
			t.Fatalf("%q gives %q: %v", s, view.JSON(s, limit), err)
		}
		var b bytes.Buffer
		xml.EscapeText(&b, []byte(x))
		if err := xml.Unmarshal([]byte("<a>"+b.String()+"</a>"), new(string)); err != nil {
			t.Fatalf("%q gives %q, no text of XML: %v", s, x, err)
		}
	})
}

func TestDuration(t *testing.T) {
	for in, want := range map[int64]string{0: "", 5: "5ns", 40_000: "40µs", 10 * ms: "10ms", 1_500 * ms: "1.5s"} {
		if got := view.Duration(in); got != want {
			t.Errorf("%d: %s, want %s", in, got, want)
		}
	}
}

// TestThreadName: a holder that is not a thread of the recording has the name recorded
// with the wait.
func TestThreadName(t *testing.T) {
	rec := &trace.Recording{Waits: map[int]trace.Wait{1: {ID: 1, Lock: "file lock", HolderTID: 77, HolderName: "postgres (process 70)"}},
		Threads: []trace.Thread{{TID: 5, Name: "main", Main: true}}}
	v := view.New(rec, view.Options{})
	for tid, want := range map[stack.TID]string{77: "postgres (process 70)", 78: "thread 78", 5: "main (5)"} {
		if got := v.ThreadName(tid); got != want {
			t.Errorf("thread %d is %q, want %q", tid, got, want)
		}
	}
}
