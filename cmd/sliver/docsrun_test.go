package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/internal/dumptest"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/watch/control"
)

// notRun are examples that TestDocsExamples does not run, by their beginning, with the reason.
var notRun = map[string]string{
	"CGO_ENABLED=0 go install":               "TestRelease builds a clone",
	"go build -o sliver":                     "the same",
	"sudo ":                                  "changes the system; TestCapabilitiesOpenNoFiles has the capabilities",
	"chgrp ":                                 "the same",
	"jcmd ":                                  "another project's tool",
	"adb ":                                   "needs a phone",
	"sliver record --name":                   "waits for such a process; TestRecordByName",
	"sliver record --unit":                   "needs systemd",
	"sliver watch --unit":                    "needs systemd",
	"sliver record -p $(pgrep -of gunicorn)": "needs a server; TestFamily has a process with children",
	"go tool pprof -http":                    "opens a browser; -top is run",
	"bench/":                                 "measures for minutes; TestDocsCommands looks for the script",
	"go run ./bench/runtimes":                "the same",
	"go run ./bench/hprof":                   "the same",
	"go test":                                "TestDocsCommands looks for the test",
	"SLIVER_LONG=1 go test":                  "the same",
	"SLIVER_HEAP_OBJECTS=":                   "the same",
	"sliver trace -p 1234 -f 'shop.Cart::":   "needs Java 25; TestTraceJavaMethods",
	"sliver trace -p 1234 -f 'Cart::":        "the same",
	"sliver heap leaks FILE":                 "a usage line; examples of it are run",
	"sliver heap histo FILE":                 "the same",
	"sliver heap diff OLD":                   "the same",
	"sliver heap show FILE":                  "the same",
	"sliver heap PID [":                      "the same",
	"sliver heap dump PID -o x":              "the same",
	"sliver heap PID --holders CLASS":        "the same",
	"sliver heap 4712 --holders":             "is of CPython, other examples of the page of Java; TestPythonHolders",
	"sliver heap path FILE":                  "the same",
	"sliver heap leaks 1234":                 "the program of README's examples is not Java; docs/heap.md has it of one that is",
}

// stage is a folder with a program to look at and the files that the examples of a page name.
type stage struct {
	t        *testing.T
	dir      string
	target   *testprog.Proc
	env      []string
	backend  *httptest.Server // plays the collectors
	posts    atomic.Int64     // requests that it got
	table    uint64           // an object of the heap dumps, and one of its elements
	element  uint64
	recorder *exec.Cmd // a flight recorder called "server", nil before it is needed
	port     string    // of metrics
}

// TestDocsExamples runs the examples of README.md and docs on real programs. Times are shortened. A command that does
// not end by itself is ended once it works.
func TestDocsExamples(t *testing.T) {
	testprog.Need(t, "ptrace")
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	found, used := 0, map[string]bool{}
	for _, p := range pages(t, "README.md", "docs/*.md") {
		var examples []string
	next:
		for _, e := range p.examples {
			found++
			for prefix := range notRun {
				if strings.HasPrefix(e, prefix) {
					used[prefix] = true
					continue next
				}
			}
			examples = append(examples, e)
		}
		if len(examples) == 0 || testing.Short() && p.name != "README.md" {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(p.name), ".md"), func(page *testing.T) {
			s := newStage(page, programs[p.name])
			for i, e := range examples {
				first, _, _ := strings.Cut(e, "\n")
				page.Run(fmt.Sprintf("%d %s", i, first), func(t *testing.T) { s.run(t, e) })
			}
		})
	}
	if found < 120 {
		t.Errorf("only %d examples found", found)
	}
	for prefix := range notRun {
		if !used[prefix] {
			t.Errorf("no example begins with %q: remove it from notRun", prefix)
		}
	}
}

// programs are those that pages look at, where that is not the workload of sliver demo.
var programs = map[string]string{
	"README.md": "kitchen", "docs/locks.md": "kitchen", "docs/slow-request.md": "kitchen", "docs/trace.md": "kitchen",
	"docs/python.md": "python", "docs/node.md": "node", "docs/java.md": "java", "docs/heap.md": "heap", "docs/hprof.md": "dumps",
}

// newStage starts a program and writes the files that examples name.
func newStage(t *testing.T, program string) *stage {
	t.Helper()
	run := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", run)
	s := &stage{t: t, dir: t.TempDir()}
	s.backend = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // asked for a debug file
			http.NotFound(w, r)
		} else if _, err := io.Copy(io.Discard, r.Body); err == nil {
			s.posts.Add(1)
		}
	}))
	s.env = []string{"XDG_RUNTIME_DIR=" + run, "DEBUGINFOD_URLS=" + s.backend.URL}
	t.Cleanup(s.backend.Close)
	root := testprog.Root(t)
	script := func(runtime, name string, args ...string) *testprog.Proc {
		return testprog.Start(t, testprog.Tool(t, runtime), append([]string{filepath.Join(root, "testdata", "targets", name)}, args...)...)
	}
	switch program {
	case "python":
		s.target = python(t, testprog.Tool(t, "python3.12"))
	case "node":
		s.target = script("node", "node/busy.js", "json", "regexp")
		s.target.Ready()
		s.target.Go()
		s.target.Line("busy")
	case "java":
		s.target = java(t)
		waitFor(t, func() bool {
			return strings.Contains(sliver(t, s.dir, "threads", pidOf(s.target)).out, "worker-3")
		})
	case "kitchen":
		s.target = testprog.Start(t, testprog.Build(t, "locks/kitchen", "O2"), "--seconds", "3600", "--wait-go")
		s.target.Ready()
		s.target.Go()
	case "heap":
		s.dumps()
		s.target = java(t)
		return s
	case "dumps":
		s.dumps()
		return s
	default:
		bin, err := build()
		if err != nil {
			t.Fatal(err)
		}
		s.target = testprog.Start(t, bin, demoWorkload, fmt.Sprint(int64(20*time.Minute)))
		waitFor(t, func() bool {
			return strings.Contains(sliver(t, s.dir, "threads", pidOf(s.target)).out, "worker-2")
		})
	}
	s.write("server", 0o755, "#!/bin/sh\nexec sleep 1\n")
	s.write("Makefile", 0o644, "all:\n\t@sh -c 'i=0; while [ $$i -lt 300000 ]; do i=$$((i+1)); done'\n")
	s.write("headers.txt", 0o600, "X-Team: shop\n")
	s.write("watch.yaml", 0o600, s.config())
	s.must("record", "-q", "-p", pidOf(s.target), "-d", "1s", "-o", "run.sliver", "-o", "run.pb.gz", "-o", "cpu.pb.gz", "-o", "run.otlp")
	s.must("export", "run.sliver", "-t", "main", "-o", "old.nanoscope.txt")
	for _, name := range []string{"old.sliver", "new.sliver", "DUMP.sliver", "pg.sliver"} {
		s.must("export", "run.sliver", "-o", name)
	}
	return s
}

func java(t *testing.T) *testprog.Proc {
	t.Helper()
	return testprog.Start(t, testprog.Tool(t, "java17"), "-Xmx64m", "-XX:+UseSerialGC", "-cp", testprog.JavaClasses(t, "Convoy"), "Convoy", "600")
}

func (s *stage) write(name string, mode os.FileMode, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
}

// config is the file that docs/watch.md shows, with its folder below the stage's.
func (s *stage) config() string {
	s.t.Helper()
	_, text, ok := strings.Cut(pages(s.t, "docs/watch.md")[0].text, "\n    name: myserver\n")
	if !ok {
		s.t.Fatal("docs/watch.md shows no configuration")
	}
	text, _, _ = strings.Cut("    name: myserver\n"+text, "\n\n")
	return strings.ReplaceAll(strings.ReplaceAll(text, "\n    ", "\n"), "/var/lib/sliver", s.dir)[4:] + "\n"
}

// dumps writes the heap dumps that docs/heap.md and docs/hprof.md name.
func (s *stage) dumps() {
	s.t.Helper()
	for i, name := range []string{"before.hprof", "app.hprof", "android.hprof"} {
		version, ids := "1.0.2", 8
		if name == "android.hprof" {
			version, ids = "1.0.3", 4
		}
		d := dumptest.New(version, ids)
		d.Class("java/lang/Object", "", 0, nil)
		d.Class("java/lang/Class", "java/lang/Object", 0, nil)
		d.Class("[Ljava/lang/Object;", "java/lang/Object", 0, nil)
		d.Class("com/example/Session", "java/lang/Object", 0, nil, dumptest.Field{Name: "data", Type: hprof.TypeObject})
		var all []uint64
		for n := range 100 * (i + 1) {
			data := d.Bytes(bytes.Repeat([]byte{byte(n)}, 1000))
			all = append(all, d.Instance("com/example/Session", map[string]any{"data": data}))
		}
		table := d.Objects("[Ljava/lang/Object;", all...)
		if name == "app.hprof" {
			s.table, s.element = table, all[7]
		}
		c := d.Class("com/example/Sessions", "java/lang/Object", 0, []dumptest.Field{{Name: "cache", Type: hprof.TypeObject, Value: table}})
		d.Root(hprof.SubRootSticky, c)
		s.write(name, 0o600, string(d.Encode()))
	}
	b, err := os.ReadFile(filepath.Join(s.dir, "app.hprof"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("after.hprof", 0o600, string(b))
	s.write("damaged.hprof", 0o600, string(b[:len(b)-len(b)/3]))
	s.must("hprof", "strip", "app.hprof", "--rule", "koom", "-o", "koom.hprof")
	s.must("hprof", "copy", "app.hprof", "-o", "app.hprof.gz")
}

func (s *stage) must(args ...string) {
	s.t.Helper()
	if r := sliver(s.t, s.dir, args...); r.status != 0 {
		s.t.Fatalf("sliver %q: %+v", args, r)
	}
}

var (
	someTime = regexp.MustCompile(` -d \d+[smh]`)
	endless  = regexp.MustCompile(`sliver (record|trace|io) `)
	somePID  = regexp.MustCompile(`\b(1234|4711|PID)\b`)
	word     = regexp.MustCompile(`"[^"]*"|'[^']*'|[^\s"']+`)
	backend  = regexp.MustCompile(`http://(localhost|127\.0\.0\.1):(4318|4040|7070)\b`)
)

// fit makes an example one of this stage: its process, files, addresses and short times.
func (s *stage) fit(e string) string {
	if s.target != nil {
		e = somePID.ReplaceAllString(e, pidOf(s.target))
	}
	pairs := []string{
		"/etc/sliver/", s.dir + "/", "/var/tmp/dumps", s.dir, "/srv/debug", s.dir, " /tmp/", " " + s.dir + "/", " --open", "",
		",1300", "", "--process cc1", "--process sh", "2s..3s", "0s..400ms", "'^parse'", "main", "handle_request", "bake", "'http::*'", "'kn*'", "server.c:parse", "kitchen.c:knead", "/^sql_/", "/^kn/", "-objects 100000000", "-objects 100000",
		"0x703a00000", fmt.Sprintf("0x%x", s.table), "0x7020a1b58", fmt.Sprintf("0x%x", s.element),
		"trace/testdata/", filepath.Join(testprog.Root(s.t), "trace", "testdata") + "/",
	}
	if s.port != "" {
		pairs = append(pairs, "9464", s.port)
	}
	e = strings.NewReplacer(pairs...).Replace(e)
	e = backend.ReplaceAllString(e, s.backend.URL)
	if e = someTime.ReplaceAllString(e, " -d 500ms"); endless.MatchString(e) && !strings.Contains(e, "--list") &&
		!strings.Contains(e, " -d ") && !strings.Contains(e, "--web") && !strings.Contains(e, " -- ") {
		e += " -d 500ms"
	}
	return e
}

// args splits a command into words, without quotes.
func args(e string) (all []string) {
	glued := regexp.MustCompile(`("[^"]*"|'[^']*'|[^\s"'])+`)
	for _, w := range glued.FindAllString(e, -1) {
		all = append(all, word.ReplaceAllStringFunc(w, func(p string) string { return strings.Trim(p, `"'`) }))
	}
	return all
}

// run runs an example, which must end with status 0 or show that it works.
func (s *stage) run(t *testing.T, example string) {
	t.Helper()
	if strings.Contains(example, "9464") && s.port == "" {
		_, s.port, _ = strings.Cut(freePort(t), ":")
	}
	switch {
	case strings.HasPrefix(example, "sliver dump"):
		s.watching()
	case strings.HasPrefix(example, "curl -s http://127.0.0.1:9464"):
		defer s.measured(t)()
	}
	e := s.fit(example)
	if strings.Contains(e, "sliver recover") {
		e = s.killed(t, e)
	}
	words := args(e)
	var env []string
	for len(words) > 0 && strings.Contains(words[0], "=") {
		env = append(env, words[0])
		words = words[1:]
	}
	before := s.posts.Load()
	switch rest := words[1:]; {
	case words[0] != "sliver":
		if _, err := exec.LookPath(words[0]); err != nil {
			testprog.Lack(t, words[0], err.Error())
		}
		cmd := exec.Command(words[0], rest...)
		cmd.Dir = s.dir
		if len(rest) > 1 && rest[0] == "run" {
			cmd.Dir = testprog.Root(t)
		}
		if r := runCmd(t, cmd); r.status != 0 || r.out == "" && rest[0] != "run" && !strings.Contains(e, "--data-binary") {
			t.Errorf("%s: %+v", e, r)
		}
	case rest[0] == "view" || strings.Contains(e, "--web"):
		v := serve(t, s.dir, s.env, rest...)
		if rest[0] != "view" {
			waitFor(t, func() bool { return v.status().To > 3e8 })
		}
		if res, err := http.Get(v.url); err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("%s: %v, %v", e, res, err)
		} else {
			res.Body.Close()
		}
		if rest[0] == "demo" { // Ctrl-C would be for the workload
			if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			v.end()
		} else {
			v.interrupt()
		}
	case rest[0] == "top" && !strings.Contains(e, "--once"):
		x := inTerminal(t, 100, 30, s.env, rest...)
		x.shows(`SELF`)
		x.types("q")
		x.leaves()
	case rest[0] == "watch":
		s.watch(t, e, rest)
	default:
		cmd := slivercmd(t, s.dir, rest...)
		cmd.Env = append(append(cmd.Env, s.env...), env...)
		if r := runCmd(t, cmd); r.status != 0 {
			t.Errorf("%s: %+v", e, r)
		}
	}
	if strings.Contains(e, s.backend.URL) && s.posts.Load() == before {
		t.Errorf("%s: nothing was sent", e)
	}
}

// watch runs a flight recorder until it watches, or until its command ends.
func (s *stage) watch(t *testing.T, e string, rest []string) {
	t.Helper()
	cmd := slivercmd(t, s.dir, rest...)
	cmd.Env = append(cmd.Env, s.env...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if !strings.Contains(e, " -- ") {
		waitFor(t, func() bool {
			var all []control.Status
			r := sliver(t, s.dir, "ls", "--json")
			if err := json.Unmarshal([]byte(r.out), &all); err != nil {
				t.Fatalf("%v: %+v", err, r)
			}
			return len(ended) > 0 || slices.ContainsFunc(all, func(r control.Status) bool {
				return r.PID == cmd.Process.Pid && (len(r.Targets) > 0 || !strings.Contains(e, " -p "))
			})
		})
		_ = cmd.Process.Signal(syscall.SIGINT) // or it ended, which is an error below if it failed
	}
	if err := <-ended; err != nil {
		t.Errorf("%s: %v: %s", e, err, log.String())
	}
}

// watching starts the recorder that examples of dump and recover need.
func (s *stage) watching() {
	t := s.t
	t.Helper()
	if s.recorder != nil {
		return
	}
	s.recorder = slivercmd(t, s.dir, "watch", "-p", pidOf(s.target), "--no-triggers", "--as", "server")
	s.recorder.Env = append(s.recorder.Env, s.env...)
	if err := s.recorder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.recorder.Process.Kill(); _ = s.recorder.Wait() })
	status(t, s.dir, func(all []control.Status) bool {
		return len(all) == 1 && len(all[0].Targets) == 1 && all[0].Targets[0].Samples > 30
	})
}

// killed kills a recorder, and returns the example with the file that it left.
func (s *stage) killed(t *testing.T, example string) string {
	t.Helper()
	if strings.Contains(example, ".ring") {
		s.watching()
		ring := status(t, s.dir, func([]control.Status) bool { return true })[0].Targets[0].RingFile
		_ = s.recorder.Process.Kill()
		_ = s.recorder.Wait()
		return regexp.MustCompile(`\S+\.ring`).ReplaceAllLiteralString(example, ring)
	}
	cmd := slivercmd(t, s.dir, "record", "-p", pidOf(s.target), "-i", "1ms", "-o", "killed.sliver")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	part := growing(t, s.dir)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return regexp.MustCompile(`\S+\.partial`).ReplaceAllLiteralString(example, filepath.Base(part))
}

// measured starts a recording whose metrics can be read until the function that it returns is called.
func (s *stage) measured(t *testing.T) (end func()) {
	t.Helper()
	cmd := slivercmd(t, s.dir, "record", "-q", "-p", pidOf(s.target), "--metrics", s.port, "-o", "metrics.sliver")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		res, err := http.Get("http://127.0.0.1:" + s.port + "/metrics")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return err == nil && bytes.Contains(b, []byte("sliver_samples_total"))
	})
	return func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
