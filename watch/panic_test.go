package watch

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/sliverprof/sliver/watch/control"
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

// A panic where a dump is made costs that dump, is one line in the log, and counts as a
// dump that failed. The recording goes on.
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
