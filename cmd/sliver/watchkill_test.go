package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/watch/control"
)

// A flight recorder killed at a random moment leaves a ring file that 'sliver recover'
// converts to a clean recording, up to the last samples, and a running target.
// SLIVER_LONG=1: 200 times. TestKilled of package flight, which knows each sample,
// verifies that none is missing.
func TestWatchKilled(t *testing.T) {
	testprog.Need(t, "ptrace")
	times := 4
	if os.Getenv("SLIVER_LONG") != "" {
		times = 200
	}
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	run := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", run)
	// Threads that come and go, so that rings and the log change all the time.
	p := testprog.Start(t, testprog.Build(t, "c/churn", "O2"), "--live", "8", "--seconds", "3600")
	dir := t.TempDir()
	const interval = 5 * time.Millisecond
	var behind []time.Duration
	for i := range times {
		cmd := slivercmd(t, dir, "watch", "-p", pidOf(p), "-i", interval.String(), "--no-triggers", "--max-cpu", "0%", "--keep", "2s", "--as", "killed")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ring := filepath.Join(run, "sliver", fmt.Sprintf("churn-%d.ring", p.PID))
		waitFor(t, func() bool { return sampled(filepath.Join(run, "sliver")) > 100 })
		<-time.After(time.Duration(rand.IntN(400_000_000))) // a random moment
		at := target.Now()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		out := fmt.Sprintf("k%d.sliver", i)
		if r := sliver(t, dir, "recover", "--remove", "-o", out, ring); r.status != 0 || strings.Contains(r.errors, "sliver:") {
			t.Fatalf("kill %d: recover: %+v", i, r)
		}
		b, err := os.Open(filepath.Join(dir, out))
		if err != nil {
			t.Fatal(err)
		}
		fi, err := b.Stat()
		if err != nil {
			t.Fatal(err)
		}
		rec, err := trace.Open(b, fi.Size())
		if err != nil || len(rec.Problems) > 0 || rec.End == nil || rec.Symbols == nil || rec.Process.PID != p.PID {
			t.Fatalf("kill %d: %v, problems %v", i, err, rec.Problems)
		}
		last, odd := lastSeen(rec)
		if odd > 0 {
			t.Errorf("kill %d: %d events make no sense", i, odd)
		}
		behind = append(behind, time.Duration(at-last))
		b.Close()
		_ = os.Remove(b.Name())
		waitFor(t, func() bool { return untouched(t, p.PID) })
	}
	slices.Sort(behind)
	t.Logf("%d kills; the recordings end %v (median), %v (longest) before", times, behind[times/2], behind[times-1])
	// Late samples on a busy machine do not exist. Events of an unchanged stack come every
	// 250 ms, so a loss would show.
	if behind[times/2] > 10*interval {
		t.Errorf("half of the recordings end more than %v before the kill", 10*interval)
	}
	if left, _ := os.ReadDir(filepath.Join(run, "sliver")); len(left) > 1 { // the last one's socket
		t.Errorf("left behind: %v", left)
	}
}

// The name of a killed recorder is free at once. Of two started right after, one takes
// over and recovers the rings, and the other reports the name as taken.
func TestWatchTakesOver(t *testing.T) {
	testprog.Need(t, "ptrace")
	run := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", run)
	p := testprog.Start(t, testprog.Build(t, "c/churn", "O2"), "--live", "8", "--seconds", "3600")
	dir := t.TempDir()
	start := func() *exec.Cmd {
		cmd := slivercmd(t, dir, "watch", "-p", pidOf(p), "-i", "5ms", "--no-triggers", "--as", "same")
		cmd.Stderr = new(bytes.Buffer)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	said := func(cmd *exec.Cmd) string { return cmd.Stderr.(*bytes.Buffer).String() }
	first := start()
	waitFor(t, func() bool { return sampled(filepath.Join(run, "sliver")) > 100 })
	_ = first.Process.Kill() // not waited for yet
	ended := make(chan *exec.Cmd, 2)
	both := []*exec.Cmd{start(), start()}
	for _, cmd := range both {
		go func() {
			_ = cmd.Wait()
			ended <- cmd
		}()
	}
	loser := <-ended
	winner := both[0]
	if loser == winner {
		winner = both[1]
	}
	if !strings.Contains(said(loser), "a recorder called same is running") {
		t.Errorf("one of two ended with %q", said(loser))
	}
	waitFor(t, func() bool { return sampled(filepath.Join(run, "sliver")) > 100 })
	_ = winner.Process.Signal(syscall.SIGTERM)
	<-ended
	if !strings.Contains(said(winner), "msg=recovered") {
		t.Errorf("it recovered nothing: %q", said(winner))
	}
	_ = first.Wait()
}

// sampled returns the number of samples of the only recorder in dir.
func sampled(dir string) uint64 {
	cs, err := control.Clients(dir)
	if err != nil || len(cs) != 1 {
		return 0
	}
	s, err := cs[0].Status(context.Background())
	if err != nil || len(s.Targets) == 0 {
		return 0
	}
	return s.Targets[0].Samples
}

// lastSeen returns the time of the newest event, and the number of invalid ones.
func lastSeen(rec *trace.Recording) (last stack.Time, odd int) {
	for i := range rec.Threads {
		var r diff.Replayer
		for e := range rec.Events(rec.Threads[i].Seq) {
			r.Apply(e, unheard{})
			last = max(last, e.Time)
		}
		odd += r.Odd
	}
	return last, odd
}

// unheard discards a replay.
type unheard struct{}

func (unheard) Enter(stack.Time, int, diff.Frame) {}
func (unheard) Exit(stack.Time, int, diff.Frame)  {}
func (unheard) Move(stack.Time, int, diff.Frame)  {}
func (unheard) Other(event.Event)                 {}
