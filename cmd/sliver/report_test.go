package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport: what a real program waited for, in all three forms and by each
// side alone; and in one line what is wrong.
func TestReport(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	if r := sliver(t, dir, "record", "-p", pidOf(p), "-d", "300ms", "-o", "r.sliver"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
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
	if r := sliver(t, dir, "report", "r.sliver", "--html", "-o", "r.html"); r.status != 0 || !strings.HasPrefix(r.errors, "wrote r.html (report, ") {
		t.Errorf("%+v", r)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "r.html")); err != nil || !strings.HasPrefix(string(b), "<!doctype html>") || !strings.HasSuffix(string(b), "</html>\n") {
		t.Errorf("%v: %.100s", err, b)
	}
	// Of a thread that runs, one side has all of the time and the other none.
	on, off := sliver(t, dir, "export", "r.sliver", "--format", "collapsed", "-o", "-", "--on-cpu"), sliver(t, dir, "export", "r.sliver", "--format", "collapsed", "-o", "-", "--off-cpu")
	if on.status != 0 || off.status != 0 || !strings.Contains(on.out, "spin_") {
		t.Errorf("on %+v, off %+v", on, off)
	}
	for args, says := range map[string]string{
		"report":                               "give one recording",
		"report r.sliver --json --html":        "exclude each other",
		"report r.sliver --top 0":              "between 1 and",
		"report r.sliver --on-cpu --off-cpu":   "give one",
		"export r.sliver -o x.sliver --on-cpu": "a recording is copied whole",
	} {
		if r := sliver(t, dir, strings.Fields(args)...); r.status != 2 || !strings.Contains(r.errors, says) || strings.Count(r.errors, "\n") != 1 {
			t.Errorf("%s: %+v", args, r)
		}
	}
}
