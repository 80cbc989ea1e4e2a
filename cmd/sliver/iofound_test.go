package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
)

// slowly are the rules for programs on a machine that may be busy: what counts is how often, and not in which
// time. docs/io.md has what the usual thresholds find.
var slowly = []string{"--rule", "fsync within=60s", "--rule", "repeat-open within=60s", "--rule", "small-write count=50", "--rule", "sync-write"}

// found runs a command under sliver io with these rules.
func found(t *testing.T, dir, input string, rules []string, argv ...string) ioReport {
	t.Helper()
	cmd := slivercmd(t, dir, append(append([]string{"io", "--json"}, rules...), append([]string{"--"}, argv...)...)...)
	cmd.Stdin = strings.NewReader(input)
	r := runCmd(t, cmd)
	bpf(t, r)
	var got ioReport
	if i := strings.Index(r.out, "{\n"); i < 0 || r.status != 0 {
		t.Fatalf("%+v", r)
	} else if err := json.NewDecoder(strings.NewReader(r.out[i:])).Decode(&got); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	got.Lost = dropped(got.Lost)
	for _, l := range got.Lost { // sliver had no CPU for a while
		if !strings.Contains(l, "the ring was") {
			t.Errorf("lost: %q", l)
		}
		t.Log(l)
	}
	return got
}

// has returns the finding of a rule about a file whose path ends so.
func (r *ioReport) has(t *testing.T, rule iowatch.Rule, end string) *iowatch.Issue {
	t.Helper()
	i := slices.IndexFunc(r.Findings, func(f iowatch.Issue) bool { return f.Rule == rule && strings.HasSuffix(f.Path, end) })
	if i < 0 {
		t.Errorf("no %s about %s in %+v", rule, end, r.Findings)
		return &iowatch.Issue{}
	}
	return &r.Findings[i]
}

// in reports whether functions are in a stack in this order, leaf first.
func in(stack string, functions ...string) bool {
	for _, f := range functions {
		i := strings.Index(stack, f)
		if i < 0 {
			return false
		}
		stack = stack[i:]
	}
	return true
}

// starved skips a test none of whose runs was whole.
func starved(t *testing.T, whole bool) {
	t.Helper()
	if !whole {
		t.Skip("no run was without losses: sliver had no CPU for too long")
	}
}

// TestIOFindsSQLite: an application in Python with a transaction for each row, and a configuration that it
// reads for each.
func TestIOFindsSQLite(t *testing.T) {
	testprog.Whole(t, "TestFsync of package canary has the rule")
	testprog.Need(t, "ptrace")
	python := testprog.Tool(t, "python3.12")
	prog := filepath.Join(testprog.Root(t), "testdata", "targets", "python", "shop.py")
	const rows = 40
	last, whole := "", false
	for range 5 { // the first stacks of a command may lack Python's functions
		dir := t.TempDir()
		r := found(t, dir, "", slowly, python, prog, dir, fmt.Sprint(rows))
		if len(r.Lost) > 0 {
			continue
		}
		whole = true
		for _, f := range r.Files {
			if f.Path == filepath.Join(dir, "shop.ini") && (f.Opens != rows+1 || f.Ops < rows) {
				t.Errorf("%+v", f)
			}
			if f.Path == filepath.Join(dir, "shop.db") && f.Syncs < rows {
				t.Errorf("%+v", f)
			}
		}
		r.has(t, iowatch.Fsync, "/shop.db")
		r.has(t, iowatch.Fsync, "/shop.db-journal")
		r.has(t, iowatch.RepeatOpen, "/shop.db-journal")
		if last = r.has(t, iowatch.RepeatOpen, "/shop.ini").Stack; t.Failed() || in(last, "config at ", "order at ", "<module> at ") {
			return
		}
	}
	starved(t, whole)
	t.Errorf("the configuration was opened at\n%s", last)
}

// TestIOFindsPostgres: a server that makes each row a transaction.
func TestIOFindsPostgres(t *testing.T) {
	testprog.Need(t, "ptrace")
	dir := t.TempDir()
	as, data := database(t, dir)
	const rows = 1000 // a second: sliver may have no CPU for a part of it, and must read the server's maps
	input := "create table t (n int)\n" + strings.Repeat("insert into t values (1)\n", rows)
	r := found(t, dir, input, slowly, append(slices.Clone(as), testprog.Tool(t, "postgres"), "--single", "-D", data, "postgres")...)
	f := r.has(t, iowatch.Fsync, "")
	if !strings.Contains(f.Path, "/pg_wal/") || !in(f.Where+f.Stack, "XLog") {
		t.Errorf("%+v at\n%s\nopened at\n%s", f, f.Where, f.Stack)
	}
	for _, x := range r.Files {
		if x.Path == f.Path && x.Syncs < rows {
			t.Errorf("%d syncs: %+v", x.Syncs, x)
		}
	}
}

// TestIOFindsLogger: a Java program whose logger writes each record by itself.
func TestIOFindsLogger(t *testing.T) {
	testprog.Whole(t, "TestSmallBuffer of package canary has the rule")
	testprog.Need(t, "ptrace")
	java, classes := testprog.Tool(t, "java17"), testprog.JavaClasses(t, "Logs")
	const records = 30_000
	path := filepath.Join(t.TempDir(), "app.log")
	r := found(t, t.TempDir(), "", slowly, java, "-Xmx64m", "-XX:+UseSerialGC", "-cp", classes, "Logs", path, fmt.Sprint(records))
	starved(t, len(r.Lost) == 0)
	f := r.has(t, iowatch.SmallWrite, "/app.log")
	i := slices.IndexFunc(r.Files, func(f fileLine) bool { return f.Path == path })
	if fi, err := os.Stat(path); err != nil || i < 0 || r.Files[i].Ops < records || r.Files[i].Written != uint64(fi.Size()) {
		t.Errorf("%+v, %v: %v", r.Files, fi, err)
	}
	if stack := f.Stack + f.Where; !in(stack, "FileHandler", "Logs.logTo", "Logs.main") {
		t.Errorf("the log was opened at\n%s", stack)
	}
}

// TestIOFindsFlask: a page that reads its settings for each request, in one thread and in a thread for each request.
func TestIOFindsFlask(t *testing.T) {
	testprog.Whole(t, "TestRepeatRead of package canary has the rule")
	testprog.Need(t, "ptrace")
	python, flask := testprog.Tool(t, "python3.12"), testprog.Tool(t, "flask")
	prog := filepath.Join(testprog.Root(t), "testdata", "targets", "python", "pages.py")
	t.Setenv("PYTHONPATH", filepath.Dir(filepath.Dir(flask)))
	for name, args := range map[string][]string{"one thread": nil, "threads": {"threads"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := found(t, dir, "", slowly, append([]string{python, prog, dir, "100"}, args...)...)
			starved(t, len(r.Lost) == 0)
			if last := r.has(t, iowatch.RepeatOpen, "/settings.json").Stack; !in(last, "settings at ", "page at ", "Flask.wsgi_app at ") {
				t.Errorf("the settings were opened at\n%s", last)
			}
		})
	}
}

// TestIOFindsNothingInNPM: npm reads each file of a local package once, so that the usual rules find nothing
// to change.
func TestIOFindsNothingInNPM(t *testing.T) {
	testprog.Whole(t, "TestRecordIO has the rules")
	testprog.Need(t, "ptrace")
	npm := testprog.Tool(t, "npm")
	dir := t.TempDir()
	for _, x := range [][2]string{{"app/package.json", `{"name": "app", "version": "1.0.0"}`}, {"part/package.json", `{"name": "part", "version": "1.0.0"}`}} {
		path := filepath.Join(dir, x[0])
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(x[1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		if err := os.WriteFile(filepath.Join(dir, "part", fmt.Sprintf("file%d.js", i)), []byte("module.exports = 1;\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rules := []string{"--rule", "small-buffer,repeat-read,leak,fsync,sync-write,small-write,repeat-open"}
	r := found(t, filepath.Join(dir, "app"), "", rules, npm, "install", "--offline", "--install-links", "--no-audit", "--no-fund", "../part")
	if _, err := os.Stat(filepath.Join(dir, "app", "node_modules", "part", "file299.js")); err != nil {
		t.Fatal(err)
	}
	if len(r.Files) < 300 {
		t.Errorf("%d files", len(r.Files))
	}
	for _, f := range r.Findings {
		if strings.HasPrefix(f.Path, dir) {
			t.Errorf("%+v", f)
		}
	}
}
