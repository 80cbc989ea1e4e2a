package session

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
)

// A recording reports the holder of a file lock, and samples the thread that waits for it
// at the ticks. That a sampler does not wait for the list of locks itself is shown by
// TestFileLockLater of session/internal/live, with a list that does not arrive.
func TestFileLockHolders(t *testing.T) {
	testprog.Need(t, "ptrace")
	for every, kinds := range map[time.Duration][]string{time.Millisecond: {"flock"}, 4 * time.Millisecond: {"flock", "fcntl"}} {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%s/%v", kind, every), func(t *testing.T) { fileLockHolder(t, every, kind) })
		}
	}
}

// fileLockHolder records a thread that waits for a lock of a kind for 200 samples.
func fileLockHolder(t *testing.T, every time.Duration, kind string) {
	p := testprog.Start(t, testprog.Build(t, "locks/pthread", "O2"), kind, "1", filepath.Join(t.TempDir(), "x.lock"))
	var said struct {
		Holder  stack.TID
		Waiters []stack.TID
	}
	if err := json.Unmarshal([]byte(p.Line("{")), &said); err != nil {
		t.Fatal(err)
	}
	only, err := sampler.ParseSelection(fmt.Sprint(said.Waiters[0]))
	if err != nil {
		t.Fatal(err)
	}
	rec := recordWith(t, p.PID, Options{Interval: every, Selection: only, Stop: sampler.StopRunning}, func(s stack.ThreadStats) bool {
		return s.Samples >= 200
	})
	if len(rec.Threads) != 1 {
		t.Fatalf("%d threads", len(rec.Threads))
	}
	if last := tracks(rec)[said.Waiters[0]].at(1 << 62); last.holder != said.Holder {
		t.Errorf("held by %d, want %d: %v", last.holder, said.Holder, last.wait)
	}
}
