package view_test

import (
	"regexp"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

func TestFocus(t *testing.T) {
	rec := simple(t)
	at := func(n int64) stack.Time { return exporttest.Start + stack.Time(n*ms) }
	for _, c := range []struct {
		focus    string
		from, to stack.Time
		want     string
	}{
		{"^b$", 0, 0, "10+a 10+b 10state 10seen 20state 20seen 30state 30-b 30-a 30state"},
		{"^a$", 0, 0, "0+a 0state 0seen 10+b 10seen 20state 20seen 30state 30-b 40seen 40-a 40state"},
		{"^b$", at(15), at(25), "15+a 15+b 15state 20state 20seen 25-b 25-a 25state"},
		{"none", 0, 0, ""},
	} {
		o := view.Options{From: c.from, To: c.to, Focus: regexp.MustCompile(c.focus)}
		if got := replay(t, rec, o, false); got != c.want {
			t.Errorf("%s: %s, want %s", c.focus, got, c.want)
		}
		if found := view.New(rec, o).Found(); (len(found) == 1) != (c.want != "") {
			t.Errorf("%s: found in threads %v", c.focus, found)
		}
	}
}

// The outermost slices in focus add up to the focused time, on a recording whose threads
// enter and leave the function often.
func TestFocusAddsUp(t *testing.T) {
	for _, rec := range []string{"sample", "big"} {
		r := exporttest.Sample(t)
		focus := "work|read"
		if rec == "big" {
			r, focus = exporttest.Big(t, 20_000, 2), "^f1[0-3]$"
		}
		for _, o := range []view.Options{{}, {From: exporttest.Start + 12*ms, To: exporttest.Start + 333*ms}} {
			o.Focus = regexp.MustCompile(focus)
			v := view.New(r, o)
			some := false
			for i := range v.Threads {
				s := &sum{t: t}
				n := v.Steps(&v.Threads[i], s)
				l := &outer{log: log{t: t, names: v.Names}}
				v.Slices(&v.Threads[i], l)
				if n != s.total || n != l.total {
					t.Errorf("%s thread %d: %d ns, handed out %d, slices of %d", rec, i, n, s.total, l.total)
				}
				some = some || n > 0
			}
			if !some {
				t.Errorf("%s: nothing is in focus", rec)
			}
		}
	}
}

// outer sums the outermost slices.
type outer struct {
	log
	began stack.Time
	total int64
}

func (o *outer) Begin(t stack.Time, depth int, s *trace.Slice) {
	if depth == 0 {
		o.began = t
	}
	o.log.Begin(t, depth, s)
}

func (o *outer) End(t stack.Time, depth int, s *trace.Slice) {
	if depth == 0 {
		o.total += int64(t - o.began)
	}
	o.log.End(t, depth, s)
}
