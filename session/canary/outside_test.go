package canary

import (
	"context"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// TestOutside looks from outside at a program whose reads take 100 ms, and at one that opens sockets.
func TestOutside(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	look := func(args ...string) *Report {
		t.Helper()
		p := testprog.Start(t, testprog.Build(t, "c/files", "O2"), args...)
		p.Ready()
		proc, err := target.Open(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		defer proc.Close()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan error, 1)
		var r *Report
		began := make(chan struct{})
		go func() {
			var err error
			r, err = outsideFrom(ctx, proc, 13*time.Millisecond, func() { close(began) })
			done <- err
		}()
		<-began
		p.Go()
		p.Done()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return r
	}
	path := slow(t, 100*time.Millisecond)
	r := look("read", path, "10", "1000")
	if len(r.Blocked) == 0 || r.Blocked[0].Call != "pread64" || r.Blocked[0].Path != path || r.Blocked[0].Long < 13*time.Millisecond || len(r.Blocked) > 10 {
		t.Errorf("%+v", r.Blocked)
	}
	if r.Read < 10_000 || r.ReadCalls < 10 {
		t.Errorf("%+v", r)
	}
	r = look("leak", "-", "30", "0")
	if n := r.After["socket"] - r.Before["socket"]; n != 30 || len(r.Blocked) > 0 {
		t.Errorf("%d more sockets: %+v", n, r)
	}
}
