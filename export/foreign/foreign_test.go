package foreign_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/chrome"
	"github.com/sliverprof/sliver/export/foreign"
	"github.com/sliverprof/sliver/export/nanoscope"
	"github.com/sliverprof/sliver/export/perfetto"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

func opened(t testing.TB, b []byte) *trace.Recording {
	t.Helper()
	rec, err := trace.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Problems) > 0 || rec.End == nil {
		t.Fatalf("problems %q, end %v", rec.Problems, rec.End)
	}
	return rec
}

func readChrome(t testing.TB, text string) (*trace.Recording, *foreign.Report, error) {
	t.Helper()
	var b bytes.Buffer
	rep, err := foreign.ReadChrome(strings.NewReader(text), &b, foreign.Options{Name: "x", TempDir: t.TempDir()})
	if err != nil {
		return nil, nil, err
	}
	return opened(t, b.Bytes()), rep, nil
}

func readNanoscope(t testing.TB, text, states string) (*trace.Recording, *foreign.Report, error) {
	t.Helper()
	var b bytes.Buffer
	var err error
	var rep *foreign.Report
	if states != "" {
		rep, err = foreign.ReadNanoscope(strings.NewReader(text), strings.NewReader(states), &b, foreign.Options{Name: "x"})
	} else {
		rep, err = foreign.ReadNanoscope(strings.NewReader(text), nil, &b, foreign.Options{Name: "x"})
	}
	if err != nil {
		return nil, nil, err
	}
	return opened(t, b.Bytes()), rep, nil
}

func text(rec *trace.Recording) string {
	var b strings.Builder
	for _, c := range exporttest.Calls(rec) {
		fmt.Fprintf(&b, "%s/%d %d..%d %s; ", rec.Threads[c.Thread].Name, c.Depth, c.Begin, c.End, c.Name)
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// A recording written as Chrome JSON or Nanoscope text reads back unchanged.
func TestRoundTrip(t *testing.T) {
	for what, rec := range map[string]*trace.Recording{"sample": exporttest.Sample(t), "big": exporttest.Big(t, 20_000, 3)} {
		base := int64(view.New(rec, view.Options{}).Begin())
		t.Run("chrome "+what, func(t *testing.T) {
			var b bytes.Buffer
			if err := chrome.Write(&b, rec, view.Options{}); err != nil {
				t.Fatal(err)
			}
			got, rep, err := readChrome(t, b.String())
			if err != nil {
				t.Fatal(err)
			}
			calls := exporttest.Calls(got)
			for i := range calls {
				calls[i].Begin += base
				calls[i].End += base
			}
			exporttest.Match(t, exporttest.Calls(rec), calls)
			if rep.Threads != len(rec.Threads) || got.Process.PID != 1234 || got.Threads[0].Name != rec.Threads[0].Name || !got.Threads[0].Main || rep.Calls != len(calls) {
				t.Errorf("%+v, threads %+v", rep, got.Threads)
			}
		})
		t.Run("nanoscope "+what, func(t *testing.T) {
			v := view.New(rec, view.Options{})
			for i := range v.Threads {
				var b, s bytes.Buffer
				if err := nanoscope.Write(&b, v, &v.Threads[i]); err != nil {
					t.Fatal(err)
				}
				if err := nanoscope.WriteStates(&s, v, &v.Threads[i]); err != nil {
					t.Fatal(err)
				}
				got, _, err := readNanoscope(t, b.String(), s.String())
				if err != nil {
					t.Fatal(err)
				}
				var want, calls []exporttest.Call
				for _, c := range exporttest.Calls(rec) {
					if c.Thread == v.Threads[i].Seq {
						c.Thread = 0
						want = append(want, c)
					}
				}
				for _, c := range exporttest.Calls(got) {
					c.Begin += base - 1 // 0 is not a valid time there
					c.End += base - 1
					c.Name = strings.ReplaceAll(c.Name, "< ", "<") // Nanoscope's page does not accept "<c"
					if !strings.HasPrefix(c.Name, "[gap: ") {
						calls = append(calls, c)
					}
				}
				exporttest.Match(t, want, calls)
			}
		})
	}
}

// An imported trace opens in Perfetto with its original calls.
func TestPerfettoReadsWhatWasImported(t *testing.T) {
	rec, _, err := readNanoscope(t, "1:+main\n1000:+Activity.onCreate\n1500:POP\n5000:+draw\n9000:POP\n9500:POP\n", "1, 67, 67\n5000, 67, 70\n9000, 70, 67\n9500, 67, 67\n")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := perfetto.Write(&b, rec, view.Options{}); err != nil {
		t.Fatal(err)
	}
	rows := exporttest.Ask(t, exporttest.File(t, "x.pftrace", b.Bytes()), "select ts, dur, name, depth from slice order by ts, depth")[0]
	got := ""
	for _, r := range rows {
		got += fmt.Sprintf("%d+%d %s; ", r.Int("ts"), r.Int("dur"), r.Text("name"))
	}
	for _, want := range []string{"1+9499 main", "1000+500 Activity.onCreate", "5000+4000 draw", "5000+4000 blocked"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

func TestNanoscope(t *testing.T) {
	for _, c := range []struct{ in, want, note string }{
		{"5:+a\n7:b()\n9:POP\n", "x/0 5..9 a; x/1 7..9 b()", "1 call had no end, and ends with"},
		{"5:POP\n6:+a\r\n\n8:POP\n9:POP", "x/0 6..8 a", "2 ends of calls had no begin"},
		{"5:+a:POP\n9:+a#meta\n3:POP\n10:POP\n", "x/0 5..10 a:POP; x/1 9..9 a#meta", "1 time fell"},
	} {
		rec, rep, err := readNanoscope(t, c.in, "")
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		if got := text(rec); got != c.want || !strings.Contains(strings.Join(rep.Notes, "; "), c.note) {
			t.Errorf("%q: %s, notes %q; want %s, %s", c.in, got, rep.Notes, c.want, c.note)
		}
	}
	for in, says := range map[string]string{
		"": "no call", "1:+a\nx:POP\n": `line 2, byte 5: invalid time "x"`, "1:+a\nnonsense\n": "line 2, byte 5: missing colon",
		"1:+" + strings.Repeat("n", 2<<20): "longer than", "-5:+a\n": `invalid time "-5"`,
	} {
		if rec, _, err := readNanoscope(t, in, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, %v; want %s", in, rec, err, says)
		}
	}
	if _, _, err := readNanoscope(t, "1:+a\n", "nonsense\n"); err == nil || !strings.Contains(err.Error(), "thread states: line 1") {
		t.Error(err)
	}
}

func TestStates(t *testing.T) {
	rec, _, err := readNanoscope(t, "1:+a\n100:POP\n", "1, 67, 67\n20, 67, 69\n50, 69, 89\n80, 89, 66\n")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for e := range rec.Events(0) {
		if e.Kind() == event.State {
			s, _ := event.StateFields(e.Payload())
			got += fmt.Sprintf("%d %v; ", e.Time, s)
		}
	}
	if got != "1 running; 20 blocked; 50 unknown; 80 dead; " {
		t.Error(got)
	}
}

func TestChrome(t *testing.T) {
	for _, c := range []struct{ in, want, note string }{
		// Complete events in order of their ends, inner ones first.
		{`[{"ph":"X","ts":2,"dur":1,"name":"b","pid":1,"tid":1},{"ph":"X","ts":1,"dur":5,"name":"a","pid":1,"tid":1}`,
			"thread 1/0 1000..6000 a; thread 1/1 2000..3000 b", ""},
		// Times with decimals, as strings, with exponents; IDs as strings.
		{`{"traceEvents":[{"ph":"B","ts":"1.5","name":"a","pid":"p","tid":"main"},{"ph":"E","ts":2.0015,"pid":"p","tid":"main"},{"ph":"X","ts":1e3,"dur":0.0004,"name":"c","pid":"p","tid":"main"}]}`,
			"thread main/0 1500..2002 a; thread main/0 1000000..1000000 c", ""},
		{`{"a":[1,{"b":2}],"traceEvents":[{"ph":"M","name":"thread_name","pid":1,"tid":7,"args":{"name":"io"}},{"ph":"X","ts":1,"dur":2,"name":"a","pid":1,"tid":7},{"ph":"C","ts":1},{"ph":"s"}],"x":null}`,
			"io/0 1000..3000 a", "2 events were skipped because they are not calls"},
		// Calls that do not nest, stray ends, calls without an end.
		{`[{"ph":"X","ts":1,"dur":5,"name":"a","pid":1,"tid":1},{"ph":"X","ts":4,"dur":5,"name":"b","pid":1,"tid":1},{"ph":"E","ts":9,"pid":1,"tid":1}]`,
			"thread 1/0 1000..6000 a; thread 1/1 4000..6000 b", "1 end of a call had no begin; 1 call outlived"},
		{`[{"ph":"B","ts":1,"name":"a","pid":1,"tid":1},{"ph":"B","ts":2,"name":"b","pid":1,"tid":1},{"ph":"E","ts":3,"pid":1,"tid":1},{"ph":"B","ts":3,"name":"c","pid":1,"tid":1}`,
			"thread 1/0 1000..3000 a; thread 1/1 2000..3000 b; thread 1/1 3000..3000 c", "2 calls had no end"},
		{`[{"ph":"X","ts":1,"dur":2,"name":"a","pid":1,"tid":1},{"ph":"X","ts":1,"dur":2,"na`, "thread 1/0 1000..3000 a", "the file is truncated"},
		{`[{"ph":"X","ts":-1,"name":"a"},{"ph":"X","ts":"x","name":"a"},{"ph":5},7,{"ph":"X","ts":1,"dur":1,"name":"a","pid":1,"tid":1}]`, "thread 1/0 1000..2000 a", "4 events were skipped because they are malformed"},
		// Two processes, one of them named.
		{`[{"ph":"X","ts":1,"dur":1,"name":"a","pid":1,"tid":1},{"ph":"X","ts":1,"dur":1,"name":"b","pid":2,"tid":3},{"ph":"M","name":"process_name","pid":2,"tid":3,"args":{"name":"gpu"}}]`,
			"thread 1/0 1000..2000 a; gpu: thread 3/0 1000..2000 b", ""},
	} {
		rec, rep, err := readChrome(t, c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if got := text(rec); got != c.want || !strings.Contains(strings.Join(rep.Notes, "; "), c.note) {
			t.Errorf("%s:\n%s, notes %q; want\n%s, %s", c.in, got, rep.Notes, c.want, c.note)
		}
	}
	for in, says := range map[string]string{
		"": "EOF", "[]": "no calls", "{}": "no calls", `{"traceEvents":5}`: "traceEvents is not an array", "[nonsense": "byte 1: invalid character", `{"a":`: "EOF",
		`{"a":"` + strings.Repeat("x", 80<<20) + `"}`: "larger than", `7`: "begins with 7",
	} {
		if rec, _, err := readChrome(t, in); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, %v; want %s", in, rec, err, says)
		}
	}
}

// TestImportBegins: a recording begins with its first call, not where the first call ends.
func TestImportBegins(t *testing.T) {
	rec, _, err := readChrome(t, `[{"ph":"B","ts":3,"name":"a","pid":1,"tid":1},{"ph":"B","ts":4,"name":"b","pid":1,"tid":1},{"ph":"E","ts":9,"pid":1,"tid":1},{"ph":"E","ts":12,"pid":1,"tid":1}]`)
	if err != nil {
		t.Fatal(err)
	}
	if from, to := rec.Span(); rec.Begin() != 3000 || from != 3000 || to != 12000 {
		t.Errorf("begin %d, span %d to %d; want 3000 to 12000", rec.Begin(), from, to)
	}
	if rec, _, err = readNanoscope(t, "5:+a\n7:b()\n9:POP\n", ""); err != nil || rec.Begin() != 5 {
		t.Errorf("%v, begin %d; want 5", err, rec.Begin())
	}
}

// More records than fit the in-memory sort keep their order.
func TestSortsOnDisk(t *testing.T) {
	testprog.Unraced(t, "one goroutine goes through big files")
	if testing.Short() {
		t.Skip("writes a trace of a million events")
	}
	r := rand.New(rand.NewPCG(1, 2))
	const n = 600_000 // a run has 2^19
	var b strings.Builder
	b.WriteString("[")
	for i, at := range r.Perm(n) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"ph":"X","ts":%d,"dur":1,"name":"f%d","pid":1,"tid":%d}`, at, at%7, at%3)
	}
	rec, rep, err := readChrome(t, b.String())
	if err != nil || rep.Calls != n {
		t.Fatalf("%+v, %v", rep, err)
	}
	seen := 0
	for i := range rec.Threads {
		last := stack.Time(0)
		for e := range rec.Events(rec.Threads[i].Seq) {
			if e.Time < last {
				t.Fatalf("time %d behind %d", e.Time, last)
			}
			last = e.Time
			if e.Kind() == event.Enter {
				seen++
			}
		}
	}
	if seen != n {
		t.Errorf("%d of %d calls", seen, n)
	}
}

func TestDetect(t *testing.T) {
	for in, want := range map[string]foreign.Kind{
		"": foreign.Unknown, "\x7fELF": foreign.Unknown, "12:+a\n": foreign.Nanoscope, "12": foreign.Unknown, "  [": foreign.Chrome, "\xef\xbb\xbf{": foreign.Chrome,
		"\x1f\x8b\x08": foreign.Gzip, "a:b": foreign.Unknown,
	} {
		if got := foreign.Detect([]byte(in)); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

func FuzzNanoscope(f *testing.F) {
	f.Add("1:+a\n2:POP\n", "1, 67, 67\n2, 67, 70\n")
	f.Add("1:+a\n0:+b\n9:POP\n9:POP\n9:POP", "")
	f.Add("9223372036854775807:+a\n", "x")
	f.Fuzz(func(t *testing.T, in, states string) {
		if rec, _, err := readNanoscope(t, in, states); err == nil {
			sane(t, rec)
		}
	})
}

func FuzzChrome(f *testing.F) {
	f.Add(`[{"ph":"X","ts":2,"dur":1,"name":"b","pid":1,"tid":1},{"ph":"B","ts":1,"name":"a","pid":1,"tid":1},{"ph":"E","ts":9,"pid":1,"tid":1}]`)
	f.Add(`{"traceEvents":[{"ph":"M","name":"thread_name","pid":1,"tid":7,"args":{"name":"io"}},{"ph":"X","ts":"1e300","name":"a"}],"x":{}}`)
	f.Add(`[{"ph":"X","ts":0,"dur":0},{"ph":"X","ts":0,"dur":0},{"ph":"B","ts":0}`)
	f.Fuzz(func(t *testing.T, in string) {
		if rec, _, err := readChrome(t, in); err == nil {
			sane(t, rec)
		}
	})
}

// sane checks the guarantees of every recording on an imported one.
func sane(t *testing.T, rec *trace.Recording) {
	t.Helper()
	for i := range rec.Threads {
		last, depth := stack.Time(0), 0
		for e := range rec.Events(rec.Threads[i].Seq) {
			if e.Time < last {
				t.Fatalf("time %d behind %d", e.Time, last)
			}
			last = e.Time
			switch e.Kind() {
			case event.Enter:
				depth++
			case event.Exit:
				if depth--; depth < 0 {
					t.Fatal("an exit of nothing")
				}
			}
		}
		if depth != 0 {
			t.Fatalf("%d calls have no end", depth)
		}
	}
	for _, c := range exporttest.Calls(rec) {
		if c.End < c.Begin || c.Name == "" {
			t.Fatalf("call %v", c)
		}
	}
}

func BenchmarkChrome(b *testing.B) {
	var out bytes.Buffer
	rec := exporttest.Big(b, 200_000, 2)
	if err := chrome.Write(&out, rec, view.Options{}); err != nil {
		b.Fatal(err)
	}
	calls := 0
	for b.Loop() {
		var to bytes.Buffer
		rep, err := foreign.ReadChrome(bytes.NewReader(out.Bytes()), &to, foreign.Options{})
		if err != nil {
			b.Fatal(err)
		}
		calls += rep.Calls
	}
	b.ReportMetric(float64(calls)/b.Elapsed().Seconds(), "calls/s")
}
