package watch

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sliverprof/sliver/watch/control"
	"github.com/sliverprof/sliver/watch/trigger"
)

// breaks is a reader of a dump that panics.
type breaks struct{}

func (breaks) Write([]byte) (int, error) { panic("frob") }

// lines is a log that can be read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) with(text string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range strings.Split(l.b.String(), "\n") {
		if strings.Contains(s, text) {
			out = append(out, s)
		}
	}
	return out
}

// A panic while a dump is made costs that dump, is one line in the log, and counts as a
// failed dump. The recording continues.
func TestDumpPanics(t *testing.T) {
	p := trouble(t)
	log := &lines{}
	r := begin(t, fixed(t, p.PID), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	r.samples(50)
	for n := 1; n <= 2; n++ {
		_, err := r.Dump(context.Background(), control.Request{Kind: "request"}, breaks{})
		if err == nil || !strings.Contains(err.Error(), "panic: frob, at github.com/sliverprof/sliver/watch.breaks.Write") {
			t.Errorf("%v", err)
		}
		if got := log.with("no dump"); len(got) != n || !strings.Contains(got[n-1], "panic: frob") {
			t.Errorf("the log says %q", got)
		}
		if s := r.Status(); s.Failed != n || !strings.Contains(s.Trouble, "frob") || len(s.Dumps) != 0 {
			t.Errorf("%+v", s)
		}
	}
	if k := r.Kept(); k.Failed != 2 {
		t.Errorf("%+v", k)
	}
	r.samples(r.Status().Targets[0].Samples + 20)
	if _, err := r.Dump(context.Background(), control.Request{Kind: "request"}, nil); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(r.dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// A panic while triggers are checked costs that check, is one line in the log, and is
// counted. A trigger with three such checks is disabled until the triggers are reloaded.
// The others and the recording continue.
func TestCheckPanics(t *testing.T) {
	p := trouble(t)
	log := &lines{}
	written := filepath.Join(t.TempDir(), "written")
	r := begin(t, fixed(t, p.PID), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	r.samples(20)
	r.mu.Lock()
	f := r.targets[0].flight.Load()
	r.mu.Unlock()
	r.rulesMu.Lock()
	r.rules = rules(t, "fds 99%,every=100ms", "file "+written)
	r.rulesMu.Unlock()
	// A second watcher reads the same rings, for a process that does not exist: reading
	// its usage panics.
	x := &watched{w: r.Watcher, pid: p.PID, name: "trouble", asked: make(chan ask, 1), tracks: map[int]*follower{}, names: f.Namer()}
	defer x.names.Close()
	x.flight.Store(f)
	x.calls.t = x
	defer x.calls.close()
	if err := x.reload(); err != nil {
		t.Fatal(err)
	}
	until := func(ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); {
			if time.Now().After(end) {
				t.Fatalf("never; the log says %q", log.with("msg=trigger"))
			}
			x.contained()
			runtime.Gosched()
		}
	}
	until(func() bool { return r.Status().Broken == 3 })
	got := log.with("msg=trigger")
	if len(got) != 3 || !strings.Contains(got[0], "nil pointer") || !strings.Contains(got[0], "check fds") ||
		strings.Contains(got[1], "is off") || !strings.Contains(got[2], "this trigger is off") {
		t.Errorf("the log says %q", got)
	}
	if s, k := r.Status(), r.Kept(); !strings.Contains(s.Trouble, "is off") || k.Broken != 3 || k.Failed != 0 {
		t.Errorf("%+v, %+v", s, k)
	}
	// The other one fires.
	if err := os.WriteFile(written, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	until(func() bool { return len(x.asked) > 0 })
	if a := <-x.asked; a.reason() != string(trigger.File) || r.Status().Broken != 3 {
		t.Errorf("%+v", a)
	}
	// Reloading enables it again.
	if err := x.reload(); err != nil {
		t.Fatal(err)
	}
	until(func() bool { return r.Status().Broken == 4 })

	// A panic outside of a trigger's check disables all of them after three consecutive
	// looks.
	x.set = nil
	for n := range 5 {
		x.contained()
		if got, want := r.Status().Broken, 4+min(n+1, 3); got != want {
			t.Errorf("%d after %d looks, want %d", got, n+1, want)
		}
	}
	if got := log.with("they are off"); len(got) != 1 {
		t.Errorf("the log says %q", got)
	}
	r.samples(r.Status().Targets[0].Samples + 20)
}
