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
	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/watch/control"
)

// A flight recorder that is killed at a random moment leaves a ring file that
// 'sliver recover' makes a clean recording of, up to the last samples, and a
// program that runs on. SLIVER_LONG=1: 200 times. That it is so to the very
// sample is held by TestKilled of package flight, which knows each one.
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
		<-time.After(time.Duration(rand.IntN(400_000_000))) // at any moment
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
	// Samples that were late on a busy machine were never there; what an unchanged
	// stack's events say comes every 250 ms, so that would show.
	if behind[times/2] > 10*interval {
		t.Errorf("half of the recordings end more than %v before the kill", 10*interval)
	}
	if left, _ := os.ReadDir(filepath.Join(run, "sliver")); len(left) > 1 { // the socket of the last
		t.Errorf("left behind: %v", left)
	}
}

// The name of a recorder that was killed is free at once: of two that are started right
// after, one takes over, with what is left recovered, and the other one says that it does.
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
	_ = first.Process.Kill() // nobody waits for it yet
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

// sampled is how many samples the only recorder in dir has had.
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

// lastSeen is the time of the youngest event, and how many made no sense.
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

// unheard takes what a replay tells.
type unheard struct{}

func (unheard) Enter(stack.Time, int, diff.Frame) {}
func (unheard) Exit(stack.Time, int, diff.Frame)  {}
func (unheard) Move(stack.Time, int, diff.Frame)  {}
func (unheard) Other(event.Event)                 {}
