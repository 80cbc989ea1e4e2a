package session

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// TestNothingTaken: a recording that is interrupted before its first tick lasts no time, and not since the machine started.
func TestNothingTaken(t *testing.T) {
	testprog.Need(t, "ptrace")
	p, err := target.Open(testprog.StartCmd(t, exec.Command("sleep", "60")).PID)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := New(p, Options{Interval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	reason, err := s.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := s.Finish(reason); err != nil || res.Duration > 5*time.Minute {
		t.Errorf("%v, %v", res.Duration, err)
	}
}
