package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/export/otlp"
	"github.com/sliverprof/sliver/export/push"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/caps"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// pushFlags are the flags of record that push windows to backends.
type pushFlags struct {
	otlp, pyroscope, parca []string
	window                 time.Duration
	service                string
	resource               []string
	headers                []string
	headerFile             string
	spool                  string
	spoolMB                int

	sinks []*push.Sink
	attrs []otlp.Attribute
	head  http.Header
}

// Limits of the flags.
const (
	minWindow  = time.Second
	maxWindow  = time.Hour
	maxSpoolMB = 1 << 20
	// lastTry limits the wait for unsent windows at the end.
	lastTry = 5 * time.Second
	// lastTryHurried is the same after a signal.
	lastTryHurried = 300 * time.Millisecond
	// windowLag is how long after its end a window is read, at most: a thread's time is known until its last sample, and
	// on a busy machine the next one comes after some 100 ms. Windows shorter than twice as long wait for half of theirs.
	windowLag = 2 * time.Second
	// atOnce is the number of processes whose windows are in memory at once.
	atOnce = 64
	// maxPushed is the size, in bytes, at which a recording that is only pushed is replaced by a
	// new one on disk.
	maxPushed = 512 << 20
	// maxPushedProcesses is the same in processes. The names of those that have ended are kept until then.
	maxPushedProcesses = 8192
)

func (f *pushFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.otlp, "otlp", nil, "push profiles to this OpenTelemetry collector (http://localhost:4318); repeatable; without -o no file is written")
	fs.StringArrayVar(&f.pyroscope, "pyroscope", nil, "push profiles to this Pyroscope server (http://localhost:4040)")
	fs.StringArrayVar(&f.parca, "parca", nil, "push profiles to this Parca server (http://localhost:7070)")
	fs.DurationVar(&f.window, "window", 10*time.Second, "time that one pushed profile covers")
	fs.StringVar(&f.service, "service", "", "service.name of the profiles (default: the name of each program)")
	fs.StringArrayVar(&f.resource, "resource", nil, "further attribute of the profiles, such as deployment.environment=test; repeatable")
	fs.StringArrayVar(&f.headers, "push-header", nil, "header of the requests, such as 'Authorization: Bearer …'; other users can see it in the process list: prefer --push-header-file")
	fs.StringVar(&f.headerFile, "push-header-file", "", "file with headers, one per line (or $SLIVER_PUSH_HEADERS)")
	fs.StringVar(&f.spool, "spool", "", "directory for profiles that wait for a retry (default: sliver/spool in the user's cache directory)")
	fs.IntVar(&f.spoolMB, "spool-max", 64, "limit of that directory; the oldest profiles are deleted first")
}

func (f *pushFlags) any() bool { return len(f.otlp)+len(f.pyroscope)+len(f.parca) > 0 }

func (f *pushFlags) parse(fs *pflag.FlagSet) error {
	if !f.any() {
		for _, name := range []string{"window", "service", "resource", "push-header", "push-header-file", "spool", "spool-max"} {
			if fs.Changed(name) {
				return usagef("record", "--%s needs a backend: add --otlp, --pyroscope or --parca", name)
			}
		}
		return nil
	}
	for _, k := range []struct {
		kind push.Kind
		urls []string
	}{{push.OTLP, f.otlp}, {push.Pyroscope, f.pyroscope}, {push.Parca, f.parca}} {
		for _, u := range k.urls {
			s, err := push.ParseSink(k.kind, u)
			if err != nil {
				return usagef("record", "%v", err)
			}
			f.sinks = append(f.sinks, s)
		}
	}
	if f.window < minWindow || f.window > maxWindow {
		return usagef("record", "window: %v is out of range; use %v to %v", f.window, minWindow, maxWindow)
	}
	if f.spoolMB < 1 || f.spoolMB > maxSpoolMB {
		return usagef("record", "spool-max: %d is out of range; use 1 to %d", f.spoolMB, maxSpoolMB)
	}
	if f.service != "" {
		f.attrs = append(f.attrs, otlp.Attribute{Key: "service.name", Value: view.Text(f.service, 256)})
	}
	for _, r := range f.resource {
		k, v, ok := strings.Cut(r, "=")
		if !ok || k == "" {
			return usagef("record", "resource: invalid attribute %q (write NAME=VALUE)", r)
		}
		f.attrs = append(f.attrs, otlp.Attribute{Key: view.Text(k, 256), Value: view.Text(v, 1024)})
	}
	return f.parseHeaders()
}

// maxHeaders limits the file of --push-header-file, in bytes.
const maxHeaders = 64 << 10

// parseHeaders reads headers from the environment, the file and the command line; later ones
// take precedence.
func (f *pushFlags) parseHeaders() error {
	f.head = http.Header{}
	hidden := os.Getenv("SLIVER_PUSH_HEADERS")
	if f.headerFile != "" {
		b, err := safefile.ReadNamed(f.headerFile, maxHeaders)
		if err != nil {
			return fmt.Errorf("push-header-file: %w", err)
		}
		hidden += "\n" + string(b)
	}
	n := 0
	for line := range strings.Lines(hidden) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		n++
		if !f.header(line) { // the line may contain a secret, so the error does not show it
			return usagef("record", "push-header-file or $SLIVER_PUSH_HEADERS: header %d is not 'NAME: VALUE'", n)
		}
	}
	for _, h := range f.headers {
		if !f.header(h) {
			return usagef("record", "push-header: write 'NAME: VALUE'")
		}
	}
	return nil
}

func (f *pushFlags) header(h string) bool {
	k, v, ok := strings.Cut(h, ":")
	if !ok || strings.TrimSpace(k) == "" || strings.ContainsAny(h, "\r\n") {
		return false
	}
	f.head.Set(strings.TrimSpace(k), strings.TrimSpace(v))
	return true
}

// windows pushes the windows of successive recordings.
type windows struct {
	f *pushFlags
	p *push.Pusher
	e *env

	mu sync.Mutex // guards e.stderr
}

func (f *pushFlags) open(e *env) (*windows, error) {
	if !f.any() {
		return nil, nil
	}
	dir := f.spool
	if dir == "" {
		cache, err := userCache()
		if err != nil {
			cache = os.TempDir()
		}
		dir = filepath.Join(cache, "sliver", "spool")
	}
	var spool *push.Spool
	var err error
	caps.AsUser(func() { spool, err = push.OpenSpool(dir, int64(f.spoolMB)<<20) })
	if err != nil {
		return nil, fmt.Errorf("%w; --spool chooses another folder", err)
	}
	w := &windows{f: f, e: e}
	w.p = push.New(push.Options{Sinks: f.sinks, Spool: spool, Resource: f.attrs, Headers: f.head, Version: versionString(), Problem: w.problem})
	return w, nil
}

func (w *windows) problem(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.e.stderr, "sliver: %s\n", oneLine(fmt.Errorf("%s", s)))
}

// follow pushes the windows of s until stop is called, which pushes the rest. full is called
// when a recording without an output has become large.
func (w *windows) follow(s *session.Session, full func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	window := stack.Time(w.f.window)
	lag := min(stack.Time(windowLag), window/2)
	go func() {
		defer close(done)
		from := target.Now()
		due := time.NewTimer(time.Duration(window + lag))
		defer due.Stop()
		for end := false; !end; {
			select {
			case <-due.C:
			case <-quit:
				end = true
			}
			to := windowEnd(from, target.Now(), window, lag, end)
			w.push(s, from, to)
			from = to + 1
			if bytes, processes := s.Size(); full != nil && (bytes > maxPushed || processes > maxPushedProcesses) {
				full()
			}
			due.Reset(time.Duration(from + window + lag - target.Now()))
		}
	}()
	return func() { close(quit); <-done }
}

// windowEnd returns the end of the window that begins at from and is read now. The last one has all of the rest, and so has
// one that is read more than a window too late: sliver was stopped, or the windows before took long.
func windowEnd(from, now, window, lag stack.Time, last bool) stack.Time {
	to := from + window - 1
	switch {
	case last:
		return now
	case now-lag > to+window:
		return now - lag
	}
	return to
}

func (w *windows) push(s *session.Session, from, to stack.Time) {
	failed := s.Windows(from, atOnce, func(rec *trace.Recording) {
		if err := w.p.Window(rec, view.Options{From: from, To: to}); err != nil {
			w.problem("a window is lost: " + err.Error())
		}
	})
	if n := len(failed); n > 0 {
		w.p.Lose(n * len(w.f.sinks))
		w.problem(fmt.Sprintf("%s lost: %v", plural.Either(n, "window is", "windows are"), failed[0]))
	}
}

// close reports the result. hurried shortens the wait for unsent windows.
func (w *windows) close(quiet, hurried bool) {
	most := lastTry
	if hurried {
		most = lastTryHurried
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	r := w.p.Close(ctx)
	switch {
	case r.Waiting > 0 || r.Lost > 0:
		w.problem(fmt.Sprintf("%d windows were sent, %d are lost, %d wait on disk for the next recording with the same address", r.Sent, r.Lost, r.Waiting))
	case !quiet:
		fmt.Fprintf(w.e.stderr, "pushed %s\n", plural.Of(r.Sent, "window"))
	}
}
