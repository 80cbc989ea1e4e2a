package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/internal/testprog"
)

// pathOf records a command in dir and returns its report.
func pathOf(t *testing.T, dir string, command ...string) (x report.Report) {
	t.Helper()
	if r := sliver(t, dir, append([]string{"record", "-q", "-i", "5ms", "--max-overhead", "0", "-o", "x.sliver", "--"}, command...)...); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	if err := json.Unmarshal([]byte(sliver(t, dir, "report", "--json", "x.sliver").out), &x); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, ask := range []string{
			"select id, pid, ppid, name, began, ended, samples from processes",
			`select t.process, w.call, w.file, w.waits_for, w.waker_process, w.waker_by, count(*), sum(w.dur) from waits w
				join threads t on t.id = w.thread group by 1, 2, 3, 4, 5, 6`,
		} {
			t.Log(sliver(t, dir, "sql", "x.sliver", ask).out)
		}
	})
	at := int64(-1)
	for _, s := range x.CriticalPath {
		if at >= 0 && s.Begin != at {
			t.Errorf("step %+v begins at another time than the one before ends, %d", s, at)
		}
		at = s.Begin + s.Duration
	}
	return x
}

// onPath is the share of the steps of the path that is says.
func onPath(x *report.Report, is func(s *report.Step) bool) float64 {
	var part, all int64
	for i := range x.CriticalPath {
		if s := &x.CriticalPath[i]; is(s) {
			part += s.Duration
		}
		all += x.CriticalPath[i].Duration
	}
	return float64(part) / float64(max(all, 1))
}

// A project whose dependencies are a chain: a generator is compiled, linked and run, and what it writes is compiled and linked. A
// file that nothing waits for is compiled at the same time. The path is the chain, in its order.
func TestCriticalPathOfMake(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace", "root")
	testprog.Tool(t, "make")
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("functions.h", `
#define A(n) static double f##n(double *a, int k) { for (int i = 0; i < k; i++) for (int j = 0; j < i; j++) a[i] = a[j] * a[i] + n + a[(i * j) & 7]; return a[k & 7]; }
#define B(n) A(n##0) A(n##1) A(n##2) A(n##3) A(n##4) A(n##5) A(n##6) A(n##7)
#define C(n) static double g##n(double *a, int k) { return f##n##0(a, k) + f##n##1(a, k) + f##n##2(a, k) + f##n##3(a, k) + f##n##4(a, k) + f##n##5(a, k) + f##n##6(a, k) + f##n##7(a, k); }
B(1) C(1) B(2) C(2) B(3) C(3) B(4) C(4) B(5) C(5) B(6) C(6)
#define SUM(a, k) (g1(a, k) + g2(a, k) + g3(a, k) + g4(a, k) + g5(a, k) + g6(a, k))
`)
	write("maker.c", "#include <stdio.h>\n#include \"functions.h\"\ndouble a[8];\nint main(int argc, char **argv) { printf(\"#define START %d\\n\", (int)(SUM(a, argc) * 0)); return 0; }\n")
	write("large.c", "#include \"start.h\"\n#include \"functions.h\"\ndouble large(double *a, int k) { return START + SUM(a, k); }\n")
	write("small.c", "double large(double *a, int k);\ndouble a[8];\nint main(int argc, char **argv) { return large(a, 0) > 1; }\n")
	write("Makefile", "prog: large.o small.o\n\tgcc -o $@ $^\nlarge.o: large.c start.h\n\tgcc -O2 -c $<\nstart.h: maker\n\t./maker > $@\nmaker: maker.c\n\tgcc -O2 -o $@ $<\nsmall.o: small.c\n\tgcc -O2 -c $<\n")
	x := pathOf(t, dir, "make", "-s", "-j2")
	var order []string
	for i := range x.CriticalPath {
		s := &x.CriticalPath[i]
		of := s.Name
		for _, file := range []string{"maker.c", "large.c", "small.c"} {
			if strings.Contains(s.Command, file) {
				of += " " + file
			}
		}
		order = append(order, of)
		if s.Name == "cc1" && s.Waiter != "gcc" {
			t.Errorf("what waited for a compiler is %+v", s)
		}
	}
	text := strings.Join(order, ", ")
	rest := text
	for _, want := range []string{"cc1 maker.c", "as", "collect2", "ld", "cc1 large.c", "as", "collect2", "ld"} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Errorf("no %q after what came before it in the path %s", want, text)
			break
		}
		rest = after
	}
	if strings.Contains(text, "small.c") {
		t.Errorf("the path has a compiler that nothing waited for: %s", text)
	}
	if n := onPath(&x, func(s *report.Step) bool { return s.Name == "cc1" }); n < .5 {
		t.Errorf("compilers have %.0f%% of the path: %s", 100*n, text)
	}
}

// The reader of a pipe ends last, but waits for the writer nearly all the time: lives alone have it on the path.
func TestCriticalPathOfPipeline(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace", "root")
	gzip := testprog.Tool(t, "gzip")
	x := pathOf(t, t.TempDir(), "sh", "-c", fmt.Sprintf("%s 60 20 | %s > /dev/null", testprog.Build(t, "c/gen", "O2"), gzip))
	if n := onPath(&x, func(s *report.Step) bool { return s.Name == "gen" }); n < .8 {
		t.Errorf("the writer has %.0f%% of the path: %+v", 100*n, x.CriticalPath)
	}
	peer := false
	for _, s := range x.CriticalPath {
		peer = peer || s.Name == "gen" && s.Waiter == "gzip" && (s.How == "peer" || s.How == "kernel")
	}
	if !peer {
		t.Errorf("no step of the writer is for the reader: %+v", x.CriticalPath)
	}
}
