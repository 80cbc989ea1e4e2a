package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web/client"
)

// served is a sliver that serves a page.
type served struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	lines []string // of standard error, up to the page's URL
	rest  *bufio.Reader
}

// serve starts sliver and waits for its page. env is added to the environment.
func serve(t *testing.T, dir string, env []string, args ...string) *served {
	t.Helper()
	s := &served{t: t, cmd: slivercmd(t, dir, args...)}
	s.cmd.Env = append(append(os.Environ(), "SSH_CONNECTION="), env...)
	errs, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	s.rest = bufio.NewReader(errs)
	for {
		line, err := s.rest.ReadString('\n')
		s.lines = append(s.lines, line)
		if err != nil {
			t.Fatalf("no page: %q", s.lines)
		}
		if url, ok := strings.CutPrefix(line, "page: "); ok {
			s.url = strings.TrimSpace(url)
			return s
		}
	}
}

func (s *served) client() *client.Client {
	s.t.Helper()
	c, err := client.New(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// interrupt ends it as Ctrl-C does and returns the rest of its output.
func (s *served) interrupt() string {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	return s.end()
}

// end waits for its end.
func (s *served) end() string {
	s.t.Helper()
	rest, err := io.ReadAll(s.rest)
	if err == nil {
		err = s.cmd.Wait()
	}
	if err != nil {
		s.t.Errorf("ended with %v: %s", err, rest)
	}
	return string(rest)
}

func (s *served) status() (st client.Status) {
	s.t.Helper()
	if err := s.client().Ask(s.t.Context(), client.Query{Op: "status"}, &st); err != nil {
		s.t.Fatal(err)
	}
	return st
}

// knows reports whether a function of this name is on the timeline.
func (s *served) knows(name string) bool {
	s.t.Helper()
	var m struct {
		Funcs []struct{ Name, File, Module string }
	}
	if err := s.client().Ask(s.t.Context(), client.Query{Op: "names"}, &m); err != nil {
		s.t.Fatal(err)
	}
	for _, f := range m.Funcs {
		if f.Name == name {
			return f.Module != ""
		}
	}
	return false
}

// download requests an export.
func (s *served) download(p client.Part) []byte {
	s.t.Helper()
	r, err := s.client().Export(s.t.Context(), p)
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || len(b) == 0 {
		s.t.Fatalf("%s: %v, %.200s", p.Format, err, b)
	}
	return b
}

// TestRecordWeb: the page of a recording in progress has names, can control it, and stays
// open with the whole recording.
func TestRecordWeb(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	s := serve(t, dir, nil, "record", "-p", pidOf(p), "-i", "2ms", "-o", "run.sliver", "--web")
	c := s.client()
	in, err := c.Info(t.Context())
	if err != nil || !in.Live || fmt.Sprint(in.Control) != "[start pause resume stop interval threads keep]" || len(in.Formats) < 10 {
		t.Fatalf("offers %+v, %v", in, err)
	}
	w, err := c.Watch(t.Context(), client.View{Follow: true, Bin: 1e6}) // a page is open
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	go func() {
		for {
			if _, err := w.Next(); err != nil {
				return
			}
		}
	}()
	waitFor(t, func() bool { return s.knows("spin_29") })
	do := func(action string, more map[string]any) {
		t.Helper()
		if err := c.Control(t.Context(), action, more); err != nil {
			t.Fatal(err)
		}
	}
	do("pause", nil)
	if st := s.status(); st.Recording == nil || !st.Recording.Paused {
		t.Errorf("paused: %+v", st.Recording)
	}
	do("resume", nil)
	do("interval", map[string]any{"interval_ns": 1_000_000})
	do("threads", map[string]any{"threads": "main"})
	if st := s.status(); st.Recording == nil || st.Recording.Paused || st.Recording.Interval != 1_000_000 || st.Recording.Threads != "main" || st.Recording.Samples == 0 {
		t.Errorf("status %+v", st.Recording)
	}
	var e *client.Error
	if err := c.Control(t.Context(), "threads", map[string]any{"threads": "nosuch"}); !errors.As(err, &e) || !strings.Contains(err.Error(), "no thread matches") {
		t.Errorf("threads that are not there: %v", err)
	}
	if err := c.Control(t.Context(), "start", nil); !errors.As(err, &e) || !strings.Contains(err.Error(), "under way") {
		t.Errorf("start while recording: %v", err)
	}
	// A part of the recording so far, with names, in each format.
	part := openBytes(t, s.download(client.Part{Format: "sliver"}))
	if part.Symbols == nil || part.End == nil || len(part.Threads) == 0 || part.Count(0) == 0 {
		t.Errorf("the recording so far: %+v", part)
	}
	if b := s.download(client.Part{Format: "collapsed"}); !bytes.Contains(b, []byte("spin_29")) {
		t.Errorf("collapsed: %.300s", b)
	}
	z := s.download(client.Part{Format: "nanoscope"})
	if r, err := zip.NewReader(bytes.NewReader(z), int64(len(z))); err != nil || len(r.File) < 2 {
		t.Errorf("nanoscope: %v", err)
	}
	before := s.status().Recording.Samples
	waitFor(t, func() bool { return s.status().Recording.Samples >= before+400 }) // one thread, one sample per ms
	do("keep", map[string]any{"last_ns": 300_000_000})
	kept, _ := filepath.Glob(filepath.Join(dir, "*-last300ms.sliver"))
	if len(kept) != 1 {
		t.Fatalf("kept %v", kept)
	}
	rec, closer, err := openRecording(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	if from, to := rec.Span(); to-from > 310_000_000 || to-from < 100_000_000 || rec.Symbols == nil {
		t.Errorf("kept %d ns", to-from)
	}
	closer.Close()
	do("stop", nil)
	waitFor(t, func() bool { return s.status().Done })
	whole := openBytes(t, s.download(client.Part{Format: "sliver"}))
	if whole.End == nil || whole.Symbols == nil || whole.Count(0) <= part.Count(0) {
		t.Errorf("the finished recording: %+v", whole.End)
	}
	// Another recording on the same page.
	do("start", nil)
	waitFor(t, func() bool { st := s.status(); return !st.Done && st.Held > 0 })
	do("stop", nil)
	waitFor(t, func() bool { return s.status().Done })
	out := s.interrupt()
	for _, name := range []string{"run.sliver", "run-2.sliver"} {
		if _, c, err := openRecording(filepath.Join(dir, name)); err != nil || !strings.Contains(out, "wrote    "+name) {
			t.Errorf("%s: %v; said %q", name, err, out)
		} else {
			c.Close()
		}
	}
	free(t, p.PID)
}

// TestRecordWebEnds: without a terminal and without a page, sliver does not stay; the
// page's process always ends.
func TestRecordWebEnds(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	s := serve(t, dir, nil, "record", "-p", pidOf(p), "-d", "300ms", "-o", "run.sliver", "--web", "127.0.0.1:0")
	if out := s.end(); !strings.Contains(out, "wrote    run.sliver") {
		t.Errorf("said %q", out)
	}
	free(t, p.PID)
}

// TestRecordWebEndsAnyTime: Ctrl-C while a recording that was ended on its page is being
// written takes the page down.
func TestRecordWebEndsAnyTime(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	for i := range 12 {
		name := fmt.Sprintf("run%d.sliver", i)
		s := serve(t, dir, nil, "record", "-p", pidOf(p), "-i", "2ms", "-o", name, "--web")
		waitFor(t, func() bool { return s.status().Held > 0 })
		if err := s.client().Control(t.Context(), "stop", nil); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(i)*800*time.Microsecond, func() { _ = s.cmd.Process.Signal(syscall.SIGINT) })
		if out := s.end(); !strings.Contains(out, "wrote    "+name) {
			t.Errorf("round %d said %q", i, out)
		}
		if _, c, err := openRecording(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
	}
	free(t, p.PID)
}

// TestRecordWebEndsBetween: Ctrl-C between two recordings of one page ends sliver, and
// the recording is kept.
func TestRecordWebEndsBetween(t *testing.T) {
	testprog.Whole(t, "TestRecordWebEndsAnyTime has another moment")
	p := spin(t)
	for i := range 8 {
		dir := t.TempDir()
		s := serve(t, dir, nil, "record", "-p", pidOf(p), "-i", "2ms", "-o", "run.sliver", "--web")
		waitFor(t, func() bool { return s.status().Held > 0 })
		c := s.client()
		if err := c.Control(t.Context(), "stop", nil); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { _, err := os.Stat(filepath.Join(dir, "run.sliver")); return err == nil })
		time.AfterFunc(time.Duration(i)*1500*time.Microsecond, func() { _ = s.cmd.Process.Signal(syscall.SIGINT) })
		_ = c.Control(t.Context(), "start", nil) // it may be gone by then
		out := s.end()
		left, err := os.ReadDir(dir)
		if err != nil || len(left) == 0 || len(left) > 2 {
			t.Errorf("round %d left %v (%v), said %q", i, left, err, out)
		}
		for _, f := range left {
			if _, c, err := openRecording(filepath.Join(dir, f.Name())); err != nil || !strings.Contains(out, "wrote    "+f.Name()) {
				t.Errorf("round %d: %s: %v; said %q", i, f.Name(), err, out)
			} else {
				c.Close()
			}
		}
	}
	free(t, p.PID)
}

func openBytes(t *testing.T, b []byte) *trace.Recording {
	t.Helper()
	rec, err := trace.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestView: a recording and a second one, the browser that is started, and the line that
// forwards the port.
func TestView(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	for _, name := range []string{"a.sliver", "b.sliver"} {
		recordEnough(t, dir, 10, 400*time.Millisecond, "-p", pidOf(p), "-i", "2ms", "-q", "-o", name)
	}
	// The fake browser stores the URL that it receives.
	bin := t.TempDir()
	opened := filepath.Join(bin, "opened")
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte("#!/bin/sh\necho \"$1\" >"+opened+".part && mv "+opened+".part "+opened+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, "view", "a.sliver", "--compare", "b.sliver", "--web-token", "0123456789abcdef", "--open")
	if !strings.HasSuffix(s.url, "/#token=0123456789abcdef") || !strings.HasPrefix(s.url, "http://127.0.0.1:") {
		t.Errorf("page %s", s.url)
	}
	waitFor(t, func() bool { return s.status().Done })
	if !s.knows("spin_29") {
		t.Error("the recording's names are not there")
	}
	rec, closer, err := openRecording(filepath.Join(dir, "a.sliver"))
	if err != nil {
		t.Fatal(err)
	}
	closer.Close()
	if r, n := s.status().Recording, rec.Stats.Total().Samples; r == nil || n == 0 || r.Samples != n || r.Interval != 2*time.Millisecond || r.PauseP50 == 0 {
		t.Errorf("its accounts: %+v, want %d samples", r, n)
	}
	in, err := s.client().Info(t.Context())
	if err != nil || in.Live || len(in.Control) > 0 || in.Compare == "" {
		t.Errorf("%+v, %v", in, err)
	}
	var tree client.Tree
	if err := s.client().Ask(t.Context(), client.Query{Op: "tree", Src: 1}, &tree); err != nil || len(tree.Func) < 2 {
		t.Errorf("the other recording: %v", err)
	}
	half := openBytes(t, s.download(client.Part{Format: "sliver", From: 1, To: 200e6}))
	if from, to := half.Span(); to-from > 201_000_000 {
		t.Errorf("a part of %d ns", to-from)
	}
	waitFor(t, func() bool { _, err := os.Stat(opened); return err == nil })
	b, err := os.ReadFile(opened)
	if err != nil || strings.Contains(string(b), "0123456789abcdef") {
		t.Fatalf("the browser's command line has the token: %s, %v", b, err)
	}
	once := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, want := range []int{http.StatusFound, http.StatusNotFound} {
		r, err := once.Get(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want || want == http.StatusFound && r.Header.Get("Location") != "/#token=0123456789abcdef" {
			t.Errorf("the browser's URL: %d to %q, want %d", r.StatusCode, r.Header.Get("Location"), want)
		}
	}
	if out := s.interrupt(); out != "" {
		t.Errorf("said %q", out)
	}

	// Traces of other tools can be viewed as well.
	if err := os.WriteFile(filepath.Join(dir, "old.nanoscope.txt"), []byte("1:+outside\n5:+inside\n900:POP\n1000:POP\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = serve(t, dir, nil, "view", "old.nanoscope.txt")
	if waitFor(t, func() bool { return s.status().Done }); !s.knows("inside") {
		t.Error("a trace of Nanoscope has no names")
	}
	if r := s.status().Recording; r != nil {
		t.Errorf("a trace of Nanoscope has accounts: %+v", r)
	}
	s.interrupt()

	s = serve(t, dir, []string{"SSH_CONNECTION=192.0.2.7 50000 192.0.2.8 2222", "DISPLAY=", "WAYLAND_DISPLAY="}, "view", "a.sliver", "--open")
	port := strings.Split(strings.Split(s.url, ":")[2], "/")[0]
	out := s.interrupt()
	if want := "ssh -N -L " + port + ":127.0.0.1:" + port + " "; !strings.Contains(out, want) || !strings.Contains(out, "@192.0.2.8 -p 2222") {
		t.Errorf("over SSH it says %q", out)
	}
	if !strings.Contains(out, "no display") {
		t.Errorf("no browser: %q", out)
	}
}

// TestDemoWeb: the demo on a page.
func TestDemoWeb(t *testing.T) {
	testprog.Need(t, "ptrace")
	s := serve(t, t.TempDir(), nil, "demo", "--web", "-o", "d.sliver")
	waitFor(t, func() bool { return s.knows("main.plan") })
	// Ctrl-C is for the workload, as for any command.
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if out := s.end(); !strings.Contains(out, "wrote    d.sliver") {
		t.Errorf("said %q", out)
	}
}
