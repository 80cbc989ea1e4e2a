package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/internal/otelreceiver"
)

// TestExportPart verifies --range, --threads and --focus with pprof's own reader, and the
// one-line errors for empty selections.
func TestExportPart(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	wall := func(args ...string) (p *profile.Profile, total int64) {
		t.Helper()
		if r := sliver(t, dir, append([]string{"export", "r.sliver", "-o", "part.pb.gz"}, args...)...); r.status != 0 {
			t.Fatalf("%v: %+v", args, r)
		}
		f, err := os.Open(filepath.Join(dir, "part.pb.gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if p, err = profile.Parse(f); err != nil {
			t.Fatal(err)
		}
		for _, s := range p.Sample {
			total += s.Value[2]
		}
		return p, total
	}
	const ms = 1_000_000
	part := func(bounds string) int64 {
		_, total := wall("--range", bounds)
		return total
	}
	// On a busy machine the first sample may come late. Both the part before 100 ms and
	// the last 150 ms must have samples.
	recordUntil(t, dir, 400*time.Millisecond, func(result) bool { return part("..100ms") > 0 && part("-150ms..") > 0 }, "-p", pidOf(p), "-o", "r.sliver")
	_, all := wall()
	for _, c := range []struct {
		before, after string
		most          [2]int64 // of the two, in ns
	}{{"..100ms", "100ms..", [2]int64{100 * ms, all}}, {"..250ms", "250ms..", [2]int64{250 * ms, all}}, {"..-150ms", "-150ms..", [2]int64{all, 150 * ms}}} {
		before, after := part(c.before), part(c.after)
		if before+after != all || before > c.most[0] || after > c.most[1] {
			t.Errorf("%s has %d ns and %s %d, of %d", c.before, before, c.after, after, all)
		}
	}
	if got, want := part("100ms..250ms"), all-part("..100ms")-part("250ms.."); got != want {
		t.Errorf("100ms..250ms has %d ns, the rest leaves %d", got, want)
	}
	if _, got := wall("--threads", "main"); got != all {
		t.Errorf("main has %d ns of %d", got, all)
	}
	focused, sum := wall("--focus", "^spin_|work")
	for _, s := range focused.Sample {
		found := false
		for _, l := range s.Location {
			for _, line := range l.Line {
				found = found || strings.HasPrefix(line.Function.Name, "spin_") || strings.Contains(line.Function.Name, "work")
			}
		}
		if !found {
			t.Errorf("a stack without the function in focus: %v", s)
		}
	}
	if sum == 0 || sum > all || !strings.Contains(fmt.Sprint(focused.Comments), "focus: ^spin_|work") {
		t.Errorf("focus: %d ns of %d; %q", sum, all, focused.Comments)
	}
	r := sliver(t, dir, "sql", "r.sliver", "--format", "csv", "select count(*) > 0 a, max(t.name) b from slices s join threads t on t.id = s.thread")
	if r.status != 0 || r.out != "a,b\n1,spin\n" {
		t.Errorf("sql: %+v", r)
	}
	if r := sliver(t, dir, "sql", "r.sliver", "select nosuch"); r.status != 2 || !strings.HasPrefix(r.errors, "sliver: no such column: nosuch; tables: recording,") {
		t.Errorf("sql: %+v", r)
	}
	for args, says := range map[string]string{
		"--range 1h..":                      "the recording has",
		"--range 100ms..-390000ms":          "ends before it begins",
		"-t nosuch":                         `no thread of the recording matches "nosuch"; there are: 1=spin (TID ` + pidOf(p),
		"--focus nosuch":                    "no function on the selected stacks",
		"--focus ^spin_ --range ..0ms -t 2": "no thread",
	} {
		r := sliver(t, dir, append([]string{"export", "r.sliver", "-o", "x.pb.gz"}, strings.Fields(args)...)...)
		if r.status != 1 || !strings.Contains(r.errors, says) || strings.Count(r.errors, "\n") != 1 {
			t.Errorf("%s: %+v, want %q", args, r, says)
		}
		if _, err := os.Stat(filepath.Join(dir, "x.pb.gz")); err == nil {
			t.Errorf("%s: a file is written", args)
		}
	}
}

// TestImport detects traces of other tools by content, whatever their names are.
func TestImport(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write([]byte(`{"traceEvents":[{"ph":"X","ts":1,"dur":2,"name":"work","pid":1,"tid":1},{"ph":"C"}]}`))
	w.Close()
	write("chrome.gz", z.String())
	write("old.txt", "1:+main\n5:+work\n9:POP\n9:POP\n")
	write("old.txt.state", "1, 67, 67\n5, 67, 69\n9, 69, 67\n")
	for name, want := range map[string]string{"chrome.gz": "work 2000\n", "old.txt": "main;work 4\nmain 4\n"} {
		r := sliver(t, dir, "export", name, "--format", "collapsed", "-o", "-")
		got := ""
		for _, l := range strings.Split(r.out, "\n") {
			if _, rest, ok := strings.Cut(l, ";"); ok {
				got += rest + "\n"
			}
		}
		sortLines := func(s string) string {
			l := strings.Split(s, "\n")
			slices.Sort(l)
			return strings.Join(l, "\n")
		}
		if r.status != 0 || sortLines(got) != sortLines(want) {
			t.Errorf("%s: %+v, want %q", name, r, want)
		}
	}
	if r := sliver(t, dir, "export", "chrome.gz", "--format", "collapsed", "-o", "-"); !strings.Contains(r.errors, "1 event was skipped because it is not a call") {
		t.Errorf("%+v", r)
	}
	if r := sliver(t, dir, "sql", "old.txt", "--format", "csv", "select state, dur from states order by ts"); r.out != "state,dur\nrunning,4\nblocked,4\nrunning,0\n" {
		t.Errorf("%+v", r)
	}
	if r := sliver(t, dir, "export", "old.txt", "-o", "again.sliver"); r.status != 0 {
		t.Errorf("%+v", r)
	}
	if r := sliver(t, dir, "export", "again.sliver", "-o", "again.pb.gz"); r.status != 0 {
		t.Errorf("%+v", r)
	}
	write("bad.json", `{"traceEvents":[{"ph":"X","ts":1,"name":"a"},nonsense`)
	if r := sliver(t, dir, "export", "bad.json", "-o", "x.pb.gz"); r.status != 1 || strings.Count(r.errors, "\n") != 1 || !strings.Contains(r.errors, "Chrome JSON: byte") {
		t.Errorf("%+v", r)
	}
}

// TestPush: a recording in progress is pushed to the Collector's own receiver, window by
// window, and no other file is written.
func TestPush(t *testing.T) {
	r := otelreceiver.Start(t)
	p := spin(t)
	dir := t.TempDir()
	res := sliver(t, dir, "record", "-p", pidOf(p), "-d", "3500ms", "--otlp", r.URL, "--window", "1s", "--service", "spinner", "--spool", filepath.Join(dir, "spool"))
	if res.status != 0 || !strings.Contains(res.errors, "pushed ") {
		t.Fatalf("%+v", res)
	}
	windows, wall, last := 0, int64(0), uint64(0)
	for wall < 2_000_000_000 && windows < 5 {
		b := r.Next(t)
		windows++
		if b.Resource["service.name"] != "spinner" || b.Resource["process.pid"] != float64(p.PID) {
			t.Errorf("resource %v", b.Resource)
		}
		for _, x := range b.Profiles {
			if x.Type != "wall" {
				continue
			}
			if x.Time < last || x.Duration == 0 {
				t.Errorf("a window at %d of %d ns, the one before began at %d", x.Time, x.Duration, last)
			}
			last = x.Time
			for _, s := range x.Samples {
				wall += s.Value
				if !strings.Contains(strings.Join(s.Stack, " "), "spin") {
					t.Errorf("stack %v", s.Stack)
				}
			}
		}
	}
	if windows < 2 || wall < 2_000_000_000 {
		t.Errorf("%d windows, %d ns", windows, wall)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.sliver")); len(left) > 0 {
		t.Errorf("files %v", left)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "spool")); len(left) > 0 {
		t.Errorf("%d files in the spool", len(left))
	}
}
