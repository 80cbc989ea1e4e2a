package nanoscope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

const ms = exporttest.Ms

func export(t testing.TB, rec *trace.Recording, o view.Options, thread int) (*view.View, string) {
	t.Helper()
	v := view.New(rec, o)
	var b bytes.Buffer
	if err := Write(&b, v, &v.Threads[thread]); err != nil {
		t.Fatal(err)
	}
	return v, b.String()
}

// lint checks text against the original page's rules and returns the number of calls that
// it found.
func lint(t testing.TB, text string) int {
	t.Helper()
	out := exporttest.Run(t, "node", exporttest.Script("nanoscope_lint.mjs"), exporttest.File(t, "x.nanoscope.txt", []byte(text)))
	var r struct{ Calls int }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r.Calls
}

// read reads a trace the way the page does: POP closes the innermost call; calls that
// stay open end at the last time.
func read(t testing.TB, text string, seq int, base stack.Time) []exporttest.Call {
	t.Helper()
	var out []exporttest.Call
	var open []int
	last := int64(0)
	for line := range strings.Lines(text) {
		at, ev, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		n, err := strconv.ParseInt(at, 10, 64)
		if !ok || err != nil {
			t.Fatalf("line %q", line)
		}
		last = n - 1 + int64(base)
		if ev == "POP" {
			out[open[len(open)-1]].End = last
			open = open[:len(open)-1]
			continue
		}
		out = append(out, exporttest.Call{Thread: seq, Name: strings.TrimPrefix(ev, "+"), Depth: len(open), Begin: last})
		open = append(open, len(out)-1)
	}
	for _, i := range open {
		out[i].End = last
	}
	return out
}

func TestReaderSeesTheReplay(t *testing.T) {
	for what, rec := range map[string]*trace.Recording{"sample": exporttest.Sample(t), "big": exporttest.Big(t, 40_000, 2), "hostile": exporttest.Hostile(t)} {
		t.Run(what, func(t *testing.T) {
			var got []exporttest.Call
			for i := range rec.Threads {
				v, text := export(t, rec, view.Options{}, i)
				calls := read(t, text, rec.Threads[i].Seq, v.Begin())
				if n := lint(t, text); n != len(calls) {
					t.Errorf("lint found %d calls, want %d", n, len(calls))
				}
				for _, c := range calls {
					if !strings.HasPrefix(c.Name, "[gap: ") {
						got = append(got, c)
					}
				}
			}
			want := exporttest.Calls(rec)
			for i := range want {
				want[i].Name = name(want[i].Name)
			}
			exporttest.Match(t, want, got)
		})
	}
}

func TestGolden(t *testing.T) {
	rec := exporttest.Sample(t)
	var b strings.Builder
	for i := range rec.Threads {
		v, text := export(t, rec, view.Options{}, i)
		fmt.Fprintf(&b, "== %s\n%s== %[1]s.state\n", v.Threads[i].Label, text)
		if err := WriteStates(&b, v, &v.Threads[i]); err != nil {
			t.Fatal(err)
		}
	}
	exporttest.Golden(t, "sample.golden", b.String())
}

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"main": "main", "vector<int>": "vector< int>", "a<b": "a< b", "operator<<": "operator<<", "x < y": "x < y", "</script>": "< /script>",
		"<!--": "< !--", "<?php": "< ?php", "a\nb": `a\x0ab`, "é": `\u{e9}`, "\xff": `\xff`, `"q"`: "'q'", "constructor": "constructor()",
		"toString": "toString()", "__proto__": "__proto__()", "": "?", "\x7f": `\x7f`, "POP": "POP", "f#1": "f#1",
		strings.Repeat("n", 5000): strings.Repeat("n", maxName) + "...", "<\xc3\xa9": `<\u{e9}`,
	} {
		if got := name(in); got != want {
			t.Errorf("%.40q: %.60q, want %.60q", in, got, want)
		}
	}
}

func TestRange(t *testing.T) {
	rec := exporttest.Sample(t)
	_, text := export(t, rec, view.Options{From: exporttest.Start + 15*ms, To: exporttest.Start + 40*ms}, 0)
	want := "1:+main\n1:+serve\n1:+parse\n1:+scan\n1:+next< char>\n5000001:POP\n5000001:POP\n15000001:POP\n15000001:+libpoll\n"
	if !strings.HasPrefix(text, want) || !strings.HasSuffix(text, "POP\n") || strings.Count(text, "POP") != strings.Count(text, "+") {
		t.Errorf("got\n%s", text)
	}
	lint(t, text)
}

// Each line's "state before" equals the previous line's "state after".
func TestStatesChain(t *testing.T) {
	rec := exporttest.Big(t, 20_000, 1)
	v := view.New(rec, view.Options{})
	var b bytes.Buffer
	if err := WriteStates(&b, v, &v.Threads[0]); err != nil {
		t.Fatal(err)
	}
	last, at, n := 0, int64(0), 0
	for line := range strings.Lines(b.String()) {
		var ts int64
		var from, to int
		if _, err := fmt.Sscanf(line, "%d, %d, %d\n", &ts, &from, &to); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if n > 0 && from != last || ts < at || ts < 1 || from < 66 || from > 90 || to < 66 || to > 90 {
			t.Fatalf("line %d: %q behind state %d", n, line, last)
		}
		last, at, n = to, ts, n+1
	}
	if n < 100 {
		t.Errorf("%d changes of state", n)
	}
}

func FuzzName(f *testing.F) {
	for _, n := range exporttest.HostileNames {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := name(s)
		for i := range len(n) {
			if n[i] < 0x20 || n[i] > 0x7e || n[i] == '"' || n[i] == '<' && i+1 < len(n) && opensTag(n[i+1]) {
				t.Fatalf("%q gives %q", s, n)
			}
		}
		if n == "" || crashing[n] || len(n) > maxName+16 {
			t.Fatalf("%q gives %q", s, n)
		}
	})
}

func FuzzWrite(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		rec := exporttest.Raw(t, data)
		v, text := export(t, rec, view.Options{}, 0)
		depth, last := 0, int64(0)
		for line := range strings.Lines(text) {
			at, ev, _ := strings.Cut(line, ":")
			n, err := strconv.ParseInt(at, 10, 64)
			if err != nil || n < last || n < 1 || n > maxTime {
				t.Fatalf("line %q behind %d", line, last)
			}
			last = n
			if ev == "POP\n" {
				depth--
			} else {
				depth++
			}
			if depth < 0 {
				t.Fatal("too many POPs")
			}
		}
		if depth != 0 {
			t.Fatalf("%d calls left open", depth)
		}
		if err := WriteStates(io.Discard, v, &v.Threads[0]); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	rec := exporttest.Big(b, 1_000_000, 1)
	b.ReportAllocs()
	for b.Loop() {
		v := view.New(rec, view.Options{})
		if err := Write(io.Discard, v, &v.Threads[0]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(rec.Count(0))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
