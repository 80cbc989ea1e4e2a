package watch

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/canary"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/watch/control"
)

// TestIO: a main thread that waits for a disk makes the recorder dump, with the file's name in the
// trigger.
func TestIO(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	path := filepath.Join(t.TempDir(), "journal")
	p := testprog.Start(t, testprog.Build(t, "c/files", "O2"), "sync", path, "5", "1000000")
	p.Ready()
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := mayWatchIO(proc); canary.Refused(err) {
		testprog.Missing(t, "bpf", err.Error())
	}
	r := begin(t, Source{Fixed: []*target.Process{proc}}, nil, "io slow=100us,cool=0s", "crash no")
	r.samples(1) // then every call is seen
	p.Go()
	s := r.until("for a dump", func(s *control.Status) bool { return len(s.Dumps) > 0 })
	found, err := filepath.Glob(filepath.Join(r.dir, "*.sliver"))
	if err != nil || len(found) == 0 {
		t.Fatalf("%v, %q: %+v", err, found, s)
	}
	rec := open(t, found[0])
	if len(rec.Triggers) == 0 {
		t.Fatal("no trigger in the dump")
	}
	x := rec.Triggers[0]
	if x.Kind != "io" || int(x.TID) != p.PID || !strings.Contains(x.Text, "journal held the main thread for") || len(x.Values) < 2 || x.Values[1].Value != path {
		t.Errorf("%+v", x)
	}
	p.Done()
}

// mayWatchIO returns why I/O of p cannot be watched.
func mayWatchIO(p *target.Process) error {
	done := make(chan error)
	go func() { // the canary belongs to this goroutine, which is locked to its thread
		c, err := canary.Open(p, canary.Options{})
		if err == nil {
			c.Close()
		}
		done <- err
	}()
	return <-done
}
