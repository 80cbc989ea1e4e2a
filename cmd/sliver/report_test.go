package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestReport: the waits of a real program, in all three formats and for each side, and
// one-line errors for wrong usage.
func TestReport(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	recordEnough(t, dir, 10, 300*time.Millisecond, "-p", pidOf(p), "-o", "r.sliver")
	if r := sliver(t, dir, "report", "r.sliver"); r.status != 0 || !strings.Contains(r.out, "\nThreads\n") || !strings.Contains(r.out, "spin ("+pidOf(p)+")") ||
		!strings.Contains(r.out, "\nWhat sliver took\n") {
		t.Errorf("%+v", r)
	}
	var doc struct {
		Version int
		Threads []struct {
			TID int   `json:"tid"`
			CPU int64 `json:"cpu_ns"`
		}
		OnCPU []struct{ Name string } `json:"on_cpu"`
		Locks []any
	}
	r := sliver(t, dir, "report", "r.sliver", "--json")
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || doc.Version != 1 || len(doc.Threads) == 0 || doc.Threads[0].CPU <= 0 || len(doc.OnCPU) == 0 || doc.Locks == nil {
		t.Errorf("%v: %+v of %+v", err, doc, r)
	}
	if r := sliver(t, dir, "report", "r.sliver", "--off-cpu"); r.status != 0 || strings.Contains(r.out, "On the CPUs") || !strings.Contains(r.out, "off-CPU time alone") {
		t.Errorf("%+v", r)
	}
	if r := sliver(t, dir, "report", "r.sliver", "-o", "r.html"); r.status != 0 || !strings.HasPrefix(r.errors, "wrote r.html (report, ") {
		t.Errorf("%+v", r)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "r.html")); err != nil || !strings.HasPrefix(string(b), "<!doctype html>") || !strings.HasSuffix(string(b), "</html>\n") {
		t.Errorf("%v: %.100s", err, b)
	}
	if r := sliver(t, dir, "report", "r.sliver", "-o", "r.json"); r.status != 0 {
		t.Errorf("%+v", r)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "r.json")); err != nil || json.Unmarshal(b, &doc) != nil {
		t.Errorf("%v: not JSON: %.100s", err, b)
	}
	// A thread that runs has all of its time on one side.
	on, off := sliver(t, dir, "export", "r.sliver", "--format", "collapsed", "-o", "-", "--on-cpu"), sliver(t, dir, "export", "r.sliver", "--format", "collapsed", "-o", "-", "--off-cpu")
	if on.status != 0 || off.status != 0 || !strings.Contains(on.out, "spin_") {
		t.Errorf("on %+v, off %+v", on, off)
	}
	for args, says := range map[string]string{
		"report":                               "give one recording",
		"report r.sliver --json --html":        "exclude each other",
		"report r.sliver --rows 0":             "between 1 and",
		"report r.sliver --on-cpu --off-cpu":   "give one",
		"export r.sliver -o x.sliver --on-cpu": "a recording is copied whole",
	} {
		if r := sliver(t, dir, strings.Fields(args)...); r.status != 2 || !strings.Contains(r.errors, says) || strings.Count(r.errors, "\n") != 1 {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// TestReportNamesLocks: threads wait for a mutex, and for a file lock. The report, pprof
// and the timeline name the lock and the holder that the program prints.
func TestReportNamesLocks(t *testing.T) {
	testprog.Need(t, "ptrace")
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"normal", "flock"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			args, want := []string{kind, "3"}, "mutex own"
			if kind == "flock" {
				file := filepath.Join(dir, "db.lock")
				args, want = append(args, file), "exclusive flock "+file
			}
			p := testprog.Start(t, testprog.Build(t, "locks/pthread", "O2"), args...)
			var said struct{ Holder int }
			if err := json.Unmarshal([]byte(p.Line("{")), &said); err != nil {
				t.Fatal(err)
			}
			holder := regexp.MustCompile(fmt.Sprintf(`\b%d\b`, said.Holder)) // of a file lock: another process
			if r := sliver(t, dir, "record", "-p", pidOf(p), "-i", "5ms", "-d", "1s", "-o", "r.sliver", "-o", "r.pb.gz"); r.status != 0 {
				t.Fatalf("%+v", r)
			}
			var doc struct {
				Locks []struct {
					Name    string
					Waits   int
					Holders []struct{ Name string }
				}
				Longest []struct {
					For   string
					Facts []struct{ Name, Value string }
				}
			}
			r := sliver(t, dir, "report", "r.sliver", "--json")
			if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
				t.Fatalf("%v: %+v", err, r)
			}
			named := false
			for _, l := range doc.Locks {
				if l.Name != want {
					continue
				}
				named = true
				if l.Waits < 3 || len(l.Holders) != 1 || !holder.MatchString(l.Holders[0].Name) {
					t.Errorf("lock %+v, held by %d", l, said.Holder)
				}
			}
			if !named {
				t.Errorf("no lock %q in %s", want, r.out)
			}
			focus := "-tagfocus=lock=^" + regexp.QuoteMeta(want) + "$"
			if kind == "flock" {
				focus = "-tagfocus=db.lock"
			}
			out, err := exec.Command("go", "tool", "pprof", "-sample_index=off_cpu", focus, "-tags", filepath.Join(dir, "r.pb.gz")).CombinedOutput()
			if err != nil || !holder.Match(out) || !strings.Contains(string(out), want) {
				t.Errorf("pprof %s: %v\n%s", focus, err, out)
			}
			call := map[string]string{"normal": ";[kernel] futex ", "flock": ";[kernel] flock "}[kind]
			for _, flag := range []string{"--kernel", "--kinds=native,kernel"} {
				if r := sliver(t, dir, "export", "r.sliver", "--format", "collapsed", "-o", "-", flag); r.status != 0 || !strings.Contains(r.out, call) {
					t.Errorf("%s: %+v", flag, r)
				}
			}
		})
	}
}
