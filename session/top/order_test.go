package top

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

func TestOrderAndFilter(t *testing.T) {
	fs := []Func{{"b", "/x/libm.so", Values{1, 9}, Values{5, 9}}, {"a", "/x/app", Values{3, 0}, Values{3, 0}}, {"c", "/x/app", Values{0, 1}, Values{9, 1}}}
	names := func(fs []Func) (s string) {
		for _, f := range fs {
			s += f.Name
		}
		return s
	}
	for _, c := range []struct {
		by   By
		o    FuncOrder
		want string
	}{{Wall, BySelf, "abc"}, {Wall, ByTotal, "cba"}, {Wall, ByFunc, "abc"}, {CPU, BySelf, "bc"}, {CPU, ByTotal, "bc"}} {
		if got := names(SortFuncs(slices.Clone(fs), c.by, c.o)); got != c.want {
			t.Errorf("%v %v: %s, want %s", c.by, c.o, got, c.want)
		}
	}
	rows := []Row{{TID: 3, Name: "a", State: stack.StateBlocked, Values: Values{CPU: 5}, Waits: "lock Z"},
		{TID: 1, Name: "c", State: stack.StateRunning, Values: Values{CPU: 1}, Top: "work"}, {TID: 2, Name: "b", State: stack.StateRunnable}}
	tids := func(rs []Row) (s string) {
		for _, r := range rs {
			s += fmt.Sprint(r.TID)
		}
		return s
	}
	for o, want := range map[ThreadOrder]string{ByCPU: "312", ByThread: "321", ByTID: "123", ByState: "123"} {
		if got := tids(SortThreads(slices.Clone(rows), o)); got != want {
			t.Errorf("%v: %s, want %s", o, got, want)
		}
	}
	for text, want := range map[string][2]string{"": {"bac", "312"}, "APP": {"ac", ""}, "/^b$|app/": {"bac", "2"}, "/APP/": {"", ""},
		"lock": {"", "3"}, "work": {"", "1"}, "ready": {"", "2"}, "2": {"", "2"}, "/": {"bac", ""}, "//": {"", ""}} {
		f, err := ParseFilter(text)
		if err != nil || f.String() != text {
			t.Errorf("%q: %v, %q", text, err, f)
		}
		if g := [2]string{names(f.Funcs(slices.Clone(fs))), tids(f.Threads(slices.Clone(rows)))}; g != want {
			t.Errorf("%q: %q, want %q", text, g, want)
		}
	}
	for _, bad := range []string{"/(/", "/[/", strings.Repeat("x", maxFilter+1)} {
		if _, err := ParseFilter(bad); err == nil || !strings.HasPrefix(err.Error(), "filter: ") {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	if BySelf.Next() != ByTotal || ByFunc.Next() != BySelf || ByState.Next() != ByCPU {
		t.Error("orders are no circle")
	}
}

func TestText(t *testing.T) {
	s := int64(time.Second)
	tb := &Table{Span: time.Second, Lost: 2, Folded: 3,
		Funcs: []Func{{"work\x1b[31m", "/bin/app", Values{s / 2, s / 4}, Values{s, s / 2}}, {"idle", "[vdso]", Values{s, 0}, Values{s, 0}}, {"g", "", Values{1, 0}, Values{1, 0}}},
		Threads: []Row{{TID: 7, Name: "main\n", State: stack.StateBlocked, Values: Values{s, s / 8}, Waits: "lock x, held by 8 w", Holder: 8},
			{TID: 8, Name: "w", State: stack.StateDisk, Values: Values{s, s / 2}, Top: "work"}}}
	h := &Head{PID: 7, Comm: "app", Ended: true, Losses: "1 late", Samples: 10}
	var out bytes.Buffer
	if err := tb.WriteText(&out, h, &Layout{Rows: 2}); err != nil {
		t.Fatal(err)
	}
	want := `PID 7 (app), ended: 2 threads, CPU 62.5%, 10 samples, window 1s
losses: 1 late, 2 events overwritten, 3 frames of too many stacks left out

   SELF   TOTAL  FUNCTION (by wall)
 100.0%  100.0%  idle [vdso]
  50.0%  100.0%  work?[31m [app]
and 1 more

    TID     CPU  STATE    NAME             WAITS FOR, OR IS IN
      8   50.0%  disk     w                work
      7   12.5%  blocked  main?            lock x, held by 8 w
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	f, _ := ParseFilter("work")
	if err := tb.WriteText(&out, h, &Layout{By: CPU, Filter: f, Width: 20}); err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(out.String(), "\n") {
		if len([]rune(l)) > 20 || strings.Contains(l, "idle") {
			t.Errorf("%q", l)
		}
	}
	if filepath.Base("/bin/app") != "app" || Share(1, 0) != "-" || Cut("größe", 4) != "grö…" || Cut("größe", 5) != "größe" {
		t.Error("words")
	}
}

// TestInterpreted: the time of an interpreter's own code is worth a line where it runs functions, and only there.
func TestInterpreted(t *testing.T) {
	own := Func{"PyLong_Add", "/usr/lib/libpython3.11.so.1.0", Values{4, 4}, Values{4, 4}}
	script := Func{"work", "[python]", Values{6, 6}, Values{10, 10}}
	little := Func{"work", "[python]", Values{60, 60}, Values{60, 60}}
	for name, c := range map[string]struct {
		funcs []Func
		want  string
	}{
		"both":           {[]Func{own, script}, "40.0% of the CPU time is the interpreter's own code; --kinds no-runtime counts it for the functions that it runs"},
		"little":         {[]Func{own, little}, ""},
		"no script":      {[]Func{own}, ""},
		"no interpreter": {[]Func{script, {"read", "/lib/libc.so.6", Values{4, 4}, Values{4, 4}}}, ""},
		"none":           {nil, ""},
	} {
		if got := (&Table{Funcs: c.funcs}).Interpreted(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		runs := slices.ContainsFunc(c.funcs, func(f Func) bool { return f.Name == "work" })
		if got := (&Table{Funcs: c.funcs, NoRuntime: true}).Interpreted(); strings.Contains(got, "--kinds all") != runs {
			t.Errorf("%s without the interpreter: %q", name, got)
		}
	}
}
